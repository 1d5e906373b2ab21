// Images that wait on a device. Goal: newer ones may take the room of older ones while these are
// sent. Method: the service answers once the folder is full of others.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { ServiceRefusal } from "../../../gpu-node/agent/device-service.ts";
import { ImageOutbox } from "../../../gpu-node/agent/image-outbox.ts";
import { createLog } from "../../../gpu-node/base/log.ts";

const image = { width: 32, height: 32, data: new Uint8Array(32 * 32 * 3) };
const uncertain = [{ confidence: 0.5 }];

it("goes on with those that are left where newer ones took the room of others", async () => {
  const dir = mkdtempSync(join(tmpdir(), "outbox-"));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const rules = { uncertain: { from: 0, below: 1 }, secondsApart: 0, bytesMax: 2_000 };
  const outbox = new ImageOutbox(
    dir,
    rules,
    createLog(() => {}),
  );
  const keep = async (from: number, to: number) => {
    for (let seq = from; seq <= to; seq++) {
      await outbox.offer({ bootId: "boot", seq }, image, uncertain);
    }
  };
  await keep(1, 20);
  const sent: number[] = [];
  const service = {
    sendImage: async ({ bootId, seq }: { bootId: string; seq: number }) => {
      if (sent.length === 0) await keep(21, 40);
      sent.push(seq);
      // Of the answer nothing is read.
      return { boot_id: bootId, seq } as never;
    },
  };
  const signal = new AbortController().signal;
  const later = performance.now() + 60_000;
  await outbox.send(service, later, signal);
  await outbox.send(service, later, signal);
  expect(sent.length).toBeGreaterThan(2);
  expect(sent.at(-1)).toBe(40);
});

it("keeps an image that finds no room now, and lets go of one that is refused for good", async () => {
  const dir = mkdtempSync(join(tmpdir(), "outbox-"));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const rules = { uncertain: { from: 0, below: 1 }, secondsApart: 0, bytesMax: 100_000 };
  const outbox = new ImageOutbox(
    dir,
    rules,
    createLog(() => {}),
  );
  await outbox.offer({ bootId: "boot", seq: 1 }, image, uncertain);
  await outbox.offer({ bootId: "boot", seq: 2 }, image, uncertain);
  const sent: number[] = [];
  const refusing = (code: string) => ({
    sendImage: async ({ seq }: { seq: number }) => {
      sent.push(seq);
      throw new ServiceRefusal(413, code, "a test");
    },
  });
  const signal = new AbortController().signal;
  const later = performance.now() + 60_000;
  // A day's images of the device are stored: the others wait, and none is tried.
  await outbox.send(refusing("quota_exceeded"), later, signal);
  expect(sent).toEqual([1]);
  await outbox.send(refusing("file_too_large"), later, signal);
  expect(sent).toEqual([1, 1, 2]);
  await outbox.send(refusing("file_too_large"), later, signal);
  expect(sent).toEqual([1, 1, 2]);
});
