// Requests to addresses that users name. Goal: nobody reaches a private network through us, by a
// name, a redirect or otherwise; and no answer is too long, too late or too large.

import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, describe, expect, it } from "vitest";
import { askOutside, type Outbound, type OutboundRequest } from "../../edge/http/outbound.ts";

const closing: (() => void)[] = [];
afterAll(() => {
  for (const close of closing) close();
});

/** A server on the loopback, and the requests that reached it. */
async function server(answer: RequestListener) {
  const heard: { url: string; headers: NodeJS.Dict<string | string[]> }[] = [];
  const own = createServer((request, response) => {
    heard.push({ url: request.url ?? "", headers: request.headers });
    answer(request, response);
  });
  await new Promise<void>((done) => own.listen(0, "127.0.0.1", done));
  closing.push(() => {
    own.close();
    own.closeAllConnections();
  });
  const { port } = own.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, host: `127.0.0.1:${port}`, heard };
}

const allowing = (...hosts: string[]): Outbound => ({
  hosts,
  resolve: () => Promise.reject(new Error("nothing is resolved")),
});
const request = (url: string, more: Partial<OutboundRequest> = {}): OutboundRequest => ({
  method: "GET",
  url,
  headers: { Authorization: "Bearer hunter2" },
  timeoutMs: 2_000,
  bytesMax: 1_000,
  ...more,
});

describe("an address", () => {
  it.each([
    "http://127.0.0.1/",
    "https://127.0.0.1/",
    "https://10.1.2.3/",
    "https://169.254.169.254/latest/meta-data",
    "https://[::1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://0x7f000001/",
    "https://2130706433/",
    "https://me:hunter2@example.com/",
    "ftp://example.com/",
  ])("%s is not asked", async (url) => {
    expect(await askOutside(allowing(), request(url))).toMatch(/^was not asked/);
  });

  it.each([
    ["a private one", ["10.0.0.1"]],
    ["a public and a private one", ["93.184.215.14", "192.168.0.1"]],
    ["none", []],
  ])("whose name leads to %s is not asked", async (_, addresses) => {
    const outbound = { hosts: [], resolve: () => Promise.resolve(addresses) };
    const answer = await askOutside(outbound, request("https://rebound.example/"));
    expect(answer).toMatch(/^was not asked/);
    expect(answer).not.toContain("rebound");
  });

  it("that the operator allows is asked, with or without its port", async () => {
    const { url, host, heard } = await server((_, response) => response.end("hello"));
    for (const allowed of [host, "127.0.0.1"]) {
      const answer = await askOutside(allowing(allowed), request(url));
      expect(answer).toMatchObject({ status: 200 });
    }
    expect(heard).toHaveLength(2);
    const [other] = [await server((_, response) => response.end())];
    expect(await askOutside(allowing(host), request(other.url))).toMatch(/^was not asked/);
    expect(other.heard).toEqual([]);
  });
});

describe("a redirect", () => {
  it("is judged like an address", async () => {
    const secret = await server((_, response) => response.end("private"));
    const { url, host } = await server((_, response) =>
      response.writeHead(302, { Location: secret.url }).end(),
    );
    expect(await askOutside(allowing(host), request(url))).toMatch(/^was not asked/);
    expect(secret.heard).toEqual([]);
  });

  it("to another server carries no credential, and no image", async () => {
    const other = await server((_, response) => response.end("there"));
    const { url, host } = await server((_, response) =>
      response.writeHead(307, { Location: other.url }).end(),
    );
    const outbound = allowing(host, other.host);
    expect(await askOutside(outbound, request(url))).toMatchObject({ status: 200 });
    expect(other.heard[0]?.headers.authorization).toBeUndefined();
    const sent = request(url, { method: "POST", body: "an image" });
    expect(await askOutside(outbound, sent)).toBe("redirects to another server");
    expect(other.heard).toHaveLength(1);
  });

  it("within its server is followed, three times", async () => {
    const { url, host } = await server(({ url: path = "" }, response) => {
      const left = Number(path.slice(1));
      if (left === 0) response.end("done");
      else response.writeHead(302, { Location: `/${left - 1}` }).end();
    });
    const outbound = allowing(host);
    expect(await askOutside(outbound, request(`${url}/3`))).toMatchObject({ status: 200 });
    expect(await askOutside(outbound, request(`${url}/4`))).toMatch(/^redirects more than 3/);
  });
});

describe("an answer", () => {
  it("is read up to its bound, and no further", async () => {
    let written = 0;
    const { url, host } = await server((_, response) => {
      const more = () => {
        written += 65_536;
        if (response.destroyed || written > 1e9) return response.end();
        return response.write(Buffer.alloc(65_536))
          ? setImmediate(more)
          : response.once("drain", more);
      };
      more();
    });
    const answer = await askOutside(allowing(host), request(url, { bytesMax: 100_000 }));
    expect(answer).toBe("answered with more than 100000 bytes");
    expect(written).toBeLessThan(1e8);
  });

  it("is waited for no longer than it may take, headers or body", async () => {
    const silent = await server(() => {});
    const slow = await server((_, response) => {
      response.writeHead(200).write("a");
    });
    for (const { url, host } of [silent, slow]) {
      const answer = await askOutside(allowing(host), request(url, { timeoutMs: 300 }));
      expect(answer).toBe("did not answer within 0.3 s");
    }
  });

  it("that breaks off is none", async () => {
    const { url, host } = await server((asked, response) => {
      response.writeHead(200, { "Content-Length": "100" }).write("a");
      setTimeout(() => asked.socket.destroy(), 20);
    });
    expect(await askOutside(allowing(host), request(url))).toBe("could not be reached");
  });
});
