// A way to a server on the loopback that a test can cut and mend: what is under way breaks, and
// nothing new gets through.

import type { AddressInfo } from "node:net";
import { connect, createServer, type Socket } from "node:net";

export interface Cuttable {
  port: number;
  cut(): void;
  mend(): void;
  close(): Promise<void>;
}

/** `heard` is told what clients send, as it comes. */
export async function cuttable(
  port: number,
  heard: (bytes: Buffer) => void = () => {},
): Promise<Cuttable> {
  const sockets = new Set<Socket>();
  let isCut = false;
  const hold = (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => socket.destroy()).on("close", () => sockets.delete(socket));
    return socket;
  };
  const server = createServer((incoming) => {
    if (isCut) {
      incoming.destroy();
      return;
    }
    const outgoing = hold(connect(port, "127.0.0.1"));
    hold(incoming).on("data", heard).pipe(outgoing).pipe(incoming);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    port: (server.address() as AddressInfo).port,
    cut: () => {
      isCut = true;
      for (const socket of sockets) socket.destroy();
    },
    mend: () => {
      isCut = false;
    },
    close: () =>
      new Promise((done) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => done());
      }),
  };
}
