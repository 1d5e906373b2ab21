// A way to a server on the loopback as if it were elsewhere: what clients send arrives later.

import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** Opens it: a request that is sent at once takes `milliseconds` longer. */
export async function farServer(port: number, milliseconds: number) {
  const sockets = new Set<Socket>();
  const keep = (socket: Socket) => {
    sockets.add(socket.setNoDelay());
    socket.on("error", () => socket.destroy()).on("close", () => sockets.delete(socket));
    return socket;
  };
  const server = createServer((incoming) => {
    const outgoing = keep(connect(port, "127.0.0.1"));
    keep(incoming).on("data", (bytes) => setTimeout(() => outgoing.write(bytes), milliseconds));
    outgoing.pipe(incoming);
    // Half of a pair is of no use.
    incoming.on("close", () => outgoing.destroy());
    outgoing.on("close", () => incoming.destroy());
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    port: (server.address() as AddressInfo).port,
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
