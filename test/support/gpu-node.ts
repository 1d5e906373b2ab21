// A real node in a process of its own, against a service of the test's.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";

export interface NodeProcess {
  pid: number;
  dir: string;
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  /** Its log, line by line. */
  lines(): Record<string, unknown>[];
  output(): string;
  signal(signal: NodeJS.Signals): void;
  /** Its child processes that work on tasks, and all they started. */
  below(): number[];
}

const started: { process: NodeProcess; child: ChildProcess }[] = [];

// A test that failed leaves nothing behind either.
afterEach(async () => {
  for (const { process: node, child } of started.splice(0)) {
    for (const pid of node.below()) endProcess(pid);
    child.kill("SIGKILL");
    await node.ended;
    rmSync(node.dir, { recursive: true, force: true });
  }
});

function endProcess(pid: number) {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It is gone.
  }
}

/** Living processes whose environment names a node's folder; those that ended are none. */
export function processesOf(dir: string): number[] {
  return readdirSync("/proc").flatMap((pid) => {
    if (!/^\d+$/.test(pid)) return [];
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      const environment = readFileSync(`/proc/${pid}/environ`, "utf8");
      return command && environment.includes(`${dir}\0`) ? [Number(pid)] : [];
    } catch {
      return [];
    }
  });
}

/** Starts the node's program, with the tests' segmenter and shorter times. */
export function startNode(environment: Readonly<Record<string, string>>): NodeProcess {
  const dir = environment.VANTAGE_NODE_DIR ?? mkdtempSync(join(tmpdir(), "vantage-node-"));
  const { PATH, NODE_COMPILE_CACHE } = process.env;
  const child = spawn(process.execPath, [join(import.meta.dirname, "node-main.ts")], {
    env: {
      PATH,
      ...(NODE_COMPILE_CACHE ? { NODE_COMPILE_CACHE } : {}),
      HOME: dir,
      VANTAGE_NODE_DIR: dir,
      ...environment,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((done) =>
    child.on("exit", (code, signal) => done({ code, signal })),
  );
  const node: NodeProcess = {
    pid: child.pid ?? 0,
    dir,
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
    // HOME reaches everything that works for the node.
    below: () => processesOf(dir).filter((pid) => pid !== child.pid),
  };
  started.push({ process: node, child });
  return node;
}
