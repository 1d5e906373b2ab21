// The stack's own node: it comes back when it dies, asks for a new code only when it must, and is
// gone when it is stopped.

import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type GpuNode, startGpuNode } from "../../edge/local/gpu-node.ts";
import { processesOf } from "../support/gpu-node.ts";
import { type NodeService, startNodeService, until } from "../support/node-service.ts";

let service: NodeService;
let dir: string;
let node: GpuNode | undefined;
let codes: number;
let lines: string[];

beforeEach(async () => {
  service = await startNodeService();
  dir = mkdtempSync(join(tmpdir(), "vantage-embedded-"));
  codes = 0;
  lines = [];
});
afterEach(async () => {
  await node?.stop();
  await service.close();
  rmSync(dir, { recursive: true, force: true });
});

const start = () =>
  startGpuNode({
    url: service.url,
    dir,
    code: async () => {
      codes += 1;
      return service.code;
    },
    drainSeconds: 1,
    environment: { PATH: process.env.PATH, HOME: dir },
    entry: join(import.meta.dirname, "../support/node-main.ts"),
    onLine: (line) => lines.push(line),
  });

it("comes back after kill -9 with the identity it has", async () => {
  node = start();
  await node.ready;
  const pid = node.pid();
  const beats = service.heartbeats.length;
  process.kill(pid ?? 0, "SIGKILL");
  await until("another one works", () => (node?.pid() ?? pid) !== pid);
  await until("it is heard", () => service.heartbeats.length > beats + 1);
  expect([codes, service.registrations]).toEqual([1, 1]);
  await node.stop();
  expect(processesOf(dir)).toEqual([]);
  expect(lines.filter((line) => line.includes("gpu_node_restarts"))).toHaveLength(1);
});

it("asks for a code again when the service does not know it any more", async () => {
  node = start();
  await node.ready;
  // The service was set up anew.
  service.token = crypto.randomUUID();
  service.registrations = 0;
  await until("it is known again", () => service.registrations === 1);
  expect(codes).toBe(2);
});

it("is stopped only when nothing of it can say a word any more", async () => {
  const entry = join(dir, "entry.mjs");
  const late = `spawn("sh", ["-c", "sleep 0.3; echo late"], { stdio: ["ignore", 1, 1] }).unref()`;
  writeFileSync(
    entry,
    `import { spawn } from "node:child_process";
     process.on("SIGTERM", () => { ${late}; process.exit(0); });
     setInterval(() => {}, 1e6);
     process.stdout.write('{"event":"node_started"}\\n');`,
  );
  const environment = { PATH: process.env.PATH };
  const onLine = (line: string) => lines.push(line);
  const talking = startGpuNode({
    url: service.url,
    dir,
    code: async () => "code",
    entry,
    environment,
    onLine,
  });
  await talking.ready;
  await talking.stop();
  expect(lines.at(-1)).toBe("late");
});

it("stops while it waits to come back", async () => {
  service.code = "another";
  const stuck = startGpuNode({
    url: service.url,
    dir,
    code: async () => "wrong",
    drainSeconds: 1,
    environment: { PATH: process.env.PATH, HOME: dir },
    onLine: (line) => lines.push(line),
    entry: join(import.meta.dirname, "../support/node-main.ts"),
  });
  await until("it was refused", () => lines.some((line) => line.includes("gpu_node_restarts")));
  await stuck.stop();
  expect(stuck.pid()).toBeNull();
  expect(existsSync(join(dir, "lock"))).toBe(false);
  expect(processesOf(dir)).toEqual([]);
});
