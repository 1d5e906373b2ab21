// Durable Objects called by their methods from a test. A small Worker makes the calls, as a service
// would: a stub held on Node's side keeps an object in memory and its closed sockets open.

import type { Parts } from "../../edge/vision/base/parts.ts";

const NAME = "caller";
const SCRIPT = `export default {
  async fetch(request, env) {
    const { binding, name, method, args } = await request.json();
    const stub = env[binding].get(env[binding].idFromName(name));
    try {
      return Response.json({ value: (await stub[method](...args)) ?? null });
    } catch (thrown) {
      return Response.json({ thrown: String(thrown) });
    }
  },
};`;

/** The Worker, to start beside the vision service. */
export const callerWorker = {
  name: NAME,
  modules: true,
  script: SCRIPT,
  compatibilityDate: "2026-10-01",
  durableObjects: {
    PROGRESS: { className: "ProgressTopic", scriptName: "vision" },
    DOORBELL: { className: "Doorbell", scriptName: "vision" },
    METERS: { className: "EndpointMeter", scriptName: "vision" },
    COUNTERS: { className: "Counters", scriptName: "vision" },
  },
};

/** The bindings that tests call. */
export type TestedBinding = "PROGRESS" | "DOORBELL" | "METERS" | "COUNTERS";

type Ask = (name: string, body: unknown) => Promise<unknown>;

/** What the rooms of the vision service take for a namespace, calling through that Worker. */
export function objectsOf(ask: Ask, binding: TestedBinding): Parts["topics"] {
  const call = async (name: string, method: string, args: unknown[]) => {
    const reply = (await ask(NAME, { binding, name, method, args })) as {
      value?: unknown;
      thrown?: string;
    };
    if (reply.thrown !== undefined) throw new Error(reply.thrown);
    return reply.value;
  };
  const stubOf = (name: string) =>
    new Proxy(
      {},
      {
        get:
          (_, method) =>
          (...args: unknown[]) =>
            call(name, String(method), args),
      },
    );
  // A namespace has more than the two methods that the rooms call.
  return { idFromName: (name: string) => name, get: stubOf } as unknown as Parts["topics"];
}
