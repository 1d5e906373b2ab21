// The outbox's ports in a browser, but for the request itself: timers, a lock and a channel among
// the tabs of one account, and storage.

import { uuidSource } from "./identity.ts";
import { indexedStore } from "./indexed-store.ts";
import type { OutboxPorts, TabMessage } from "./outbox.ts";

/** Ports of a job's outbox. `account` keeps people who share a browser apart. */
export function browserPorts(account: string, job: string): Omit<OutboxPorts, "send"> {
  const now = () => performance.timeOrigin + performance.now();
  const random = () => (crypto.getRandomValues(new Uint32Array(1))[0] as number) / 2 ** 32;
  return {
    store: indexedStore(`vantage-studio:${account}`),
    now,
    random,
    newId: uuidSource(now, random),
    after(milliseconds, call) {
      const timer = setTimeout(call, milliseconds);
      return () => clearTimeout(timer);
    },
    lock(name, held, signal) {
      const request = navigator.locks.request(`${account}:${name}`, { signal }, held);
      // Whoever leaves before it is the turn waits no more.
      request.catch(() => {});
    },
    channel: tabChannel(`vantage-studio:${account}:${job}`),
  };
}

/** A channel to the other tabs, opened with its first listener and closed with the last. */
function tabChannel(name: string): OutboxPorts["channel"] {
  let channel: BroadcastChannel | undefined;
  let listeners = 0;
  return {
    post: (message) => channel?.postMessage(message),
    listen(hear) {
      channel ??= new BroadcastChannel(name);
      listeners += 1;
      const own = channel;
      const listener = ({ data }: MessageEvent<TabMessage>) => hear(data);
      own.addEventListener("message", listener);
      return () => {
        own.removeEventListener("message", listener);
        listeners -= 1;
        if (listeners > 0) return;
        own.close();
        channel = undefined;
      };
    },
  };
}
