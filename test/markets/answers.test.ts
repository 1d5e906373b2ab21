// How answers leave the Worker: from the edge cache, compressed, as a stream, cut off.

import http from "node:http";
import { gunzipSync } from "node:zlib";
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { type NeonEndpoint, startNeonEndpoint } from "../../edge/local/neon.ts";
import { parseConfig } from "../../edge/markets/config.ts";
import { compact } from "../../edge/markets/store/compact.ts";
import { Health, SeriesRecord } from "../../shared/wire/markets.ts";
import { type Cuttable, cuttable } from "../support/cuttable.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2000, 0, 1);
const LARGE = 140_000;
/** One commit takes no more. */
const COMMIT_ROWS = 100_000;
const KEY = "reader-key";

let world: World;
let endpoint: NeonEndpoint;
let toEndpoint: Cuttable;
/** What the Workers asked the database. */
let asked = "";
let known: string;
beforeAll(async () => {
  endpoint = await startNeonEndpoint(inject("postgres").port);
  toEndpoint = await cuttable(endpoint.port, (bytes) => {
    asked += bytes.toString("latin1");
  });
  world = await createWorld({
    services: ["markets", "console"],
    endpointPort: toEndpoint.port,
    environment: { markets: { SERVICE_READ_API_KEY: KEY, CACHE_HOST: "markets.example.com" } },
  });
  const vintage = await commitHours(world, "erco", FROM, [1, 2, 3]);
  known = new Date(vintage?.asOf ?? 0).toISOString();
  const quarters = Array.from({ length: LARGE }, (_, index) => index / 4);
  for (let first = 0; first < LARGE; first += COMMIT_ROWS) {
    const values = quarters.slice(first, first + COMMIT_ROWS);
    await commitHours(world, "large", FROM + first * HOUR, values);
  }
});
afterAll(async () => {
  await toEndpoint.close();
  await endpoint.close();
});

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
});

describe("the edge cache", () => {
  /** HEAD answers when the cache holds the body. */
  const keep = (url: string) => fetch(url, { method: "HEAD", headers: { "X-API-Key": KEY } });
  /** Changes what the store says, as no commit could, and when it says it was learned. */
  const rewrite = (symbol: string, values: string, secondsEarlier = 0) =>
    world.owner.execute(sql`
      UPDATE vintage SET inline = jsonb_set(inline, '{v}', ${values}::jsonb),
        as_of = as_of - ${secondsEarlier}::int * interval '1 second'
       WHERE series_id = (SELECT id FROM series WHERE symbol = ${symbol})`);

  const immutable = () => path("erco", `&as_of=${known}`);

  it("keeps the body of a vintage, but gives it only to whoever has the key", async () => {
    const first = await get(immutable());
    const rows = SeriesRecord.array().parse(await first.json());
    expect(rows.map((row) => row.value)).toEqual([1, 2, 3]);
    await keep(immutable());
    await rewrite("erco", "[[7, 8, 9]]");
    const cached = await get(immutable());
    expect(await cached.json()).toEqual(rows);
    for (const name of ["ETag", "X-As-Of", "X-Store-Version", "Content-Type", "Cache-Control"]) {
      expect([name, cached.headers.get(name)]).toEqual([name, first.headers.get(name)]);
    }
    expect(cached.headers.get("Cache-Control")).toMatch(/^private.*immutable/);
    const held = await get(immutable(), { "If-None-Match": cached.headers.get("ETag") ?? "" });
    expect([held.status, await held.text()]).toEqual([304, ""]);
    expect((await fetch(immutable())).status).toBe(401);
  });

  it("is asked under the service's own host name, and under no address or other text", () => {
    const parse = (CACHE_HOST?: string) =>
      parseConfig({ DATABASE_URL: "postgresql://a:b@host/c", STORE: {}, CACHE_HOST }).CACHE_HOST;
    expect(parse("markets.example.com")).toBe("markets.example.com");
    expect(parse()).toBe("cache.invalid");
    for (const given of ["https://markets.example.com", "markets.example.com/x", "-a.b"]) {
      expect(() => parse(given)).toThrow("CACHE_HOST: must be a host name");
    }
  });

  it("keeps a body once it was asked for a second time", async () => {
    await commitHours(world, "twice", FROM, [1]);
    const value = async () => {
      const [row] = SeriesRecord.array().parse(await (await get(path("twice"))).json());
      return row?.value;
    };
    expect(await value()).toBe(1);
    await rewrite("twice", "[[2]]");
    // Nobody had asked again, so the body is written again; this one is kept.
    expect(await value()).toBe(2);
    // What cannot be read any more is not answered but from the cache.
    await rewrite("twice", "null");
    await expect.poll(value).toBe(2);
  });

  it("keeps answers apart whose windows and offsets would read alike without names", async () => {
    // One way round a bound of 1970 and of ten hours, the other way round its opposite.
    const [end, start] = ["2000-01-01T01:00:00Z", new Date(-FROM - HOUR).toISOString()];
    const early = `&end=${end}&as_of_offset=-PT10H`;
    const late = `&start=${start}&as_of_offset=PT10H`;
    const tags = await Promise.all(
      [early, late].map(async (query) => (await get(path("erco", query))).headers.get("ETag")),
    );
    expect(new Set(tags).size).toBe(2);
  });

  it("gives no body of a catalog that was begun anew at the same address", async () => {
    const vintage = await commitHours(world, "anew", FROM, [7]);
    const url = path("anew", `&as_of=${new Date(vintage?.asOf ?? 0).toISOString()}`);
    expect(await (await get(url)).text()).toContain('"value":7');
    await keep(url);
    // The same series by number, name and version, as a restore to before the commit leaves it.
    await rewrite("anew", "[[8]]", 1);
    expect(await (await get(url)).text()).toContain('"value":8');
  });
});

describe("a range of an answer", () => {
  const url = (query = "") => path("large", `&as_of=${settled}&format=parquet${query}`);
  let settled: string;
  beforeAll(async () => {
    const head = await get(path("large", "&format=csv&end=2000-01-01"), {});
    settled = head.headers.get("X-As-Of") ?? "";
  });
  const part = async (range: string, more: Record<string, string> = {}, of = url()) => {
    const response = await get(of, { Range: range, ...more });
    const bytes = Buffer.from(await response.arrayBuffer());
    return { response, bytes, status: response.status };
  };

  it("is a piece of one body, whichever end it is counted from, and HEAD tells the length", async () => {
    const head = await fetch(url(), { method: "HEAD", headers: { "X-API-Key": KEY } });
    const length = Number(head.headers.get("Content-Length"));
    expect([head.status, head.headers.get("Accept-Ranges")]).toEqual([200, "bytes"]);
    const whole = Buffer.from(await (await get(url())).arrayBuffer());
    expect(whole.length).toBe(length);
    for (const [range, from, to] of [
      ["bytes=0-3", 0, 4],
      ["bytes=-8", length - 8, length],
      [`bytes=${length - 5}-`, length - 5, length],
      [`bytes=10-${length + 100}`, 10, length],
    ] as const) {
      const { response, bytes, status } = await part(range);
      expect([range, status]).toEqual([range, 206]);
      expect(response.headers.get("Content-Range")).toBe(`bytes ${from}-${to - 1}/${length}`);
      expect(Number(response.headers.get("Content-Length"))).toBe(to - from);
      expect(response.headers.get("ETag")).toBe(head.headers.get("ETag"));
      expect(bytes.equals(whole.subarray(from, to))).toBe(true);
    }
    expect((await part("bytes=9-3")).status).toBe(200);
    const text = await raw(path("large", `&as_of=${settled}&end=2001-01-01`), {
      "Accept-Encoding": "gzip",
      Range: "bytes=0-9",
    });
    expect([text.headers["content-encoding"], text.body.length]).toEqual([undefined, 10]);
    const outside = await part(`bytes=${length}-`);
    expect([outside.status, outside.response.headers.get("Content-Range")]).toEqual([
      416,
      `bytes */${length}`,
    ]);
  });

  it("is answered alike however often it is asked for, held or not, also of a short body", async () => {
    const short = (query: string) => path("erco", `&as_of=${known}&format=parquet&${query}`);
    const whole = Buffer.from(await (await get(short("provenance=full"))).arrayBuffer());
    const { length } = whole;
    // What polars asks for first, and what names no byte at all.
    const ranges = ["bytes=-262144", "bytes=-0", `bytes=0-${length - 1}`, "bytes=0-0", "bytes=-1"];
    for (const [index, range] of ranges.entries()) {
      // Each has a body of its own, which nothing holds at first.
      const fresh = short(`provenance=full&start=2000-01-01T00:00:00.00${index}Z`);
      const answers: unknown[] = [];
      for (let time = 0; time < 4; time++) {
        const { status, response, bytes } = await part(range, {}, fresh);
        const given = status === 206 ? bytes.toString("hex") : null;
        answers.push([status, response.headers.get("Content-Range"), given]);
      }
      expect(answers).toEqual(Array(4).fill(answers[0]));
      expect((answers[0] as unknown[])[0]).toBe(range === "bytes=-0" ? 416 : 206);
    }
    const { response, bytes } = await part("bytes=-262144", {}, short("provenance=full"));
    expect(response.headers.get("Content-Range")).toBe(`bytes 0-${length - 1}/${length}`);
    expect(bytes.equals(whole)).toBe(true);
  });

  it("is claimed only where it is known to be given", async () => {
    const claims = async (url: string) => (await get(url)).headers.get("Accept-Ranges");
    expect(await claims(path("erco", `&as_of=${known}&format=parquet`))).toBe("bytes");
    // Over 8 MiB: not the first time either.
    const large = path("large", `&as_of=${settled}&includeHistory=true&provenance=full&format=csv`);
    expect(await claims(large)).toBe(null);
  });

  it("comes of one computation, however many are asked for at once", async () => {
    // The origin of rows is asked for once a computation.
    const fresh = url("&end=2014-01-01&provenance=full");
    asked = "";
    const parts = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        part(`bytes=${index * 1000}-${index * 1000 + 999}`, {}, fresh),
      ),
    );
    expect(new Set(parts.map(({ status }) => status))).toEqual(new Set([206]));
    const whole = Buffer.from(await (await get(fresh)).arrayBuffer());
    const joined = Buffer.concat(parts.map(({ bytes }) => bytes));
    expect(joined.equals(whole.subarray(0, 12_000))).toBe(true);
    expect(asked.split("sourcePublishedAt").length - 1).toBe(1);
  });

  it("is the same bytes after a compaction cut the objects anew", async () => {
    const uncompacted = await commitHours(
      world,
      "cut",
      FROM,
      Array.from({ length: 9_000 }, (_, i) => i),
    );
    await commitHours(world, "cut", FROM + 100 * HOUR, [-1, -2, -3]);
    const knownThen = new Date(uncompacted?.asOf ?? 0).toISOString();
    for (const format of ["parquet", "arrow"]) {
      const read = (salt: string) =>
        get(path("cut", `&as_of=${knownThen}&format=${format}&end=${salt}`)).then((response) =>
          response.arrayBuffer(),
        );
      const before = Buffer.from(await read("2020-01-01"));
      await compact(world.writer, { library: "power.demand", symbol: "cut" });
      expect(Buffer.from(await read("2020-01-02")).equals(before)).toBe(true);
    }
  });

  it("is given of a file without rows, from before the first vintage", async () => {
    const early = path("large", "&as_of=2001-01-01T00:00:00Z&format=parquet");
    const head = await fetch(early, { method: "HEAD", headers: { "X-API-Key": KEY } });
    const whole = Buffer.from(await (await get(early)).arrayBuffer());
    expect([head.status, head.headers.get("Accept-Ranges")]).toEqual([200, "bytes"]);
    expect(Number(head.headers.get("Content-Length"))).toBe(whole.length);
    const { status, bytes } = await part("bytes=-8", {}, early);
    expect([status, bytes.equals(whole.subarray(-8))]).toEqual([206, true]);
  });

  it("is not given where the address fixes nothing, in other units, or of another answer", async () => {
    expect((await part("bytes=0-3", {}, path("large", "&format=parquet"))).status).toBe(200);
    expect((await part("rows=0-3")).status).toBe(200);
    expect((await part("bytes=0-3,8-9")).status).toBe(200);
    expect((await part("bytes=0-3", { "If-Range": '"other"' })).status).toBe(200);
    const etag = (await get(url())).headers.get("ETag") ?? "";
    expect((await part("bytes=0-3", { "If-Range": etag })).status).toBe(206);
    const latest = await fetch(path("large"), { method: "HEAD", headers: { "X-API-Key": KEY } });
    expect(latest.headers.get("Accept-Ranges")).toBeNull();
  });

  it("is not given of a body that is too large to keep", async () => {
    const large = path("large", `&as_of=${settled}&includeHistory=true&provenance=full`);
    const { response, bytes } = await part("bytes=0-3", {}, large);
    expect([response.status, response.headers.get("Accept-Ranges")]).toEqual([200, null]);
    expect(bytes.length).toBeGreaterThan(8 * 1024 * 1024);
    const head = await fetch(large, { method: "HEAD", headers: { "X-API-Key": KEY } });
    expect([head.status, head.headers.get("Content-Length")]).toEqual([200, null]);
  });
});

describe("a store that fails", () => {
  it("cuts an answer off, instead of ending it, when an object cannot be read, and the log says so", async () => {
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

  it("is no matter to the health, which reads the catalog of vintages and no object", async () => {
    const { rows } = await world.database.execute<{ newest: string }>(
      sql`SELECT max(as_of)::text AS newest FROM vintage`,
    );
    const health = Health.parse(await (await get(`${world.urls.markets}/healthz`)).json());
    expect(health.status).toBe("ok");
    expect(Date.parse(health.latest_as_of ?? "")).toBe(Date.parse(rows[0]?.newest ?? ""));
  });

  it("gives not even what the cache holds while the catalog does not answer", async () => {
    toEndpoint.cut();
    expect((await get(path("erco", `&as_of=${known}`))).status).toBe(503);
  });
});
