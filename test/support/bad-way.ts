// A way to a server over HTTP that does what bad ones do, by dice: requests never arrive, or arrive
// twice, or late and so in another order; answers are lost; connections are cut in the middle.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as pause } from "node:timers/promises";

/** What may happen to a request, and how often it did. */
export interface Mishaps {
  dropped: number;
  doubled: number;
  /** Came a second time, after a later one. */
  reordered: number;
  delayed: number;
  unanswered: number;
  cut: number;
}

export interface BadWay {
  url: string;
  counts: Mishaps;
  /** From now on everything arrives. */
  mend(): void;
  close(): Promise<void>;
}

/** A late request is later by up to this. */
const DELAY_MS = 120;

/** Opens a way to a server; `chance` gives numbers in [0, 1). */
export async function badWay(to: string, chance: () => number): Promise<BadWay> {
  const counts: Mishaps = {
    dropped: 0,
    doubled: 0,
    reordered: 0,
    delayed: 0,
    unanswered: 0,
    cut: 0,
  };
  /** Requests that come a second time, once a later one was answered. */
  const copies: (() => Promise<unknown>)[] = [];
  let isMended = false;
  const happens = (mishap: keyof Mishaps, oneIn: number) => {
    if (isMended || chance() * oneIn >= 1) return false;
    counts[mishap] += 1;
    return true;
  };
  const forward = async (request: IncomingMessage, body: Buffer) => {
    const { authorization, "content-type": type, "content-encoding": encoding } = request.headers;
    const headers = new Headers();
    if (authorization) headers.set("Authorization", authorization);
    if (type) headers.set("Content-Type", type);
    if (encoding) headers.set("Content-Encoding", encoding);
    const answer = await fetch(to + request.url, {
      method: request.method ?? "GET",
      headers,
      body: body.length > 0 ? new Uint8Array(body) : null,
      redirect: "manual",
    });
    const location = answer.headers.get("Location");
    return { status: answer.status, text: await answer.text(), location };
  };
  const isCopied = () => !isMended && chance() * 5 < 1;
  const pass = async (request: IncomingMessage, response: ServerResponse) => {
    const body = Buffer.concat(await request.toArray());
    if (happens("dropped", 8)) return request.socket.destroy();
    if (happens("delayed", 4)) await pause(chance() * DELAY_MS);
    const [answer] = await Promise.all([
      forward(request, body),
      ...(happens("doubled", 5) ? [forward(request, body)] : []),
    ]);
    for (const comeAgain of copies.splice(0)) {
      await comeAgain();
      counts.reordered += 1;
    }
    if (isCopied()) copies.push(() => forward(request, body));
    if (happens("unanswered", 8)) return request.socket.destroy();
    response.writeHead(answer.status, {
      "Content-Type": "application/json",
      "Content-Length": Buffer.byteLength(answer.text),
      ...(answer.location === null ? {} : { Location: answer.location }),
    });
    if (happens("cut", 10)) {
      response.write(answer.text.slice(0, answer.text.length / 2));
      return request.socket.destroy();
    }
    return response.end(answer.text);
  };
  const server = createServer((request, response) => {
    pass(request, response).catch(() => request.socket.destroy());
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    counts,
    mend: () => {
      isMended = true;
    },
    close: () =>
      new Promise((done) => {
        server.close(() => done());
        server.closeAllConnections();
      }),
  };
}
