// The agent as a program, against a service of the test's.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll } from "vitest";

/** A device as a program. */
export interface DeviceProcess {
  pid: number;
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  /** Its log, line by line. */
  lines(): Record<string, unknown>[];
  output(): string;
  signal(signal: NodeJS.Signals): void;
}

const started = new Set<ChildProcess>();
const folders = new Set<string>();

// A test that failed leaves nothing behind either.
afterAll(async () => {
  for (const child of started) child.kill("SIGKILL");
  for (const dir of folders) rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
});

/** A folder that goes with the test file. */
export function deviceFolder(name: string): string {
  const dir = mkdtempSync(join(tmpdir(), `vantage-${name}-`));
  folders.add(dir);
  return dir;
}

/** A folder of drawn images for a device to look at. */
export async function imageFolder(count = 3): Promise<string> {
  const dir = deviceFolder("images");
  for (let index = 0; index < count; index++) {
    const noise = { type: "gaussian", mean: 60 + 50 * index, sigma: 50 } as const;
    const create = { width: 160, height: 120, channels: 3, background: "#777", noise } as const;
    await sharp({ create })
      .jpeg()
      .toFile(join(dir, `${index}.jpg`));
  }
  return dir;
}

/** Starts an agent: ours as tests cut it off, or the program of `DEVICE_AGENT`. */
export function startDevice(environment: Readonly<Record<string, string>>): DeviceProcess {
  const { PATH, NODE_COMPILE_CACHE, DEVICE_AGENT } = process.env;
  const own = [process.execPath, join(import.meta.dirname, "device-main.ts")];
  const [command = "", ...args] = DEVICE_AGENT ? DEVICE_AGENT.split(" ") : own;
  const child = spawn(command, args, {
    env: {
      PATH,
      ...(NODE_COMPILE_CACHE ? { NODE_COMPILE_CACHE } : {}),
      VANTAGE_DEVICE_FPS: "50",
      VANTAGE_DEVICE_REPEAT: "true",
      VANTAGE_DEVICE_THREADS: "1",
      ...environment,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  started.add(child);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((done) =>
    child.on("exit", (code, signal) => {
      started.delete(child);
      done({ code, signal });
    }),
  );
  return {
    pid: child.pid ?? 0,
    ended,
    // What has no end yet is a part of a line.
    lines: () =>
      output
        .split("\n")
        .slice(0, -1)
        .filter((line) => line.startsWith("{"))
        .map((line) => JSON.parse(line) as Record<string, unknown>),
    output: () => output,
    signal: (signal) => void child.kill(signal),
  };
}
