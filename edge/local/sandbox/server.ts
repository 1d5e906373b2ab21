// The sandbox upstream: the providers' wire formats on a loopback port, for stacks without
// credentials.

import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { type Clock, systemClock } from "../../../shared/time.ts";
import type { SandboxAnswer, SandboxRequest } from "./answers.ts";
import { answerEia } from "./eia.ts";

export interface Sandbox {
  /** Base URL, without a slash at its end. */
  url: string;
  close(): Promise<void>;
}

export interface SandboxOptions {
  clock?: Clock;
  /** A fault on demand: what to answer instead, or undefined to answer truly. */
  fault?: (
    url: URL,
    request: SandboxRequest,
  ) => SandboxAnswer | undefined | Promise<SandboxAnswer | undefined>;
}

/** Starts the sandbox on a free loopback port. */
export async function startSandbox({
  clock = systemClock,
  fault,
}: SandboxOptions = {}): Promise<Sandbox> {
  const server = createServer(async (incoming, response) => {
    const request = await received(incoming);
    const { status, body, headers } =
      (await fault?.(request.url, request)) ?? answer(request, clock());
    const isText = typeof body === "string" || body instanceof Uint8Array;
    response.writeHead(status, { "Content-Type": "application/json", ...headers });
    response.end(isText ? body : JSON.stringify(body));
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

async function received(incoming: IncomingMessage): Promise<SandboxRequest> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  return {
    method: incoming.method ?? "GET",
    url: new URL(incoming.url ?? "/", "http://sandbox"),
    headers: incoming.headers as SandboxRequest["headers"],
    body: Buffer.concat(chunks).toString(),
  };
}

/** Answers by the provider that the path begins with. */
function answer({ url }: SandboxRequest, now: number): SandboxAnswer {
  if (url.pathname.startsWith("/eia/")) return answerEia(url, now);
  return { status: 404, body: { error: "Not found." } };
}
