// What hands the device's log over, at a server over HTTP that cuts and refuses.

import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterEach, expect, it } from "vitest";
import { DeviceService } from "../../../gpu-node/agent/device-service.ts";
import { LogRing } from "../../../gpu-node/agent/log-ring.ts";
import { LogSender } from "../../../gpu-node/agent/log-sender.ts";
import { createLog } from "../../../gpu-node/base/log.ts";
import { Secret } from "../../../shared/secret.ts";
import { LogBatch } from "../../../shared/wire/fleet.ts";

const root = mkdtempSync(join(tmpdir(), "vantage-sender-"));
let server: Server | null = null;
afterEach(async () => {
  server?.closeAllConnections();
  await new Promise((done) => server?.close(done));
  rmSync(root, { recursive: true, force: true });
});

/** A sender at a server that answers each batch as it is told; the batches that came. */
async function sending(
  ring: LogRing,
  answer: (batch: LogBatch, response: ServerResponse) => void,
  logMsMax?: number,
) {
  const batches: LogBatch[] = [];
  server = createServer(async (request, response) => {
    const body = gunzipSync(Buffer.concat(await request.toArray())).toString();
    const batch = LogBatch.parse(JSON.parse(body));
    batches.push(batch);
    answer(batch, response);
  });
  await new Promise<void>((done) => server?.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  const service = new DeviceService(url, "a-device", new Secret("a-token"), logMsMax);
  const sender = new LogSender(
    ring,
    service,
    createLog(() => {}),
  );
  const sync = () => sender.sync(performance.now() + 3_600_000, AbortSignal.timeout(3_600_000));
  return { batches, sync };
}

const stored = ({ boot_id, lines }: LogBatch) =>
  JSON.stringify({
    boot_id,
    acked_seq: lines.at(-1)?.seq ?? 0,
    stored: lines.length,
    duplicates: 0,
    gaps: [],
  });

const lineOf = (message: string) => ({ time: "2026-01-01T00:00:00Z", kind: "note", message });

it("sends again what a way loses, until all is handed over", async () => {
  const ring = new LogRing(join(root, "lossy"), 64 * 1024 ** 2);
  for (let count = 0; count < 3_000; count++) ring.append(lineOf("a line"));
  let requests = 0;
  const { batches, sync } = await sending(ring, (batch, response) => {
    if (requests++ % 3 < 2) response.socket?.destroy();
    else response.end(stored(batch));
  });
  await sync();
  expect(ring.isBehind).toBe(false);
  expect(batches.length).toBe(3 * 6);
});

it("sends less of what a slow way does not carry in time", async () => {
  const ring = new LogRing(join(root, "slow"), 64 * 1024 ** 2);
  for (let count = 0; count < 200; count++) ring.append(lineOf("a line"));
  const carries = ({ lines }: LogBatch) => lines.length <= 60;
  const { batches, sync } = await sending(
    ring,
    (batch, response) => void (carries(batch) && response.end(stored(batch))),
    1_000,
  );
  while (ring.isBehind) await sync().catch(() => {});
  const carried = batches.filter(carries).flatMap(({ lines }) => lines.map(({ seq }) => seq));
  expect(new Set(carried).size).toBe(200);
  expect(batches.slice(0, 3).map(({ lines }) => lines.length)).toEqual([200, 100, 50]);
});

it("rests where nobody answers any more, and where somebody says that it is too much", async () => {
  const ring = new LogRing(join(root, "away"), 64 * 1024 ** 2);
  ring.append(lineOf("a line"));
  let say = (response: ServerResponse): unknown => response.socket?.destroy();
  const { batches, sync } = await sending(ring, (_, response) => void say(response));
  await expect(sync()).rejects.toThrow("no answer");
  expect(batches.splice(0).length).toBe(5);
  say = (response) => response.writeHead(503).end('{"code":"unavailable","detail":"not now"}');
  await expect(sync()).rejects.toThrow("status 503");
  expect(batches.splice(0).length).toBe(1);
  // A page of whoever lets nobody through.
  say = (response) => response.end("<html>");
  await expect(sync()).rejects.toThrow("none of the service's");
  expect(batches.length).toBe(1);
});

it("hands large lines over by the mebibyte, however many files they lie in", async () => {
  const ring = new LogRing(join(root, "large"), 64 * 1024 ** 2);
  const object = { class: "disc", confidence: 0.5, bbox: [10.25, 20.25, 30.25, 40.25] };
  const objects = Array.from({ length: 100 }, () => object);
  for (let count = 0; count < 600; count++) ring.append({ ...lineOf("large"), objects });
  const { batches, sync } = await sending(ring, (batch, response) => response.end(stored(batch)));
  await sync();
  expect(batches.flatMap(({ lines }) => lines.map(({ seq }) => seq))).toEqual(
    Array.from({ length: 600 }, (_, index) => index + 1),
  );
  expect(batches.length).toBe(4);
});
