// What the isolates of workerd hold once nothing unused is left: V8 lets rubbish lie while memory
// is there, so only after a collection does memory tell whether something is kept for ever.

import { freePorts } from "../../edge/local/ports.ts";

/** An isolate as workerd's inspector lists it. */
interface Target {
  id: string;
  webSocketDebuggerUrl: string;
}

/** An address for workerd's inspector, as `edge/local/workerd.sh` takes it. */
export async function inspectorAddress(): Promise<string> {
  const [port] = await freePorts(1);
  return `127.0.0.1:${port}`;
}

/** Collects every isolate of a workerd; MB of live objects in each, by its name. */
export async function collectHeaps(address: string): Promise<Record<string, number>> {
  const targets = (await (await fetch(`http://${address}/json`)).json()) as Target[];
  const heaps: Record<string, number> = {};
  for (const { id, webSocketDebuggerUrl } of targets) {
    const bytes = await liveBytes(webSocketDebuggerUrl);
    heaps[id] = Math.round(bytes / 100_000) / 10;
  }
  return heaps;
}

async function liveBytes(url: string): Promise<number> {
  const socket = new WebSocket(url);
  const opened = Promise.withResolvers<void>();
  const answers = new Map<number, (result: { usedSize: number }) => void>();
  const failed = () => opened.reject(new Error(`no inspector at ${url}`));
  socket.addEventListener("open", () => opened.resolve());
  socket.addEventListener("error", failed);
  socket.addEventListener("message", ({ data }) => {
    const { id, result } = JSON.parse(String(data));
    answers.get(id)?.(result);
  });
  const call = (method: string) =>
    new Promise<{ usedSize: number }>((resolve) => {
      const id = answers.size + 1;
      answers.set(id, resolve);
      socket.send(JSON.stringify({ id, method }));
    });
  await opened.promise;
  await call("HeapProfiler.enable");
  await call("HeapProfiler.collectGarbage");
  const { usedSize } = await call("Runtime.getHeapUsage");
  socket.close();
  return usedSize;
}
