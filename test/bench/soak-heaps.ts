// What processes hold once nothing unused is left: V8 lets rubbish lie while memory is there, so
// only after a collection does memory tell whether something is kept for ever. Isolates of workerd
// are asked by its inspector, processes of Node by theirs, which a signal opens for a moment.

import { freePorts } from "../../edge/local/ports.ts";
import { systemClock } from "../../shared/time.ts";

/** What an inspector lists: an isolate, or a process of Node. */
interface Target {
  id: string;
  webSocketDebuggerUrl: string;
}

/** An address for workerd's inspector, as `edge/local/workerd.sh` takes it. */
export async function inspectorAddress(): Promise<string> {
  const [port] = await freePorts(1);
  return `127.0.0.1:${port}`;
}

/** An isolate that has run nothing yet does not answer. */
const ANSWER_MS_MAX = 10_000;
/** Where Node opens its inspector when it gets the signal for it. */
const NODE_INSPECTOR = "127.0.0.1:9229";
const POLL_MS = 50;

const megabytes = (bytes: number) => Math.round(bytes / 100_000) / 10;

async function targetsOf(address: string): Promise<Target[]> {
  return (await (await fetch(`http://${address}/json`)).json()) as Target[];
}

/** Collects every isolate of a workerd that runs; MB of live objects in each, by its name. */
export async function collectHeaps(address: string): Promise<Record<string, number>> {
  const heaps: Record<string, number> = {};
  for (const { id, webSocketDebuggerUrl } of await targetsOf(address)) {
    const bytes = await inspected(webSocketDebuggerUrl, async (call) => {
      await collect(call);
      return (await call("Runtime.getHeapUsage")).usedSize as number;
    });
    if (bytes !== null) heaps[id] = megabytes(bytes);
  }
  return heaps;
}

/** MB that a process of Node holds after a collection, as `process.memoryUsage` names them. */
export type NodeMemory = Record<"rss" | "heapUsed" | "external" | "arrayBuffers", number>;

/** Collects a process of Node of this machine; null where it does not answer. */
export async function collectProcess(pid: number): Promise<NodeMemory | null> {
  process.kill(pid, "SIGUSR1");
  const target = await firstTarget();
  if (!target) return null;
  return inspected(target.webSocketDebuggerUrl, async (call) => {
    await collect(call);
    const expression = "JSON.stringify(process.memoryUsage())";
    const { result } = await call("Runtime.evaluate", { expression });
    // The port is the same one for every process: this one lets go of it.
    void call("Runtime.evaluate", { expression: "process._debugEnd()" });
    const { rss, heapUsed, external, arrayBuffers } = JSON.parse(
      (result as { value: string }).value,
    );
    return {
      rss: megabytes(rss),
      heapUsed: megabytes(heapUsed),
      external: megabytes(external),
      arrayBuffers: megabytes(arrayBuffers),
    };
  });
}

async function firstTarget(): Promise<Target | null> {
  const until = systemClock() + ANSWER_MS_MAX;
  while (systemClock() < until) {
    const [target] = await targetsOf(NODE_INSPECTOR).catch(() => []);
    if (target) return target;
    await new Promise<void>((done) => setTimeout(done, POLL_MS));
  }
  return null;
}

type Call = (method: string, params?: object) => Promise<Record<string, unknown>>;

async function collect(call: Call): Promise<void> {
  await call("HeapProfiler.enable");
  await call("HeapProfiler.collectGarbage");
}

/** What comes of a talk with an inspector; null where it falls silent. */
async function inspected<Result>(
  url: string,
  talk: (call: Call) => Promise<Result>,
): Promise<Result | null> {
  const socket = new WebSocket(url);
  const silence = new Promise<null>((resolve) => setTimeout(resolve, ANSWER_MS_MAX, null).unref());
  const opened = Promise.withResolvers<void>();
  const answers = new Map<number, (result: Record<string, unknown>) => void>();
  socket.addEventListener("open", () => opened.resolve());
  socket.addEventListener("error", () => opened.reject(new Error(`no inspector at ${url}`)));
  socket.addEventListener("message", ({ data }) => {
    const { id, result } = JSON.parse(String(data));
    answers.get(id)?.(result);
  });
  const call: Call = (method, params = {}) =>
    new Promise((resolve) => {
      const id = answers.size + 1;
      answers.set(id, resolve);
      socket.send(JSON.stringify({ id, method, params }));
    });
  try {
    return await Promise.race([opened.promise.then(() => talk(call)), silence]);
  } finally {
    socket.close();
  }
}
