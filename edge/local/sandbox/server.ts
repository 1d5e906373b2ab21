// The sandbox upstream: the providers' wire formats on a loopback port, for stacks without
// credentials. Faults on demand: `PUT /faults/eia` with `{"fault": "storm", "requests": 20}` breaks
// a provider's next requests, `{"fault": null}` heals it.

import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { z } from "zod";
import { type Clock, systemClock } from "../../../shared/time.ts";
import type { Provider } from "../../markets/ingest/providers.ts";
import {
  FAULTS,
  type Fault,
  type SandboxAnswer,
  type SandboxProvider,
  type SandboxRequest,
} from "./answers.ts";
import { eiaSandbox } from "./eia.ts";
import { ercotSandbox } from "./ercot.ts";
import { noaaSandbox } from "./noaa.ts";
import { twelveDataSandbox } from "./twelve-data.ts";

/** A running sandbox. */
export interface Sandbox {
  /** Base URL, without a slash at its end. */
  url: string;
  /** Breaks the next requests to a provider; null heals it. */
  break(provider: Provider, fault: Fault | null, requests?: number): void;
  close(): Promise<void>;
}

/** What a test changes about the sandbox. */
export interface SandboxOptions {
  clock?: Clock;
  /** What to answer instead, or undefined to answer truly. */
  fault?: (
    url: URL,
    request: SandboxRequest,
  ) => SandboxAnswer | undefined | Promise<SandboxAnswer | undefined>;
}

const PROVIDERS: Readonly<Record<Provider, SandboxProvider>> = {
  eia: eiaSandbox,
  ercot: ercotSandbox,
  noaa: noaaSandbox,
  twelve_data: twelveDataSandbox,
};
const isProvider = (name: string): name is Provider => Object.hasOwn(PROVIDERS, name);
const SILENCE_MS = 30_000;
const FaultOrder = z.object({
  fault: z.enum(FAULTS).nullable(),
  requests: z.int().default(1_000_000),
});

/** Starts the sandbox on a free loopback port. */
export async function startSandbox({
  clock = systemClock,
  fault,
}: SandboxOptions = {}): Promise<Sandbox> {
  const faults = openFaults();
  const answer = async (request: SandboxRequest): Promise<SandboxAnswer> => {
    const [, first = ""] = request.url.pathname.split("/");
    if (!isProvider(first)) return faults.control(request);
    const truth =
      (await fault?.(request.url, request)) ?? PROVIDERS[first].answer(request, clock());
    return faults.spoil(first, truth);
  };
  const server = createServer(async (incoming, response) => {
    const { status, body, headers } = await answer(await readRequest(incoming));
    const isText = typeof body === "string" || body instanceof Uint8Array;
    response.writeHead(status, { "Content-Type": "application/json", ...headers });
    response.end(isText ? body : JSON.stringify(body));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(0, "127.0.0.1", resolve);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    break: faults.set,
    close: () =>
      new Promise((resolve) => {
        faults.release();
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function readRequest(incoming: IncomingMessage): Promise<SandboxRequest> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  return {
    method: incoming.method ?? "GET",
    url: new URL(incoming.url ?? "/", "http://sandbox"),
    headers: incoming.headers as SandboxRequest["headers"],
    body: Buffer.concat(chunks).toString(),
  };
}

/** The faults on demand, by provider. */
function openFaults() {
  const orders = new Map<Provider, { fault: Fault; requests: number }>();
  const silences = new Set<() => void>();
  const set = (provider: Provider, fault: Fault | null, requests = 1_000_000) => {
    if (fault === null) orders.delete(provider);
    else orders.set(provider, { fault, requests });
  };
  return {
    set,
    release: () => {
      for (const end of silences) end();
    },
    control: ({ method, url, body }: SandboxRequest): SandboxAnswer => {
      const provider = /^\/faults\/(\w+)$/.exec(url.pathname)?.[1] ?? "";
      if (!isProvider(provider) || method !== "PUT")
        return { status: 404, body: { error: "Not found." } };
      const order = FaultOrder.safeParse(JSON.parse(body));
      if (!order.success) return { status: 422, body: { error: z.prettifyError(order.error) } };
      set(provider, order.data.fault, order.data.requests);
      return { status: 200, body: {} };
    },
    spoil: async (provider: Provider, truth: SandboxAnswer): Promise<SandboxAnswer> => {
      const due = orders.get(provider);
      if (!due || due.requests <= 0) return truth;
      due.requests--;
      if (due.fault === "silent") {
        await new Promise<void>((end) => {
          silences.add(end);
          setTimeout(end, SILENCE_MS).unref();
        });
      }
      return spoil(PROVIDERS[provider], due.fault, truth);
    },
  };
}

function spoil(provider: SandboxProvider, fault: Fault, truth: SandboxAnswer): SandboxAnswer {
  if (fault === "down") return { status: 503, body: "Service Unavailable" };
  if (fault === "storm") {
    return { status: 429, body: "Too Many Requests", headers: { "Retry-After": "0" } };
  }
  if (fault === "refused") return provider.refusal ?? truth;
  if (fault === "drifted") return provider.drifted(truth);
  if (fault === "silent") return truth;
  const { body } = truth;
  const whole =
    body instanceof Uint8Array || typeof body === "string" ? body : JSON.stringify(body);
  return { ...truth, body: whole.slice(0, whole.length >> 1) };
}
