// Ports of this machine.

import net from "node:net";

/** A loopback port nobody listens on at this moment. */
export const freePort = () => listenOnce("127.0.0.1", 0);

/** Listens for a moment; rejects with `EADDRINUSE` when somebody else does. Returns the port. */
export function listenOnce(host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = net.createServer().once("error", reject);
    server.listen(port, host, () => {
      const { port: taken } = server.address() as net.AddressInfo;
      server.close(() => resolve(taken));
    });
  });
}
