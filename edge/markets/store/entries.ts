// An entry of the vintage index: what one commit changed, and where that came from. While it is
// young it is a row of `vintage`; later it is one of an archived object, which any Parquet reader
// opens.

import { type SQL, sql } from "drizzle-orm";
import { parquetReadObjects, type SchemaElement } from "hyparquet";
import { type ColumnSource, parquetWriteBuffer } from "hyparquet-writer";
import { assert } from "../../../shared/errors.ts";
import { epochMs } from "../../http/database.ts";
import type { WrittenBy } from "./columns.ts";
import { fetchBytes, type StoreParts } from "./objects.ts";
import { INSTANT } from "./segment.ts";

/** One entry of a series' vintage index; instants in epoch milliseconds. */
export interface VintageEntry extends WrittenBy {
  library: string;
  symbol: string;
  sandbox: boolean;
  runId: string;
  partition: string;
  sourceUrl: string;
  /** When the provider published it, where it says so. */
  sourcePublishedAt: number | null;
  coveredFrom: number;
  coveredTo: number;
  validMin: number;
  validMax: number;
  inserted: number;
  revised: number;
  retracted: number;
  /** Rows of a full read at this vintage. */
  liveRows: number;
  /** SHA-256 of the canonical text of its changes, hexadecimal. */
  contentSha256: string;
}

/**
 * A position in the change feed: everything at or before it was delivered. `xact` "0" is no
 * transaction: then `seriesId` is an archived object's id and `seq` counts its entries.
 */
export interface FeedPosition {
  xact: string;
  seriesId: number;
  seq: number;
}

/** An entry, and where the feed has it. */
export type FeedEntry = VintageEntry & FeedPosition;

/** The fields of a `FeedEntry`, of a vintage `v` and its series `s`. */
export const entryFields: SQL = sql`
  v.seq::float8 AS seq, ${epochMs(sql`v.as_of`)} AS "asOf", v.reconstructed, s.library, s.symbol,
  s.sandbox, v.run_id AS "runId", v.partition, v.source_url AS "sourceUrl",
  ${epochMs(sql`v.source_published_at`)} AS "sourcePublishedAt",
  ${epochMs(sql`v.covered_from`)} AS "coveredFrom", ${epochMs(sql`v.covered_to`)} AS "coveredTo",
  ${epochMs(sql`v.valid_min`)} AS "validMin", ${epochMs(sql`v.valid_max`)} AS "validMax",
  v.inserted, v.revised, v.retracted, v.live_rows::float8 AS "liveRows",
  encode(v.content_sha256, 'hex') AS "contentSha256",
  v.xact::text AS xact, v.series_id AS "seriesId"`;

type Kind = "text" | "instant" | "count" | "flag";

/** The columns of an archived object: the field, and what the object names it. */
const COLUMNS: { [Field in keyof FeedEntry]: { name: string; kind: Kind; optional?: true } } = {
  library: { name: "library", kind: "text" },
  symbol: { name: "symbol", kind: "text" },
  seq: { name: "store_version", kind: "count" },
  asOf: { name: "as_of", kind: "instant" },
  reconstructed: { name: "vintage_reconstructed", kind: "flag" },
  sandbox: { name: "sandbox", kind: "flag" },
  runId: { name: "run_id", kind: "text" },
  partition: { name: "partition", kind: "text" },
  sourceUrl: { name: "source_url", kind: "text" },
  sourcePublishedAt: { name: "source_published_at", kind: "instant", optional: true },
  coveredFrom: { name: "covered_from", kind: "instant" },
  coveredTo: { name: "covered_to", kind: "instant" },
  validMin: { name: "first_datetime", kind: "instant" },
  validMax: { name: "last_datetime", kind: "instant" },
  inserted: { name: "inserted", kind: "count" },
  revised: { name: "revised", kind: "count" },
  retracted: { name: "retracted", kind: "count" },
  liveRows: { name: "rows", kind: "count" },
  contentSha256: { name: "content_sha256", kind: "text" },
  xact: { name: "xact", kind: "text" },
  seriesId: { name: "series_id", kind: "count" },
};
const FIELDS = Object.entries(COLUMNS) as [
  keyof FeedEntry,
  { name: string; kind: Kind; optional?: true },
][];

const ELEMENTS: Record<Kind, Omit<SchemaElement, "name">> = {
  text: { type: "BYTE_ARRAY", converted_type: "UTF8" },
  instant: INSTANT,
  count: { type: "INT64" },
  flag: { type: "BOOLEAN" },
};

/** Entries as a Parquet object, in their order. */
export function encodeEntries(entries: readonly FeedEntry[]): Uint8Array {
  const cell = (value: FeedEntry[keyof FeedEntry], kind: Kind) =>
    value !== null && (kind === "instant" || kind === "count") ? BigInt(value) : value;
  return new Uint8Array(
    parquetWriteBuffer({
      schema: [
        { name: "root", num_children: FIELDS.length },
        ...FIELDS.map(
          ([, { name, kind, optional }]): SchemaElement => ({
            name,
            ...ELEMENTS[kind],
            repetition_type: optional ? "OPTIONAL" : "REQUIRED",
          }),
        ),
      ],
      columnData: FIELDS.map(
        ([field, { name, kind }]): ColumnSource => ({
          name,
          data: entries.map((entry) => cell(entry[field], kind)),
        }),
      ),
    }),
  );
}

/**
 * The entries of an archived object, in their order, or some of their fields. Fails with
 * `store_unavailable`.
 */
export async function fetchEntries<Field extends keyof FeedEntry = keyof FeedEntry>(
  bucket: StoreParts["bucket"],
  objectKey: string,
  fields?: readonly Field[],
): Promise<Pick<FeedEntry, Field>[]> {
  const wanted = FIELDS.filter(([field]) => fields?.some((one) => one === field) ?? true);
  const file = await fetchBytes(bucket, objectKey);
  const rows = await parquetReadObjects({ file, columns: wanted.map(([, { name }]) => name) });
  return rows.map((row) => {
    const values = wanted.map(([field, { name, kind }]) => {
      const value: unknown = row[name];
      if (value === null || value === undefined) return [field, null];
      if (kind === "instant") {
        assert(value instanceof Date, `${objectKey} holds instants in ${name}`);
        return [field, value.getTime()];
      }
      return [field, kind === "count" ? Number(value) : value];
    });
    // The columns are those that `encodeEntries` wrote.
    return Object.fromEntries(values) as Pick<FeedEntry, Field>;
  });
}
