// Lines of devices' logs as people read them: by time, newest first, and as a Parquet file.

import { type SQL, sql } from "drizzle-orm";
import { type ColumnSource, parquetWriteBuffer } from "hyparquet-writer";
import { Failure } from "../../../../shared/errors.ts";
import { LogLine } from "../../../../shared/wire/fleet.ts";
import { type Database, epochMs, wireTime } from "../../../http/database.ts";
import { allOf } from "../../base/sql.ts";
import { single } from "./readings.ts";

/** Lines of one file, and bytes of them as JSON: it is made in memory. */
export const FILE_LINES_MAX = 20_000;
export const FILE_BYTES_MAX = 16 * 1024 * 1024;
/** Lines of one page, and bytes of them as JSON: a page with more ends sooner. */
export const PAGE_LINES_MAX = 1_000;
const PAGE_BYTES_MAX = 4 * 1024 * 1024;

/** A line as it was stored. */
export interface StoredLine extends LogLine {
  boot_id: string;
  received_at: string;
}

/** Which lines of a device are meant; each member narrows it. */
export interface LogFilter {
  /** Epoch milliseconds by the device's clock, from the first inclusive to the second exclusive. */
  from?: number | undefined;
  to?: number | undefined;
  kind?: string | undefined;
  class?: string | undefined;
  modelId?: string | undefined;
  /** Bounds, both inclusive, of an object of the class; without a class, of any object. */
  confidenceMin?: number | undefined;
  confidenceMax?: number | undefined;
  /** Only lines after this one in the order of the list. */
  after?: LinePosition | undefined;
}

/** Where a line stands among a device's: its time, epoch milliseconds, and what tells it apart. */
export interface LinePosition {
  time: number;
  boot: number;
  seq: number;
}

// Devices may tell times more finely than to the millisecond.
const POSITION = /^(-?\d{1,15}(?:\.\d{1,6})?)\.(\d{1,15})\.(\d{1,16})$/;

/** The position that a cursor names; fails with `invalid_request` for what is none. */
export function positionOf(cursor: string | undefined): LinePosition | undefined {
  if (cursor === undefined) return undefined;
  const [, time, boot, seq] = POSITION.exec(cursor) ?? [];
  if (time === undefined) throw new Failure("invalid_request", "cursor: is none of this list's");
  return { time: Number(time), boot: Number(boot), seq: Number(seq) };
}

interface LineRow extends Record<string, unknown> {
  /** Lines that the page could have, one beyond its limit included; and bytes of this one. */
  found: number;
  bytes: number;
  boot: number;
  seq: number;
  boot_id: string;
  milliseconds: number;
  received_at: string;
  kind: string;
  model_id: string | null;
  latency_ms: number | null;
  line: Record<string, unknown>;
}

// In seconds, since Postgres reads no year 0.
const second = (milliseconds: number) => sql`to_timestamp(${milliseconds}::float8 / 1000)`;

function conditionsOf(deviceId: string, filter: LogFilter): SQL {
  const { from, to, kind, modelId, confidenceMin, confidenceMax, after } = filter;
  const [low, high] = [confidenceMin ?? 0, confidenceMax ?? 1];
  const isByObject = filter.class !== undefined || confidenceMax !== undefined;
  const conditions = [
    sql`l.device_id = ${deviceId}::uuid`,
    from !== undefined && sql`l.time >= ${second(from)}`,
    to !== undefined && sql`l.time < ${second(to)}`,
    kind !== undefined && sql`l.kind = ${kind}`,
    modelId !== undefined && sql`l.model_id = ${modelId}::uuid`,
    confidenceMin !== undefined && sql`l.confidence >= ${single(low)}::float8`,
    isByObject &&
      sql`EXISTS (SELECT FROM jsonb_array_elements(l.line->'objects') o
        WHERE (o->>'confidence')::float8 BETWEEN ${low}::float8 AND ${high}::float8
          AND (${filter.class ?? null}::text IS NULL OR o->>'class' = ${filter.class ?? null}))`,
    after !== undefined &&
      sql`(l.time, l.boot, l.seq) < (${second(after.time)}, ${after.boot}::bigint,
        ${after.seq}::bigint)`,
  ];
  return allOf(conditions);
}

const recordOf = (row: LineRow): StoredLine => ({
  ...LogLine.parse({
    ...row.line,
    seq: row.seq,
    time: new Date(row.milliseconds).toISOString(),
    kind: row.kind,
    model_id: row.model_id,
    latency_ms: row.latency_ms,
  }),
  boot_id: row.boot_id,
  received_at: row.received_at,
});

/** A page of lines. */
interface LinePage {
  items: StoredLine[];
  /** The cursor of the page that follows; null: there is none. */
  next: string | null;
  /** Bytes of the lines as JSON. */
  bytes: number;
}

/**
 * Lines of a device, newest first by its clock: at most `limit`, and fewer where they are large,
 * but always one.
 */
export async function listLines(
  database: Database,
  deviceId: string,
  { limit, ...filter }: LogFilter & { limit: number },
): Promise<LinePage> {
  const order = sql`ORDER BY l.time DESC, l.boot DESC, l.seq DESC`;
  const { rows } = await database.execute<LineRow>(sql`
    WITH found AS MATERIALIZED (
      SELECT l.*, octet_length(l.line::text) AS text_bytes FROM device_log l
       WHERE ${conditionsOf(deviceId, filter)} ${order} LIMIT ${limit + 1}::int),
    summed AS (
      SELECT l.*, row_number() OVER (${order}) AS number, sum(l.text_bytes) OVER (${order}) AS total
        FROM found l)
    SELECT (SELECT count(*)::int FROM found) AS found, l.text_bytes AS bytes, l.boot::float8,
      l.seq::float8,
      b.boot_id, ${epochMs(sql`l.time`)} AS milliseconds,
      ${wireTime(sql`l.received_at`)} AS received_at, l.kind, l.model_id::text,
      l.latency_ms::float8, l.line
      FROM summed l JOIN device_boot b ON b.id = l.boot
     WHERE l.number <= ${limit}::int AND (l.total <= ${PAGE_BYTES_MAX}::int OR l.number = 1)
     ${order}`);
  const last = rows.at(-1);
  const isLast = !last || rows.length === last.found;
  return {
    items: rows.map(recordOf),
    next: isLast ? null : `${last.milliseconds}.${last.boot}.${last.seq}`,
    bytes: rows.reduce((sum, row) => sum + row.bytes, 0),
  };
}

/**
 * All lines of a device that a filter finds, newest first by its clock. Fails with
 * `row_cap_exceeded` where they are more, or larger, than a file may be.
 */
export async function linesForFile(
  database: Database,
  deviceId: string,
  filter: LogFilter,
): Promise<StoredLine[]> {
  const lines: StoredLine[] = [];
  let bytes = 0;
  for (let after = filter.after; ; ) {
    const wanted = { ...filter, after, limit: PAGE_LINES_MAX };
    const page = await listLines(database, deviceId, wanted);
    lines.push(...page.items);
    bytes += page.bytes;
    if (lines.length > FILE_LINES_MAX) {
      const detail = `there are over ${FILE_LINES_MAX} lines: narrow the range by from and to`;
      throw new Failure("row_cap_exceeded", detail, { data: { rows_max: FILE_LINES_MAX } });
    }
    if (bytes > FILE_BYTES_MAX) {
      const detail = `the lines have over ${FILE_BYTES_MAX} bytes: narrow the range by from and to`;
      throw new Failure("row_cap_exceeded", detail, { data: { bytes_max: FILE_BYTES_MAX } });
    }
    if (page.next === null) return lines;
    after = positionOf(page.next);
  }
}

/** Lines as a Parquet file, one row each; objects and unnamed fields are JSON. */
export function linesFile(lines: readonly StoredLine[]): ArrayBuffer {
  const text = (of: (line: StoredLine) => string | null): ColumnSource["data"] => lines.map(of);
  const named = Object.keys(LogLine.shape).concat("boot_id", "received_at");
  const columnData: ColumnSource[] = [
    { name: "boot_id", data: text(({ boot_id }) => boot_id), type: "STRING", nullable: false },
    {
      name: "seq",
      data: BigInt64Array.from(lines, ({ seq }) => BigInt(seq)),
      type: "INT64",
      nullable: false,
    },
    {
      name: "time",
      data: lines.map(({ time }) => new Date(time)),
      type: "TIMESTAMP",
      nullable: false,
    },
    {
      name: "received_at",
      data: lines.map(({ received_at }) => new Date(received_at)),
      type: "TIMESTAMP",
      nullable: false,
    },
    { name: "kind", data: text(({ kind }) => kind), type: "STRING", nullable: false },
    { name: "source", data: text(({ source }) => source), type: "STRING" },
    {
      name: "frame",
      data: lines.map(({ frame }) => (frame === null ? null : BigInt(frame))),
      type: "INT64",
    },
    { name: "model_id", data: text(({ model_id }) => model_id), type: "STRING" },
    { name: "version", data: text(({ version }) => version), type: "STRING" },
    { name: "latency_ms", data: lines.map(({ latency_ms }) => latency_ms), type: "DOUBLE" },
    { name: "message", data: text(({ message }) => message), type: "STRING" },
    {
      name: "objects",
      data: text(({ objects }) => JSON.stringify(objects)),
      type: "STRING",
      nullable: false,
    },
    {
      name: "extra",
      data: text((line) =>
        JSON.stringify(
          Object.fromEntries(Object.entries(line).filter(([name]) => !named.includes(name))),
        ),
      ),
      type: "STRING",
      nullable: false,
    },
  ];
  return parquetWriteBuffer({ columnData });
}
