// A file of the store that is not to be had: asked for often enough that a fault of the store's may
// pass, and not for ever.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { downloadFile } from "../../../gpu-node/agent/download.ts";

const dir = mkdtempSync(join(tmpdir(), "vantage-download-"));
let refusals = 0;
let asked = 0;
const server = createServer((_, response) => {
  asked += 1;
  if (refusals-- > 0) response.writeHead(asked % 2 ? 404 : 403).end("<Error/>");
  else response.end("whole");
});
beforeAll(() => new Promise<void>((done) => server.listen(0, "127.0.0.1", done)));
afterAll(() => {
  server.close();
  rmSync(dir, { recursive: true, force: true });
});

const download = (name: string) =>
  downloadFile({
    address: async () => `http://127.0.0.1:${(server.address() as AddressInfo).port}/file`,
    path: join(dir, name),
    size: 5,
    signal: new AbortController().signal,
    retryMs: 1,
  });

it("comes after some refusals", async () => {
  refusals = 9;
  expect(await download("late")).toBe(false);
  expect(readFileSync(join(dir, "late"), "utf8")).toBe("whole");
});

it("is given up after ten", async () => {
  refusals = Number.POSITIVE_INFINITY;
  asked = 0;
  await expect(download("gone")).rejects.toThrow(/^file_gone: the store answered 40[34], 10 times/);
  expect(asked).toBe(10);
});
