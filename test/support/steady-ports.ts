// Ports of this machine for servers that are stopped and come back to them.

import { readFileSync } from "node:fs";
import { freePorts, listenOnce } from "../../edge/local/ports.ts";

/** Below are those of servers that people know. */
const PORT_MIN = 10_000;

/**
 * So many loopback ports, none twice, that nobody listens on, and that the system gives to nobody
 * who asks for any: no connection of another test takes one while its server is stopped.
 */
export async function steadyPorts(count: number): Promise<number[]> {
  const range = readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8");
  const [givenMin = 0] = range.split(/\s+/).map(Number);
  if (givenMin < 2 * PORT_MIN) return freePorts(count);
  const ports = new Set<number>();
  while (ports.size < count) {
    const port = PORT_MIN + Math.floor(Math.random() * (givenMin - PORT_MIN));
    await listenOnce("127.0.0.1", port).then(
      () => ports.add(port),
      () => {},
    );
  }
  return [...ports];
}
