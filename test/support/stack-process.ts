// The real command in a process of its own, as a user's terminal would start it.

import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../edge/local/state.ts";
import { PROVIDER_SETTINGS } from "../../edge/markets/ingest/providers.ts";

export interface StackProcess {
  child: ChildProcess;
  /** Everything it printed so far. */
  output(): string;
  /** Resolves when the output matches; rejects when the process ends or hangs. */
  printed(pattern: RegExp): Promise<void>;
  ended: Promise<number | null>;
}

/** Longer than a stack takes to start or to end, also on cores that are shared. */
const HANGS_MS = 280_000;

/** Starts `npm start`'s command on a state folder and ports of the test's own. */
export function startStackProcess(
  stateDir: string,
  ports: readonly number[],
  args: readonly string[] = [],
  more: Readonly<Record<string, string>> = {},
): StackProcess {
  const [markets, operator, vision] = ports.map(String);
  const flags = ["--markets-port", markets, "--console-port", operator, "--vision-port", vision];
  const command = [
    join(ROOT, "edge/local/bootstrap.mjs"),
    "start",
    ...(flags as string[]),
    ...args,
  ];
  const inherited = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !(name in PROVIDER_SETTINGS)),
  );
  const child = spawn(process.execPath, command, {
    env: { ...inherited, ...more, VANTAGE_STATE: stateDir },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (chunk: Buffer) => {
      text += chunk.toString();
    });
  }
  const ended = new Promise<number | null>((done) => child.on("exit", (code) => done(code)));
  return {
    child,
    ended,
    output: () => text,
    printed: (pattern) =>
      until(
        () => pattern.test(text),
        child,
        () => text,
      ),
  };
}

/** Polls a condition while the process lives, until it hangs. */
async function until(holds: () => boolean, child: ChildProcess, text: () => string) {
  for (let waited = 0; !holds(); waited += 50) {
    if (child.exitCode !== null || waited > HANGS_MS)
      throw new Error(`not printed in time:\n${text()}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export interface Process {
  pid: number;
  command: string;
}

/** Every process that carries a state folder in its environment or command line. */
export function processesOf(stateDir: string): Process[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const command = readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " ").trim();
        const environment = readFileSync(`/proc/${name}/environ`, "utf8");
        const ours =
          environment.includes(`VANTAGE_STATE=${stateDir}\0`) || command.includes(stateDir);
        // A process that ended but was not waited for has no command line.
        return ours && command ? [{ pid: Number(name), command }] : [];
      } catch {
        return [];
      }
    });
}

/** Resolves when nothing of a state folder's stack runs any more. */
export async function allGone(stateDir: string): Promise<void> {
  for (let waited = 0; processesOf(stateDir).length > 0; waited += 50) {
    if (waited > HANGS_MS) throw new Error(`still there: ${JSON.stringify(processesOf(stateDir))}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
