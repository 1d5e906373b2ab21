// Ports that were free when they were looked up and were taken before they were used. Goal: the
// servers of the stack start all the same, on others.

import { rmSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, it, vi } from "vitest";
import { freePorts } from "../../edge/local/ports.ts";
import { startPostgres } from "../../edge/local/postgres.ts";
import { prepareState, stateAt } from "../../edge/local/state.ts";
import { startWorkers } from "../../edge/local/workers.ts";
import { temporaryFolder } from "../support/postgres.ts";

vi.mock(import("../../edge/local/ports.ts"), async (original) => {
  const ports = await original();
  return { ...ports, freePorts: vi.fn(ports.freePorts) };
});

const state = stateAt(temporaryFolder());
const { credentials } = prepareState(state);
const holder = net.createServer((socket) => socket.destroy());
let taken: number;

beforeAll(async () => {
  await new Promise<void>((done) => holder.listen(0, "127.0.0.1", done));
  taken = (holder.address() as net.AddressInfo).port;
});
afterAll(() => {
  holder.close();
  rmSync(state.dir, { recursive: true, force: true });
});
/** Another program is quicker, once. */
beforeEach(() => {
  vi.mocked(freePorts).mockImplementationOnce(async (count) => Array(count).fill(taken));
});

it("starts Postgres on another port than one that was taken meanwhile", async () => {
  const server = await startPostgres({
    dataDir: state.postgres,
    logFile: join(state.logs, "postgres.log"),
    password: credentials.superuser,
  });
  await server.stop();
  expect(server.port).not.toBe(taken);
});

it("starts the Workers on other ports than those that were taken meanwhile", async () => {
  const workers = await startWorkers({
    services: ["markets"],
    host: "127.0.0.1",
    ports: { markets: 0, console: 0, vision: 0 },
    persistTo: state.workers,
    s3: { accessKeyId: "test", secretAccessKey: "test" },
    bindings: { markets: {}, console: {}, vision: {} },
    onLog: () => {},
  });
  const { status } = await fetch(`${workers.urls.markets}/healthz`);
  await workers.stop();
  expect(status).toBe(500);
  expect([workers.urls.markets, workers.s3Url].join()).not.toContain(`:${taken}`);
});
