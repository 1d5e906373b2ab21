// The sandbox upstream: the providers' wire formats on a loopback port, for stacks without
// credentials.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type Clock, systemClock } from "../../../shared/time.ts";
import { answerEia, type SandboxAnswer } from "./eia.ts";

export interface Sandbox {
  /** Base URL, without a slash at its end. */
  url: string;
  close(): Promise<void>;
}

export interface SandboxOptions {
  clock?: Clock;
  /** A fault on demand: what to answer instead, or undefined to answer truly. */
  fault?: (url: URL) => SandboxAnswer | undefined | Promise<SandboxAnswer | undefined>;
}

/** Starts the sandbox on a free loopback port. */
export async function startSandbox({
  clock = systemClock,
  fault,
}: SandboxOptions = {}): Promise<Sandbox> {
  const server = createServer(async (request, response) => {
    const url = new URL(request.url ?? "/", "http://sandbox");
    const { status, body } = (await fault?.(url)) ?? answer(url, clock());
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(typeof body === "string" ? body : JSON.stringify(body));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(0, "127.0.0.1", resolve);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

const answer = (url: URL, now: number): SandboxAnswer =>
  url.pathname.startsWith("/eia/")
    ? answerEia(url, now)
    : { status: 404, body: { error: "Not found." } };
