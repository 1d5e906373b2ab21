// Reading the bitemporal store: the state of a symbol as it was known at an `as_of`. Reads never
// see data learned after `as_of`: the cut is made on the catalog, before any byte is opened.

import type { R2Bucket } from "@cloudflare/workers-types";
import { Failure } from "../../../shared/errors.ts";
import type { Database } from "../../http/database.ts";
import { listLibraries, listSymbols, overview, type Plan, planRead } from "./catalog.ts";
import { mergeDeltas, type Range, type StoredRow } from "./plan.ts";
import { decodeInline, decodeSegment } from "./segment.ts";

export interface StoreParts {
  database: Database;
  bucket: Pick<R2Bucket, "get">;
}

export interface ReadRequest {
  library: string;
  symbol: string;
  /** Knowledge time; the latest vintage when omitted. */
  asOf?: number | undefined;
  /** Valid-time bounds, both inclusive; a read with neither is unbounded. */
  start?: number | undefined;
  end?: number | undefined;
  /** Cap on the rows of an unbounded read. */
  rowsMax?: number | undefined;
}

export interface Reading {
  /** Names the answer: equal for equal bytes, whatever the `as_of` that asked for it. */
  identity: string;
  /** True when no later commit can change the answer: its `as_of` is not after the head's. */
  settled: boolean;
  /** Opens the objects and merges; not called for an answer the reader holds already. */
  rows: () => Promise<StoredRow[]>;
  valueColumns: string[];
  /** The vintage that answered; 0 and null before the first one. */
  seq: number;
  asOf: number | null;
  sandbox: boolean;
}

const OBJECTS_AT_ONCE = 6;

/** The verbs of a reader. */
export interface Store {
  libraries(): Promise<string[]>;
  /** Symbols with their newest valid times; fails with `unknown_library`. */
  symbols(library: string): Promise<{ symbol: string; validMax: number }[]>;
  /** Fails with `unknown_library`, `unknown_symbol` or `row_cap_exceeded`. */
  read(request: ReadRequest): Promise<Reading>;
  overview(): Promise<{ libraries: string[]; latestAsOf: number | null; sandbox: boolean }>;
}

export const openStore = (parts: StoreParts): Store => ({
  libraries: () => listLibraries(parts.database),
  symbols: (library) => symbols(parts, library),
  read: (request) => read(parts, request),
  overview: () => overview(parts.database),
});

async function symbols({ database }: StoreParts, library: string) {
  const found = await listSymbols(database, library);
  if (found.length === 0) throw unknownLibrary(library);
  return found;
}

async function read(parts: StoreParts, request: ReadRequest): Promise<Reading> {
  const { library, symbol, asOf = Infinity, start, end, rowsMax = Infinity } = request;
  const bounded = start !== undefined || end !== undefined;
  const range = { from: start ?? -Infinity, to: (end ?? Infinity) + 1 };
  const cap = bounded || rowsMax === Infinity ? {} : { rowsMax };
  const plan = await planRead(parts.database, { library, symbol, asOf, range, ...cap });
  if (!plan) throw await unknownSeries(parts, library, symbol);
  if (!bounded && plan.liveRows > rowsMax) throw overCap(plan.liveRows, rowsMax);
  const { valueColumns, seq, sandbox } = plan;
  return {
    // The vintage's time tells a series from one of the same number in a store started over.
    identity: [plan.seriesId, seq, plan.asOf ?? 0, start ?? "", end ?? ""].join("-"),
    settled: asOf <= plan.headAsOf,
    rows: () => stateOf(parts, plan, range),
    ...{ valueColumns, seq, asOf: plan.asOf, sandbox },
  };
}

/** The rows of a plan's vintage inside a range. */
export async function stateOf(parts: StoreParts, plan: Plan, range: Range): Promise<StoredRow[]> {
  const deltas = plan.inline.map(({ rows, ...vintage }) => ({
    ...vintage,
    rows: decodeInline(rows),
  }));
  for (let index = 0; index < plan.segments.length; index += OBJECTS_AT_ONCE) {
    const batch = plan.segments.slice(index, index + OBJECTS_AT_ONCE);
    const opened = batch.map(async ({ objectKey, ...vintage }) => {
      const file = await fetchObject(parts, objectKey);
      return { ...vintage, rows: await decodeSegment(file, plan.valueColumns) };
    });
    deltas.push(...(await Promise.all(opened)));
  }
  return mergeDeltas(deltas, range);
}

async function fetchObject({ bucket }: StoreParts, key: string): Promise<ArrayBuffer> {
  const object = await bucket.get(key).catch((cause: unknown) => {
    throw new Failure("store_unavailable", "the object store does not answer", { cause });
  });
  if (!object) throw new Error(`the catalog names ${key}, the object store lacks it`);
  return object.arrayBuffer();
}

const unknownLibrary = (library: string) =>
  new Failure(
    "unknown_library",
    `unknown library ${JSON.stringify(library)}; GET /libraries lists them`,
  );

async function unknownSeries({ database }: StoreParts, library: string, symbol: string) {
  const known = await listLibraries(database);
  if (!known.includes(library)) return unknownLibrary(library);
  const detail = `unknown symbol ${JSON.stringify(symbol)} in ${library}; GET /symbols?library=${library} lists them`;
  return new Failure("unknown_symbol", detail);
}

const overCap = (rows: number, cap: number) =>
  new Failure(
    "row_cap_exceeded",
    `the full history has ${rows} rows, over the cap of ${cap}; narrow the read with start and/or end`,
    { data: { rows, cap } },
  );
