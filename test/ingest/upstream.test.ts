// Providers that misbehave. Goal: a key goes to the provider's own hosts alone, and no answer takes
// more memory than its source allows.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import {
  type Fetcher,
  type Provider,
  request,
} from "../../edge/markets/ingest/sources/upstream.ts";

const PROVIDER: Provider = { name: "The provider", bytesMax: 100_000 };
const HEADERS = { "Ocp-Apim-Subscription-Key": "a-subscription-key" };
const fetcher: Fetcher = { fetch, pause: () => Promise.resolve() };

type Answer = (path: string, response: ServerResponse) => void;

/** A server of the test's, with the requests that reached it. */
async function serve(answer: Answer) {
  const heard: { path: string; key: IncomingMessage["headers"][string] }[] = [];
  const server = createServer(({ url: path = "", headers }, response) => {
    heard.push({ path, key: headers["ocp-apim-subscription-key"] });
    answer(path, response);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return { heard, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

it("follows redirects within the provider's host with its key", async () => {
  const { heard, url } = await serve((path, response) => {
    if (path === "/new") response.end("rows");
    else response.writeHead(302, { Location: "/new" }).end();
  });
  const { status, bytes } = await request(fetcher, PROVIDER, `${url}/old`, { headers: HEADERS });
  expect([status, new TextDecoder().decode(bytes)]).toEqual([200, "rows"]);
  expect(heard).toEqual([
    { path: "/old", key: "a-subscription-key" },
    { path: "/new", key: "a-subscription-key" },
  ]);
});

it("follows no redirect to somebody else's host", async () => {
  const other = await serve((_, response) => void response.end("rows"));
  const { url } = await serve(
    (_, response) => void response.writeHead(302, { Location: `${other.url}/stolen` }).end(),
  );
  const asked = request(fetcher, PROVIDER, url, { headers: HEADERS });
  await expect(asked).rejects.toMatchObject({
    code: "upstream_rejected",
    message: expect.stringMatching(/^The provider redirects to another host, 127\.0\.0\.1:\d+$/),
  });
  expect(other.heard).toEqual([]);
});

it.each([
  ["https://api.ercot.com/a", "https://data.ercot.com/b", true],
  ["https://api.ercot.com/a", "http://data.ercot.com/b", false],
  ["https://api.ercot.com/a", "https://ercot.com.evil.test/b", false],
  ["https://api.ercot.com/a", "https://evilercot.com/b", false],
  ["https://10.0.0.1/a", "https://10.2.0.1/b", false],
])("from %s to %s: follows it is %s", async (from, to, isFollowed) => {
  const asked: string[] = [];
  const redirecting: Fetcher = {
    ...fetcher,
    fetch: async (url) => {
      asked.push(url);
      return url === from
        ? new Response(null, { status: 307, headers: { Location: to } })
        : new Response("rows");
    },
  };
  const settled = await request(redirecting, PROVIDER, from).catch(({ code }) => code);
  expect(asked).toEqual(isFollowed ? [from, to] : [from]);
  if (isFollowed) expect(settled).toMatchObject({ status: 200 });
  else expect(settled).toBe("upstream_rejected");
});

it("ends redirects in a circle, and those of a body that was sent", async () => {
  const { heard, url } = await serve(
    (_, response) => void response.writeHead(307, { Location: "/again" }).end(),
  );
  const refused = { code: "upstream_rejected", message: expect.stringMatching(/not followed$/) };
  await expect(request(fetcher, PROVIDER, url)).rejects.toMatchObject(refused);
  expect(heard).toHaveLength(4);
  const post = { method: "POST", body: "password=secret" } as const;
  await expect(request(fetcher, PROVIDER, url, post)).rejects.toMatchObject(refused);
  expect(heard).toHaveLength(5);
});

it("reads an answer no further than its bound, and cancels the rest", async () => {
  let sent = 0;
  const closed = Promise.withResolvers<void>();
  const { url } = await serve((path, response) => {
    if (path === "/whole") return void response.end("x".repeat(PROVIDER.bytesMax));
    const part = Buffer.alloc(50_000);
    const send = () => {
      while (sent < 500_000_000 && response.write(part)) sent += part.length;
    };
    response.on("drain", send).on("close", () => closed.resolve());
    send();
  });
  expect((await request(fetcher, PROVIDER, `${url}/whole`)).bytes).toHaveLength(100_000);
  await expect(request(fetcher, PROVIDER, `${url}/endless`)).rejects.toMatchObject({
    code: "upstream_rejected",
    message: "The provider answered with more than 100000 bytes",
  });
  await closed.promise;
  // What the sockets' buffers hold.
  expect(sent).toBeLessThan(50_000_000);
});
