// Ports of this machine.

import net from "node:net";

/**
 * So many loopback ports, none twice, that nobody listens on at this moment. Another program may
 * take one before it is used: whoever listens tries again then.
 */
export async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(Array.from({ length: count }, () => listen("127.0.0.1", 0)));
  return Promise.all(servers.map(close));
}

/** Listens for a moment; rejects with `EADDRINUSE` when somebody else does. */
export async function listenOnce(host: string, port: number): Promise<void> {
  await close(await listen(host, port));
}

function listen(host: string, port: number): Promise<net.Server> {
  return new Promise((resolve, reject) => {
    const server = net.createServer().once("error", reject);
    server.listen(port, host, () => resolve(server));
  });
}

function close(server: net.Server): Promise<number> {
  const { port } = server.address() as net.AddressInfo;
  return new Promise((resolve) => server.close(() => resolve(port)));
}
