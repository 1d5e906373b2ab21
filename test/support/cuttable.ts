// A way to a server on the loopback that a test can cut, or hold, and mend. Cut: what is under way
// breaks, and nothing new gets through. Held: connections are taken, and nothing is ever answered.

import type { AddressInfo } from "node:net";
import { connect, createServer, type Socket } from "node:net";

export interface Cuttable {
  port: number;
  cut(): void;
  /** Nothing gets through; what clients that are still there sent does once it is mended. */
  hold(): void;
  mend(): void;
  close(): Promise<void>;
}

/** `heard` is told what clients send, as it comes; `answered` what they are sent, before it is. */
export async function cuttable(
  port: number,
  heard: (bytes: Buffer) => void = () => {},
  answered: (bytes: Buffer) => void = () => {},
): Promise<Cuttable> {
  const sockets = new Set<Socket>();
  let isCut = false;
  let isHeld = false;
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => socket.destroy()).on("close", () => sockets.delete(socket));
    return socket;
  };
  const server = createServer((incoming) => {
    if (isCut) {
      incoming.destroy();
      return;
    }
    const outgoing = keep(connect(port, "127.0.0.1")).on("data", answered);
    keep(incoming).on("data", heard).pipe(outgoing).pipe(incoming);
    if (isHeld) for (const socket of [incoming, outgoing]) socket.pause();
    // Half of a pair is of no use.
    incoming.on("close", () => outgoing.destroy());
    outgoing.on("close", () => incoming.destroy());
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    port: (server.address() as AddressInfo).port,
    cut: () => {
      isCut = true;
      for (const socket of sockets) socket.destroy();
    },
    hold: () => {
      isHeld = true;
      for (const socket of sockets) socket.pause();
    },
    mend: () => {
      isCut = false;
      isHeld = false;
      for (const socket of sockets) socket.resume();
    },
    close: () =>
      new Promise((done) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => done());
      }),
  };
}
