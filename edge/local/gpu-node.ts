// The embedded stack's own GPU node: the program of `npm run gpu-node` as a child process, started
// again when it dies, drained when the stack stops, and gone when the stack is killed.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { keepRunning } from "./restarts.ts";
import { ROOT } from "./state.ts";

/** For the node's runtime, as its own command has them: see `gpu-node/node/slot.ts`. */
const RUNTIME_ARGUMENTS = ["--max-semi-space-size=2", "--heap-growing-percent=300"];

/** How the node is run. */
interface GpuNodeOptions {
  /** Address of the vision service. */
  url: string;
  /** The node's folder: who it is, and its cache. */
  dir: string;
  /** Gives a one-time code; asked only while the service does not know the node. */
  code: () => Promise<string>;
  name?: string;
  slots?: number;
  modelsDir?: string;
  /** How long its tasks may go on once the stack stops. Default 3. */
  drainSeconds?: number;
  /** What the program inherits; the node's own keys are set here. */
  environment: Readonly<Record<string, string | undefined>>;
  /** The program; tests have one with a segmenter of their own. */
  entry?: string;
  /** Each line of its log. */
  onLine: (line: string) => void;
}

/** A node that is kept running. */
export interface GpuNode {
  /** Resolves when it works for the first time. */
  ready: Promise<void>;
  pid(): number | null;
  /** Drains and ends it; nothing of it runs any more afterwards. */
  stop(): Promise<void>;
}

/** The exit code by which the node says that the service does not know its token. */
const EXIT_REFUSED = 3;
/** After the drain, so long for the node's last reports before it is killed. */
const STOP_MS_EXTRA = 12_000;

const hasSetpriv = spawnSync("setpriv", ["--version"]).status === 0;

/** Starts the node and keeps it running until it is stopped. */
export function startGpuNode(options: GpuNodeOptions): GpuNode {
  const { drainSeconds = 3 } = options;
  mkdirSync(options.dir, { recursive: true, mode: 0o700 });
  const stopping = new AbortController();
  let child: ChildProcess | null = null;
  let started = () => {};
  const ready = new Promise<void>((resolve) => {
    started = resolve;
  });

  let refused = false;
  const live = async () => {
    refused = await once(refused).catch((thrown: unknown) => {
      options.onLine(line("gpu_node_not_started", { error: String(thrown) }));
      return refused;
    });
  };

  /** One life of the program; returns whether the service refused it. */
  async function once(refused: boolean): Promise<boolean> {
    const known = !refused && isKnownAt(options);
    const code = known ? undefined : await options.code();
    if (stopping.signal.aborted) return false;
    const spawned = launch(options, drainSeconds, code);
    child = spawned;
    for (const stream of [spawned.stdout, spawned.stderr]) {
      if (!stream) continue;
      createInterface({ input: stream }).on("line", (text) => {
        if (text.includes('"event":"node_started"')) started();
        options.onLine(text);
      });
    }
    const status = await new Promise<number | null>((resolve) => {
      spawned.once("error", () => resolve(null));
      // Not at its exit: its children write to the same pipe, and are gone once that is closed.
      spawned.once("close", resolve);
    });
    child = null;
    return status === EXIT_REFUSED;
  }

  const kept = keepRunning(live, {
    signal: stopping.signal,
    onDeath: ({ deaths, pauseMs }) =>
      options.onLine(line("gpu_node_restarts", { deaths, pause_ms: pauseMs })),
  });
  return {
    ready,
    pid: () => child?.pid ?? null,
    stop: async () => {
      stopping.abort();
      child?.kill("SIGTERM");
      const timer = setTimeout(() => child?.kill("SIGKILL"), drainSeconds * 1_000 + STOP_MS_EXTRA);
      await kept;
      clearTimeout(timer);
    },
  };
}

/** Whether the node's folder holds an identity at this service, or at the one of another start. */
function isKnownAt({ dir, url }: GpuNodeOptions): boolean {
  try {
    const kept: unknown = JSON.parse(readFileSync(join(dir, "identity.json"), "utf8"));
    return (kept as { url?: string }).url === url;
  } catch {
    return false;
  }
}

function launch(
  options: GpuNodeOptions,
  drainSeconds: number,
  code: string | undefined,
): ChildProcess {
  const { name = "embedded", slots = 1, modelsDir } = options;
  const entry = options.entry ?? join(ROOT, "gpu-node/main.ts");
  const program = [process.execPath, ...RUNTIME_ARGUMENTS, entry];
  // A killed stack takes the node along, and the node's children go with the node.
  const [command = "", ...args] = hasSetpriv
    ? ["setpriv", "--pdeathsig=KILL", ...program]
    : program;
  return spawn(command, args, {
    cwd: ROOT,
    // Ctrl-C in the terminal reaches the stack alone, which then stops its parts in order.
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      ...options.environment,
      VANTAGE_URL: options.url,
      VANTAGE_NODE_DIR: options.dir,
      VANTAGE_NODE_NAME: name,
      VANTAGE_NODE_SLOTS: String(slots),
      VANTAGE_NODE_DRAIN_SECONDS: String(drainSeconds),
      VANTAGE_NODE_TOKEN: "",
      VANTAGE_NODE_CODE: code ?? "",
      ...(modelsDir ? { VANTAGE_MODELS: modelsDir } : {}),
    },
  });
}

const line = (event: string, fields: Record<string, unknown>) =>
  JSON.stringify({ level: "warning", service: "stack", event, ...fields });
