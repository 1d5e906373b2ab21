// Logs of devices. Goal: however batches come, each line is stored once, and a device never forgets
// what is not. What a bad way does to them is `log-story.long.test.ts`'s.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { DuckDBInstance } from "@duckdb/node-api";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { forgetLogs, syncLogs } from "../../../edge/vision/fleet/devices/logs.ts";
import { DAY } from "../../../shared/time.ts";
import { LogBatch, LogReceipt } from "../../../shared/wire/fleet.ts";
import {
  createFleetWorld,
  type FleetWorld,
  line,
  lines,
  type TestDevice,
} from "../../support/fleet-world.ts";

let w: FleetWorld;
beforeAll(async () => {
  w = await createFleetWorld();
});

const sync = async (device: TestDevice, body: object, headers?: Record<string, string>) =>
  LogReceipt.parse(await device.api.ok("POST", device.own("sync-logs"), body, headers));
interface Page {
  items: { seq: number; boot_id: string; [name: string]: unknown }[];
  next: string | null;
}
const logs = (device: TestDevice, query = "") =>
  w.admin.ok<Page>("GET", `${device.own("logs")}?${query}`);
/** Every number that is stored of a boot, in order. */
const stored = async (device: TestDevice, bootId: string): Promise<number[]> => {
  const { rows } = await w.world.visionDatabase.execute<{ seq: number }>(sql`
    SELECT seq::float8 AS seq FROM device_log l JOIN device_boot b ON b.id = l.boot
     WHERE b.device_id = ${device.id}::uuid AND b.boot_id = ${bootId} ORDER BY seq`);
  return rows.map(({ seq }) => seq);
};
const range = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);

describe("a batch", () => {
  it("is acknowledged up to its last line", async () => {
    const device = await w.enrolled();
    const receipt = await sync(device, { boot_id: "a", lines: lines(1, 5) });
    expect(receipt).toEqual({ boot_id: "a", acked_seq: 5, stored: 5, duplicates: 0, gaps: [] });
  });

  it("that comes again is known, line by line", async () => {
    const device = await w.enrolled();
    await sync(device, { boot_id: "a", lines: lines(1, 5) });
    const again = await sync(device, { boot_id: "a", lines: [...lines(4, 7), ...lines(6, 7)] });
    expect(again).toMatchObject({ acked_seq: 7, stored: 2, duplicates: 4 });
    expect(await stored(device, "a")).toEqual(range(1, 7));
  });

  it("does not change a line that is stored", async () => {
    const device = await w.enrolled();
    await sync(device, { boot_id: "a", lines: [line(1, { message: "first" })] });
    await sync(device, { boot_id: "a", lines: [line(1, { message: "another" })] });
    expect((await logs(device)).items).toMatchObject([{ message: "first" }]);
  });

  it("with holes names them, and acknowledges what is before the first", async () => {
    const device = await w.enrolled();
    const holes = [...lines(3, 4), ...lines(8, 9), line(12)];
    const first = await sync(device, { boot_id: "a", lines: holes });
    const gaps = [
      { from: 1, to: 2 },
      { from: 5, to: 7 },
      { from: 10, to: 11 },
    ];
    expect(first).toMatchObject({ acked_seq: 0, gaps });
    const second = await sync(device, { boot_id: "a", lines: lines(1, 2) });
    expect(second).toMatchObject({ acked_seq: 4, gaps: gaps.slice(1) });
  });

  it("says what was dropped, which is waited for no more", async () => {
    const device = await w.enrolled();
    await sync(device, { boot_id: "a", lines: lines(8, 9) });
    const dropped = [
      { from: 1, to: 6 },
      { from: 4, to: 7 },
    ];
    const receipt = await sync(device, { boot_id: "a", lines: [], dropped });
    expect(receipt).toMatchObject({ acked_seq: 9, stored: 0, gaps: [] });
    const { rows } = await w.world.visionDatabase.execute<{ dropped: number }>(sql`
      SELECT dropped::float8 FROM device_boot WHERE device_id = ${device.id}::uuid`);
    expect(rows).toEqual([{ dropped: 7 }]);
    // What was dropped does not come back.
    expect(await sync(device, { boot_id: "a", lines: lines(1, 3) })).toMatchObject({
      stored: 0,
      duplicates: 3,
    });
  });

  it("without lines asks where the boot stands, which each boot does by itself", async () => {
    const device = await w.enrolled();
    await sync(device, { boot_id: "a", lines: lines(1, 3) });
    await sync(device, { boot_id: "b", lines: lines(1, 2) });
    const empty = { acked_seq: 0, stored: 0, duplicates: 0, gaps: [] };
    expect(await sync(device, { boot_id: "c", lines: [] })).toEqual({ boot_id: "c", ...empty });
    expect(await sync(device, { boot_id: "a", lines: [] })).toMatchObject({ acked_seq: 3 });
    expect(await sync(device, { boot_id: "b", lines: [] })).toMatchObject({ acked_seq: 2 });
  });

  it("is of one device: the same numbers of another are its own", async () => {
    const [one, other] = [await w.enrolled(), await w.enrolled()];
    await sync(one, { boot_id: "a", lines: lines(1, 3) });
    const receipt = await sync(other, { boot_id: "a", lines: lines(1, 3) });
    expect(receipt).toMatchObject({ stored: 3, duplicates: 0 });
  });

  it("of many at once is counted once, line by line", async () => {
    const device = await w.enrolled();
    const receipts = await Promise.all(
      [0, 1, 2, 3].flatMap((part) => {
        const body = { boot_id: "a", lines: lines(part * 20 + 1, part * 20 + 40) };
        return [sync(device, body), sync(device, body)];
      }),
    );
    expect(receipts.reduce((sum, receipt) => sum + receipt.stored, 0)).toBe(100);
    expect(await stored(device, "a")).toEqual(range(1, 100));
    expect(await sync(device, { boot_id: "a", lines: [] })).toMatchObject({ acked_seq: 100 });
  });

  it("may come as gzip", async () => {
    const device = await w.enrolled();
    const packed = new Uint8Array(gzipSync(JSON.stringify({ boot_id: "a", lines: lines(1, 900) })));
    const headers = { "Content-Type": "application/json", "Content-Encoding": "gzip" };
    const path = device.own("sync-logs");
    const receipt = await device.api.ok<LogReceipt>("POST", path, packed, headers);
    expect(receipt).toMatchObject({ stored: 900, acked_seq: 900 });
    const refused = (body: Uint8Array, encoding = "gzip") =>
      device.api.refused("POST", path, body, { ...headers, "Content-Encoding": encoding });
    expect(await refused(packed.subarray(0, 100))).toEqual([400, "bad_body"]);
    expect(await refused(new TextEncoder().encode("{}"))).toEqual([400, "bad_body"]);
    expect(await refused(packed, "br")).toEqual([422, "invalid_request"]);
    // 256 MiB in some 260 kB.
    const bomb = new Uint8Array(gzipSync(new Uint8Array(256 * 1024 * 1024)));
    expect(await refused(bomb)).toEqual([413, "body_too_large"]);
  });

  it.each([
    ["of a number that is none", { boot_id: "a", lines: [line(0)] }, 422],
    ["of half a number", { boot_id: "a", lines: [line(1.5)] }, 422],
    ["of no time", { boot_id: "a", lines: [line(1, { time: "noon" })] }, 422],
    ["of year 0", { boot_id: "a", lines: [line(1, { time: "0000-01-01T00:00:00Z" })] }, 422],
    ["of a boot with blanks", { boot_id: "a b", lines: [] }, 422],
    ["of too many lines", { boot_id: "a", lines: lines(1, 1_001) }, 422],
    [
      "of a gap that ends before it begins",
      { boot_id: "a", lines: [], dropped: [{ from: 2, to: 1 }] },
      422,
    ],
    [
      "of a confidence of 2",
      {
        boot_id: "a",
        lines: [line(1, { objects: [{ class: "x", confidence: 2, bbox: [0, 0, 1, 1] }] })],
      },
      422,
    ],
    [
      "of many levels",
      { boot_id: "a", lines: [line(1, { a: JSON.parse("[".repeat(60) + "]".repeat(60)) })] },
      422,
    ],
    [
      "of a line of too many bytes",
      { boot_id: "a", lines: [line(1, { n: "é".repeat(140_000) })] },
      422,
    ],
    ["of too many bytes", { boot_id: "a", lines: [line(1, { note: "x".repeat(5_000_000) })] }, 413],
  ])("%s stores nothing", async (_, body, status) => {
    const device = await w.enrolled();
    expect((await device.api.refused("POST", device.own("sync-logs"), body))[0]).toBe(status);
    expect(await stored(device, "a")).toEqual([]);
  });

  it("of a gigabyte is answered 413 before it was sent, and the line is closed", async () => {
    const device = await w.enrolled();
    const headers = {
      Authorization: `Bearer ${device.api.token}`,
      "Content-Type": "application/json",
    };
    const address = `${w.world.urls.vision}/api/v1${device.own("sync-logs")}`;
    let sent = 0;
    /** The status, or null where the closed line was met before the answer was read. */
    const attempt = () =>
      new Promise<number | null>((done) => {
        sent = 0;
        let isOver = false;
        const request = httpRequest(address, { method: "POST", headers });
        const end = (status: number | null) => {
          isOver = true;
          done(status);
          request.destroy();
        };
        request.on("response", ({ statusCode = 0 }) => end(statusCode));
        request.on("error", () => end(null));
        const block = Buffer.alloc(64 * 1024, 32);
        const send = () => {
          while (!isOver && sent < 1024 ** 3) {
            sent += block.length;
            if (!request.write(block)) return void request.once("drain", send);
          }
        };
        send();
      });
    await expect.poll(attempt).toBe(413);
    expect(sent).toBeLessThan(256 * 1024 ** 2);
  });

  it("of one boot more than are known is taken, and the oldest that misses nothing leaves", async () => {
    const device = await w.enrolled();
    const boots = (more: ReturnType<typeof sql>) =>
      w.world.visionDatabase.execute(sql`
        INSERT INTO device_boot (device_id, boot_id, received, seen_at) ${more}`);
    await boots(sql`
      SELECT ${device.id}::uuid, 'old-' || n, '{[1,4)}', now() - n * interval '1 minute'
        FROM generate_series(1, 4999) n`);
    // The oldest of all still misses a line.
    await boots(sql`
      SELECT ${device.id}::uuid, 'open', '{[1,2),[3,4)}', now() - interval '9000 minutes'`);
    for (const boot_id of ["new-1", "new-2"]) {
      const receipt = await sync(device, { boot_id, lines: lines(1, 2) });
      expect(receipt).toMatchObject({ acked_seq: 2, stored: 2 });
    }
    expect(await sync(device, { boot_id: "open", lines: [line(2)] })).toMatchObject({
      acked_seq: 3,
      stored: 1,
    });
    const { rows } = await w.world.visionDatabase.execute<{ count: number; left: string[] }>(sql`
      SELECT count(*)::int AS count, array_agg(boot_id) FILTER (WHERE boot_id IN
          ('old-4999', 'old-4998', 'old-4997', 'open', 'new-1', 'new-2')) AS left
        FROM device_boot WHERE device_id = ${device.id}::uuid`);
    expect(rows[0]?.count).toBe(5_000);
    expect(rows[0]?.left.toSorted()).toEqual(["new-1", "new-2", "old-4997", "open"]);
  });

  it("that would leave too many holes is refused whole", async () => {
    const device = await w.enrolled();
    // What a device would need 10,000 batches for is put there at once.
    await sync(device, { boot_id: "a", lines: [] });
    await w.world.visionDatabase.execute(sql`
      UPDATE device_boot SET received = (SELECT range_agg(int8range(2 * n, 2 * n + 1))
        FROM generate_series(1, 10000) n) WHERE device_id = ${device.id}::uuid`);
    const body = { boot_id: "a", lines: [line(30_001), line(30_003)] };
    const refused = await device.api.refused("POST", device.own("sync-logs"), body);
    expect(refused).toEqual([409, "state_conflict"]);
    expect(await stored(device, "a")).toEqual([]);
    const mended = await sync(device, {
      boot_id: "a",
      lines: [],
      dropped: [{ from: 1, to: 20_000 }],
    });
    expect(mended).toMatchObject({ acked_seq: 20_000, gaps: [] });
  });
});

it("of a device with too many lines are taken no more, until the oldest went", async () => {
  const device = await w.enrolled();
  await sync(device, { boot_id: "a", lines: lines(1, 5) });
  await w.world.visionDatabase.execute(sql`
    UPDATE device_boot SET lines = 2200000 WHERE device_id = ${device.id}::uuid`);
  const more = { boot_id: "b", lines: lines(1, 5) };
  const refused = await device.api.refused("POST", device.own("sync-logs"), more);
  expect(refused).toEqual([413, "quota_exceeded"]);
  expect(await stored(device, "b")).toEqual([]);
  await forgetLogs({
    database: w.world.visionDatabase,
    clock: () => Date.now(),
    limits: { deviceLogDays: 30 },
  } as Parameters<typeof forgetLogs>[0]);
  // All five of them: they were the oldest.
  expect(await stored(device, "a")).toEqual([]);
});

describe("forgetting", () => {
  /** A device with so many lines of 40 days ago. */
  const aged = async (count: number) => {
    const device = await w.enrolled();
    await sync(device, { boot_id: "a", lines: [] });
    await w.world.visionDatabase.execute(sql`
      WITH b AS (UPDATE device_boot SET lines = ${count}::int
        WHERE device_id = ${device.id}::uuid RETURNING id, device_id)
      INSERT INTO device_log (boot, seq, device_id, time, received_at, kind, line)
      SELECT b.id, n, b.device_id, now(), now() - interval '40 days', 'prediction', '{}'
        FROM b, generate_series(1, ${count}::int) n`);
    return device;
  };
  /** What a minute forgets by a clock that goes on by so much at each look. */
  const minute = (step: number) => {
    let now = Date.now();
    return forgetLogs({
      database: w.world.visionDatabase,
      clock: () => (now += step),
      limits: { deviceLogDays: 30 },
    } as Parameters<typeof forgetLogs>[0]);
  };

  it("goes on for as long as a minute has time, however many lines are too old", async () => {
    const device = await aged(45_000);
    await minute(20_000);
    expect(await stored(device, "a")).toHaveLength(25_000);
    await minute(0);
    expect(await stored(device, "a")).toEqual([]);
  });
});

describe("lines", () => {
  const objects = (name: string, confidence: number) => [
    { class: name, confidence, bbox: [1, 2, 30, 40] },
    { class: "dog", confidence: 0.95, bbox: [1, 2, 30, 40] },
  ];
  let device: TestDevice;
  const model_id = crypto.randomUUID();
  beforeAll(async () => {
    device = await w.enrolled();
    await sync(device, {
      boot_id: "a",
      lines: [
        line(1, { objects: objects("person", 0.9), model_id, version: "2" }),
        line(2, { objects: objects("person", 0.3), source: "gate", frame: 7, lens: { f: 1.8 } }),
        line(3, { objects: [], kind: "start", latency_ms: null, message: "hello" }),
        line(4, { objects: objects("car", 0.6) }),
      ],
    });
  });
  const found = async (query: string) => (await logs(device, query)).items.map(({ seq }) => seq);

  it("are listed newest first, with all that they held", async () => {
    const { items, next } = await logs(device);
    expect(next).toBeNull();
    expect(items.map(({ seq }) => seq)).toEqual([4, 3, 2, 1]);
    expect(items[2]).toMatchObject({
      ...line(2, { objects: objects("person", 0.3), source: "gate", frame: 7, lens: { f: 1.8 } }),
      boot_id: "a",
      kind: "prediction",
    });
  });

  it("are found by class, confidence, kind, model and time", async () => {
    expect(await found("class=person")).toEqual([2, 1]);
    expect(await found("class=person&min_confidence=0.5")).toEqual([1]);
    expect(await found("class=person&max_confidence=0.5")).toEqual([2]);
    expect(await found("min_confidence=0.25&max_confidence=0.7")).toEqual([4, 2]);
    expect(await found("min_confidence=0.95")).toEqual([4, 2, 1]);
    expect(await found("min_confidence=0.96")).toEqual([]);
    expect(await found("kind=start")).toEqual([3]);
    expect(await found(`model_id=${model_id}`)).toEqual([1]);
    const [from, to] = [line(2).time, line(4).time];
    expect(await found(`from=${from}&to=${to}`)).toEqual([3, 2]);
    const refused = w.admin.refused("GET", `${device.own("logs")}?from=${to}&to=${from}`);
    expect(await refused).toEqual([422, "invalid_request"]);
  });

  it("come in pages that leave nothing out and name nothing twice, of equal times too", async () => {
    const other = await w.enrolled();
    const { time } = line(1);
    const same = range(1, 25).map((seq) => line(seq, seq % 3 === 0 ? {} : { time }));
    await sync(other, { boot_id: "a", lines: same });
    const seen: number[] = [];
    for (let cursor = ""; ; ) {
      const page = await logs(other, `limit=4${cursor}`);
      seen.push(...page.items.map(({ seq }) => seq));
      if (page.next === null) break;
      cursor = `&cursor=${page.next}`;
    }
    expect(seen.toSorted((one, next) => one - next)).toEqual(range(1, 25));
    const refused = w.admin.refused("GET", `${other.own("logs")}?cursor=x`);
    expect(await refused).toEqual([422, "invalid_request"]);
  });

  it("come in pages of bounded bytes, and in a file of no more than is held at once", async () => {
    const other = await w.enrolled();
    const note = "x".repeat(250 * 1024);
    for (let first = 1; first <= 75; first += 15) {
      const large = range(first, first + 14).map((seq) => line(seq, { note }));
      await sync(other, { boot_id: "a", lines: large });
    }
    const page = await logs(other, "limit=1000");
    expect(page.items.map(({ seq }) => seq)).toEqual(range(60, 75).toReversed());
    const rest = await logs(other, `limit=1000&cursor=${page.next}`);
    expect(rest.items[0]).toMatchObject({ seq: 59, note });
    const file = (query = "") => `${other.own("logs.parquet")}?${query}`;
    expect(await w.admin.refused("GET", file())).toEqual([413, "row_cap_exceeded"]);
    const some = await w.admin.send("GET", file(`from=${line(40).time}`));
    expect(some.status).toBe(200);
    await some.arrayBuffer();
  });

  it("of times finer than a millisecond have a next page", async () => {
    const other = await w.enrolled();
    const times = ["2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:00.123457Z"];
    const fine = times.map((time, index) => line(index + 1, { time }));
    await sync(other, { boot_id: "a", lines: fine });
    const { next } = await logs(other, "limit=1");
    const second = await logs(other, `limit=1&cursor=${next}`);
    expect(second.items.map(({ seq }) => seq)).toEqual([1]);
  });

  it("have their times in UTC, whatever offset their device writes", async () => {
    const other = await w.enrolled();
    const times = [
      "2026-01-01T00:00:00+00:00",
      "2026-01-01T05:30:01.25+05:30",
      "2025-12-31T00:01:02.5-23:59",
    ];
    const receipt = await sync(other, {
      boot_id: "a",
      lines: times.map((time, index) => line(index + 1, { time })),
    });
    expect(receipt).toMatchObject({ acked_seq: 3, stored: 3 });
    const { items } = await logs(other, "limit=10");
    expect(items.map(({ time }) => time)).toEqual([
      "2026-01-01T00:00:02.500Z",
      "2026-01-01T00:00:01.250Z",
      "2026-01-01T00:00:00.000Z",
    ]);
  });

  it("are a Parquet file that DuckDB reads", async () => {
    const folder = mkdtempSync(join(tmpdir(), "vantage-logs-"));
    try {
      const answer = await w.admin.send("GET", device.own("logs.parquet"));
      expect(answer.headers.get("Content-Type")).toBe("application/vnd.apache.parquet");
      const file = join(folder, "logs.parquet");
      writeFileSync(file, new Uint8Array(await answer.arrayBuffer()));
      const connection = await (await DuckDBInstance.create()).connect();
      const read = await connection.runAndReadAll(`
        SELECT seq::INT AS seq, epoch_ms(time)::DOUBLE AS ms, kind, frame::INT AS frame, model_id,
          latency_ms, message, json_array_length(objects)::INT AS objects, extra
          FROM '${file}' ORDER BY seq`);
      const rows = read.getRowObjectsJson();
      expect(rows).toMatchObject([
        {
          seq: 1,
          model_id,
          objects: 2,
          extra: "{}",
          latency_ms: 12.5,
          ms: Date.parse(line(1).time),
        },
        { seq: 2, frame: 7, extra: '{"lens":{"f":1.8}}' },
        { seq: 3, kind: "start", message: "hello", latency_ms: null, objects: 0 },
        { seq: 4, model_id: null },
      ]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it("are forgotten after their time, and known all the same", async () => {
    const old = await w.enrolled();
    const now = Date.now();
    const partsAt = (clock: number) =>
      ({
        database: w.world.visionDatabase,
        clock: () => clock,
        limits: { deviceLogDays: 30 },
      }) as Parameters<typeof forgetLogs>[0];
    const batch = LogBatch.parse({ boot_id: "a", lines: lines(1, 5) });
    await syncLogs(partsAt(now - 31 * DAY), { deviceId: old.id }, batch);
    await sync(old, { boot_id: "a", lines: lines(6, 8) });
    await forgetLogs(partsAt(now));
    expect(await stored(old, "a")).toEqual([6, 7, 8]);
    const again = await sync(old, { boot_id: "a", lines: lines(1, 8) });
    expect(again).toMatchObject({ stored: 0, duplicates: 8, acked_seq: 8, gaps: [] });
  });
});
