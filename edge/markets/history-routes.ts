// The routes of history: a series' vintages, the difference of two of its states, how its prints
// moved; snapshots, and the feed of all commits.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { whole } from "../../shared/scalars.ts";
import {
  DURATION_FORM,
  INSTANT_FORM,
  iso,
  parseDuration,
  parseInstant,
} from "../../shared/time.ts";
import { ChangePage, DiffRecord, Revisions, Snapshot, Vintage } from "../../shared/wire/markets.ts";
import { headers } from "../http/description.ts";
import { json } from "../http/route.ts";
import { namePart } from "../http/texts.ts";
import { cacheControl, send } from "./answer.ts";
import {
  bounds,
  columnOf,
  datetime,
  instant,
  knowledge,
  knowledgeTime,
  library,
  limit,
  symbol,
  window,
} from "./parameters.ts";
import { diffRecords, type Lag, revisionRows, revisionStatistics } from "./revisions.ts";
import { type Route, reader, route } from "./route.ts";
import type { FeedPosition, VintageEntry } from "./store/entries.ts";
import { overCap, type Reading } from "./store/store.ts";

const PAGE = 1_000;
const PAGE_MAX = 10_000;
/** Prints of a revision triangle, which is assembled in memory. */
const PRINTS_MAX = 50_000;
const LAGS = "PT1H,PT6H,P1D,P2D,P7D,P30D";
const LAGS_MAX = 20;
/** The `next` of a page of changes. */
const POSITION_FORM = "(\\d{1,19})~(\\d{1,9})~(\\d{1,15})";

const vintageRecord = (entry: VintageEntry): Vintage => ({
  store_version: entry.seq,
  as_of: iso(entry.asOf),
  vintage_reconstructed: entry.reconstructed,
  inserted: entry.inserted,
  revised: entry.revised,
  retracted: entry.retracted,
  rows: entry.liveRows,
  first_datetime: iso(entry.validMin),
  last_datetime: iso(entry.validMax),
  covered_from: iso(entry.coveredFrom),
  covered_to: iso(entry.coveredTo),
  partition: entry.partition,
  run_id: entry.runId,
  source_url: entry.sourceUrl,
  source_published_at: entry.sourcePublishedAt === null ? null : iso(entry.sourcePublishedAt),
  content_sha256: entry.contentSha256,
});

const named = headers("X-As-Of", "X-Sandbox", "ETag", "Vary");

async function* differences(reading: Reading, from: number) {
  const encoder = new TextEncoder();
  let opening = "[";
  for await (const batch of reading.versions()) {
    const records = [...diffRecords(batch, from, reading.valueColumns)];
    if (records.length === 0) continue;
    yield encoder.encode(opening + records.map((one) => JSON.stringify(one)).join());
    opening = ",";
  }
  yield encoder.encode(opening === "[" ? "[]" : "]");
}

function parseLags(text: string): Lag[] {
  const lags = text.split(",").map((part): Lag => {
    const ms = parseDuration(part);
    if (ms !== null) return { name: part.trim(), ms };
    const given = JSON.stringify(part.slice(0, 64));
    throw new Failure("invalid_request", `lags: ${given} is not an ISO 8601 duration such as PT1H`);
  });
  if (lags.length > LAGS_MAX) throw new Failure("invalid_request", `lags: at most ${LAGS_MAX}`);
  return lags;
}

const POSITION = new RegExp(`^${POSITION_FORM}$`);

function parsePosition(text: string): FeedPosition | null {
  const match = parseInstant(text) === null ? POSITION.exec(text) : null;
  if (!match) return null;
  return { xact: match[1] ?? "", seriesId: Number(match[2]), seq: Number(match[3]) };
}

/** Routes of history. */
export const historyRoutes: readonly Route[] = [
  route(
    {
      call: "GET /vintages",
      operationId: "listVintages",
      tag: "History",
      summary: "The vintages of a series: when it learned what, and from where",
      description:
        "Beyond the contract. Oldest first; the next page is in the Link header. `source_url` holds no " +
        "credential.",
      who: reader,
      query: z.object({
        library,
        symbol,
        since: datetime("only vintages learned after this", "2026-01-01"),
        as_of: knowledge.as_of,
        after: whole(0)
          .default(0)
          .meta({ description: "only vintages after this store_version", example: 0 }),
        limit: limit(PAGE, PAGE_MAX),
      }),
      answers: { 200: json("vintages", z.array(Vintage), headers("X-Sandbox", "Link")) },
      errors: [
        "bad_datetime",
        "unknown_library",
        "unknown_symbol",
        "unknown_snapshot",
        "row_cap_exceeded",
      ],
    },
    async (context) => {
      const { store, config } = context.var.service;
      const query = context.req.valid("query");
      const entries = await store.vintages({
        library: query.library,
        symbol: query.symbol,
        afterSeq: query.after,
        since: instant("since", query.since) ?? -Infinity,
        asOf: instant("as_of", query.as_of) ?? Infinity,
        limit: query.limit,
      });
      if (entries.some(({ sandbox }) => sandbox)) context.header("X-Sandbox", "true");
      context.header("Cache-Control", cacheControl({ immutable: false }, config));
      if (entries.length === query.limit) {
        const next = new URL(context.req.url);
        next.searchParams.set("after", String(entries.at(-1)?.seq));
        context.header("Link", `<${next.pathname}${next.search}>; rel="next"`);
      }
      return context.json(entries.map(vintageRecord), 200);
    },
  ),
  route(
    {
      call: "GET /diff",
      operationId: "readDiff",
      tag: "History",
      summary: "What changed in a series between two knowledge times",
      description:
        "Beyond the contract. Rows inserted, revised or retracted between the states at `from` and " +
        "`to`; a row that moved and came back is no difference.",
      who: reader,
      query: z.object({
        library,
        symbol,
        from: datetime("earlier knowledge time", "2026-01-31T06:00:00Z").nonoptional(),
        to: datetime("later knowledge time; the latest vintage when omitted", "2026-01-31"),
        ...window,
      }),
      answers: {
        200: json("differences, by Datetime and instrument_id", z.array(DiffRecord), named),
        304: {
          description: "the answer named by If-None-Match is still the answer",
          headers: named,
        },
      },
      errors: [
        "bad_datetime",
        "unknown_library",
        "unknown_symbol",
        "unknown_snapshot",
        "row_cap_exceeded",
        "busy",
      ],
    },
    async (context) => {
      const { store, config, largeReads } = context.var.service;
      const query = context.req.valid("query");
      const from = instant("from", query.from) as number;
      const to = instant("to", query.to);
      if (to !== undefined && from > to)
        throw new Failure("invalid_request", "from: lies after to");
      const reading = await store.read({
        library: query.library,
        symbol: query.symbol,
        asOf: to,
        ...bounds(query),
        rowsMax: config.SERVICE_SERIES_MAX_ROWS,
      });
      return send(context, {
        tag: `${reading.identity}-d${from}`,
        contentType: "application/json",
        compressible: true,
        immutable: reading.immutable,
        asOf: reading.asOf,
        sandbox: reading.sandbox,
        cacheable: false,
        body: () => largeReads.hold(differences(reading, from), reading.versionCount),
      });
    },
  ),
  route(
    {
      call: "GET /revisions",
      operationId: "readRevisions",
      tag: "History",
      summary: "The revision triangle of a series: valid time by lag",
      description:
        "Beyond the contract. Per row its first and latest print, every print in order, and what was " +
        "known at each lag after its Datetime; over all rows, how far the latest print moved. Rows " +
        "first written by a backfill are listed but left out of the statistics.",
      who: reader,
      query: z.object({
        library,
        symbol,
        ...knowledge,
        ...window,
        column: namePart().optional().meta({
          description: "value column; the first when omitted",
          example: "value",
        }),
        lags: z
          .string()
          .default(LAGS)
          .meta({
            description: `ISO 8601 durations after Datetime, by commas; at most ${LAGS_MAX}`,
            pattern: `^${DURATION_FORM}(?:,${DURATION_FORM}){0,${LAGS_MAX - 1}}$`,
            example: "PT1H,P1D",
          }),
      }),
      answers: { 200: json("the triangle", Revisions, headers("X-Sandbox")) },
      errors: [
        "bad_datetime",
        "unknown_library",
        "unknown_symbol",
        "unknown_snapshot",
        "row_cap_exceeded",
      ],
    },
    async (context) => {
      const { store, config } = context.var.service;
      const query = context.req.valid("query");
      const lags = parseLags(query.lags);
      const { asOf, pinned } = await knowledgeTime(store, query);
      const reading = await store.read({
        library: query.library,
        symbol: query.symbol,
        asOf,
        ...bounds(query),
        rowsMax: PRINTS_MAX,
      });
      const column = columnOf(reading.valueColumns, query.column);
      const rows: Revisions["rows"] = [];
      let prints = 0;
      for await (const batch of reading.versions()) {
        prints += batch.length;
        if (prints > PRINTS_MAX) throw overCap({ rows: prints, cap: PRINTS_MAX, history: true });
        rows.push(...revisionRows(batch, column, lags));
      }
      if (reading.sandbox) context.header("X-Sandbox", "true");
      context.header(
        "Cache-Control",
        cacheControl({ immutable: reading.immutable || pinned }, config),
      );
      const known = reading.asOf === null ? null : iso(reading.asOf);
      return context.json(
        {
          column: reading.valueColumns[column] as string,
          as_of: known,
          rows,
          statistics: revisionStatistics(rows, lags),
        },
        200,
      );
    },
  ),
  route(
    {
      call: "GET /snapshots",
      operationId: "listSnapshots",
      tag: "History",
      summary: "Named knowledge times",
      description:
        "Beyond the contract. `snapshot=<name>` reads at one, for the same answer ever after. Operators " +
        "create them.",
      who: reader,
      answers: { 200: json("snapshots, by name", z.array(Snapshot)) },
    },
    async (context) => {
      const snapshots = await context.var.service.store.snapshots();
      return context.json(
        snapshots.map(({ name, asOf, note, createdAt }) => ({
          name,
          as_of: iso(asOf),
          note,
          created_at: iso(createdAt),
        })),
        200,
      );
    },
  ),
  route(
    {
      call: "GET /changes",
      operationId: "readChanges",
      tag: "History",
      summary: "The feed of commits to all series",
      description:
        "Beyond the contract. `since` is a datetime to begin from, or the `next` of the last answer: " +
        "following `next` misses no commit and repeats none, even of commits that overlapped. A commit " +
        "is listed once all that began before it have ended. `more` says that the next page may have entries now.",
      who: reader,
      query: z.object({
        since: z
          .string()
          .default("1970-01-01")
          .meta({
            description: "a datetime, or `next` of an earlier answer",
            pattern: `^(?:${INSTANT_FORM}|${POSITION_FORM})$`,
            example: "2026-01-31",
          }),
        library: library.optional(),
        limit: limit(PAGE, PAGE_MAX),
      }),
      answers: { 200: json("commits", ChangePage) },
      errors: ["bad_datetime"],
    },
    async (context) => {
      const { library, limit, since } = context.req.valid("query");
      const from = parsePosition(since) ?? (instant("since", since) as number);
      const { entries, next, more } = await context.var.service.store.changes({
        since: from,
        library,
        limit,
      });
      return context.json(
        {
          changes: entries.map((entry) => ({
            library: entry.library,
            symbol: entry.symbol,
            sandbox: entry.sandbox,
            ...vintageRecord(entry),
          })),
          next: [next.xact, next.seriesId, next.seq].join("~"),
          more,
        },
        200,
      );
    },
  ),
];
