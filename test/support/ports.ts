// A port for a program that cannot be given any: nobody is given it meanwhile.

import { listenOnce } from "../../edge/local/ports.ts";

/** Below those that a kernel gives to whoever asks for any port, as other tests do. */
const FROM = 20_000;
const COUNT = 12_000;

/** A loopback port that nobody listens on. */
export async function quietPort(): Promise<number> {
  for (;;) {
    const port = FROM + Math.floor(Math.random() * COUNT);
    const isFree = listenOnce("127.0.0.1", port).then(
      () => true,
      () => false,
    );
    if (await isFree) return port;
  }
}
