// Real upstream recordings, where this machine has them, and an HTTP server that answers with
// whatever a test gives it. Recordings lie outside the repository; tests that need them skip loudly
// without them.

import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join, resolve } from "node:path";
import { onTestFinished } from "vitest";

const FOLDER = resolve(import.meta.dirname, "../../../shared/data/markets");

/** A recording's text; check `hasRecordings` first. */
export const recording = (path: string) => readFileSync(join(FOLDER, path), "utf8");

/** A recording's bytes. */
export const readRecording = (path: string) => readFileSync(join(FOLDER, path));

/** Whether a folder of recordings is here; says so when it is not. */
export function hasRecordings(folder: string): boolean {
  const present = existsSync(join(FOLDER, folder));
  if (!present) console.warn(`SKIPPED: no recordings at ${join(FOLDER, folder)}`);
  return present;
}

export interface Reply {
  status?: number;
  headers?: Record<string, string>;
  /** A string is sent as it is. */
  body: unknown;
  /** Close the connection instead of answering. */
  drop?: boolean;
}

export interface Upstream {
  /** Base URL, ending in a slash. */
  url: string;
  /** Requests so far. */
  requests: URL[];
}

/** A provider for one test: every request is answered by `reply`. */
export async function startUpstream(reply: (url: URL, count: number) => Reply): Promise<Upstream> {
  const requests: URL[] = [];
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? "/", "http://upstream");
    requests.push(url);
    const { status = 200, headers = {}, body, drop } = reply(url, requests.length);
    if (drop) return void request.socket.destroy();
    response.writeHead(status, { "Content-Type": "application/json", ...headers });
    response.end(typeof body === "string" ? body : JSON.stringify(body));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, requests };
}

export interface EiaRecord {
  period: string;
  respondent: string;
  type: string;
  value: unknown;
  "value-units": string;
}

/** One page in EIA's wire format, cut from all rows by the request's offset and length. */
export function eiaPage(all: readonly object[], url: URL): object {
  const offset = Number(url.searchParams.get("offset"));
  const data = all.slice(offset, offset + Number(url.searchParams.get("length")));
  const params = Object.fromEntries(url.searchParams);
  return {
    response: { total: String(all.length), frequency: "hourly", data },
    request: { command: url.pathname, params },
    apiVersion: "2.1.12",
  };
}
