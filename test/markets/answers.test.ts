// How answers leave the Worker: from the edge cache, compressed, as a stream, cut off.

import http from "node:http";
import { gunzipSync } from "node:zlib";
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { type NeonEndpoint, startNeonEndpoint } from "../../edge/local/neon.ts";
import { compact } from "../../edge/markets/store/compact.ts";
import { SeriesRecord } from "../../shared/markets.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2000, 0, 1);
const LARGE = 140_000;
/** One commit takes no more. */
const COMMIT_ROWS = 100_000;
const KEY = "reader-key";

let world: World;
let endpoint: NeonEndpoint;
let known: string;
beforeAll(async () => {
  endpoint = await startNeonEndpoint(inject("postgres").port);
  world = await createWorld({
    services: ["markets", "console"],
    endpointPort: endpoint.port,
    environment: { markets: { SERVICE_READ_API_KEY: KEY } },
  });
  const vintage = await commitHours(world, "erco", FROM, [1, 2, 3]);
  known = new Date(vintage?.asOf ?? 0).toISOString();
  const quarters = Array.from({ length: LARGE }, (_, index) => index / 4);
  for (let first = 0; first < LARGE; first += COMMIT_ROWS) {
    const values = quarters.slice(first, first + COMMIT_ROWS);
    await commitHours(world, "large", FROM + first * HOUR, values);
  }
});
let closed = false;
const closeEndpoint = async () => {
  if (!closed) await endpoint.close();
  closed = true;
};
afterAll(closeEndpoint);

const path = (symbol: string, query = "") =>
  `${world.urls.markets}/series?library=power.demand&symbol=${symbol}${query}`;
const get = (url: string, headers: Record<string, string> = {}) =>
  fetch(url, { headers: { "X-API-Key": KEY, ...headers } });

/** A request whose body is left as it came. */
const raw = (url: string, headers: Record<string, string>) =>
  new Promise<{ headers: http.IncomingHttpHeaders; body: Buffer }>((resolve, reject) => {
    http
      .get(url, { headers: { "X-API-Key": KEY, ...headers } }, async (response) => {
        const parts: Buffer[] = [];
        for await (const part of response) parts.push(part as Buffer);
        resolve({ headers: response.headers, body: Buffer.concat(parts) });
      })
      .on("error", reject);
  });

describe("a large answer", () => {
  const values = (rows: SeriesRecord[]) => rows.map((row) => row.value);
  const expected = Array.from({ length: LARGE }, (_, index) => index / 4);

  it("streams every row, from one object or from several", async () => {
    const one = await get(path("large"));
    expect(values((await one.json()) as SeriesRecord[])).toEqual(expected);
    expect(await compact(world.writer, { library: "power.demand", symbol: "large" })).toBe(3);
    const three = await get(path("large"));
    expect(three.headers.get("ETag")).toBe(one.headers.get("ETag"));
    expect(values((await three.json()) as SeriesRecord[])).toEqual(expected);
  });

  it("may be left half read, again and again, without harm to the next reader", async () => {
    for (let reader = 0; reader < 6; reader++) {
      const response = await get(path("large"));
      const body = response.body?.getReader();
      await body?.read();
      await body?.cancel();
    }
    expect(((await (await get(path("large"))).json()) as unknown[]).length).toBe(LARGE);
  });

  it("is compressed where no edge does it, under a tag of its own that still gives 304", async () => {
    const packed = await raw(path("large"), { "Accept-Encoding": "gzip" });
    expect(packed.headers["content-encoding"]).toBe("gzip");
    const plain = await raw(path("large"), {});
    expect(plain.headers["content-encoding"]).toBeUndefined();
    expect(gunzipSync(packed.body).equals(plain.body)).toBe(true);
    expect(packed.body.length * 5).toBeLessThan(plain.body.length);
    expect(packed.headers.etag).not.toBe(plain.headers.etag);
    for (const { headers } of [packed, plain]) {
      const held = await get(path("large"), { "If-None-Match": headers.etag ?? "" });
      expect(held.status).toBe(304);
    }
    const refused = await raw(path("large"), { "Accept-Encoding": "gzip;q=0" });
    expect(refused.headers["content-encoding"]).toBeUndefined();
  });

  it("is cut off, not ended, when an object cannot be read, and the log says so", async () => {
    const { rows } = await world.database.execute<{ object_key: string }>(sql`
      SELECT object_key FROM segment JOIN series ON id = series_id
       WHERE symbol = 'large' AND retired_at IS NULL ORDER BY valid_min DESC LIMIT 1`);
    await world.bucket.delete(rows[0]?.object_key ?? "");
    const response = await get(path("large"));
    expect(response.status).toBe(200);
    await expect(response.arrayBuffer()).rejects.toThrow();
    await expect.poll(() => world.logs.join("")).toContain("stream_ended");
    expect((await get(path("erco"))).status).toBe(200);
  });
});

describe("the edge cache", () => {
  it("answers what is settled without the database, but only to whoever has the key", async () => {
    const immutable = path("erco", `&as_of=${known}`);
    const latest = path("erco");
    const first = await get(immutable);
    const rows = SeriesRecord.array().parse(await first.json());
    expect(rows.map((row) => row.value)).toEqual([1, 2, 3]);
    await (await get(latest)).arrayBuffer();
    await closeEndpoint();
    // The put goes on behind the answer.
    await expect.poll(async () => (await get(immutable)).status).toBe(200);
    const cached = await get(immutable);
    expect(await cached.json()).toEqual(rows);
    for (const name of ["ETag", "X-As-Of", "X-Store-Version", "Content-Type", "Cache-Control"]) {
      expect([name, cached.headers.get(name)]).toEqual([name, first.headers.get(name)]);
    }
    expect(cached.headers.get("Cache-Control")).toMatch(/^private.*immutable/);
    const held = await get(immutable, { "If-None-Match": cached.headers.get("ETag") ?? "" });
    expect([held.status, await held.text()]).toEqual([304, ""]);
    expect((await fetch(immutable)).status).toBe(401);
    // Nobody can know whether the latest is still the latest, and another format is another answer.
    expect((await get(latest)).status).toBe(503);
    expect((await get(`${immutable}&format=csv`)).status).toBe(503);
    expect((await get(`${immutable}&end=2001-01-01`)).status).toBe(503);
  });
});
