// A typed client of the markets read API, for any runtime with a `fetch`. One table names each
// method's path and query parameters; types and requests both follow from it, and a test compares
// it with the served /openapi.json. Replies have the types of the wire shapes; they are not parsed
// again at run time.

import type {
  ChangePage,
  CurveRecord,
  DiffRecord,
  GraphEntity,
  GraphNeighbourhood,
  Health,
  PanelRecord,
  Revisions,
  SeriesRecord,
  Snapshot,
  Vintage,
} from "../../../shared/wire/markets.ts";
import type { SymbolDescription } from "./symbols.ts";

/** An instant: a Date, or ISO 8601 text; a date alone means 00:00Z, no offset means UTC. */
export type Instant = Date | string;

/** What a query parameter takes; a list is sent with commas. */
interface Values {
  library: string;
  symbol: string;
  /** Symbols, or library/symbol. */
  symbols: string | readonly string[];
  /** Knowledge time; the latest vintage when omitted. */
  as_of: Instant;
  /** A named knowledge time, instead of `as_of`. */
  snapshot: string;
  /** Valid-time lower bound, inclusive. */
  start: Instant;
  /** Valid-time upper bound, inclusive. */
  end: Instant;
  /** Every version of every row, each with known_from and known_to. */
  includeHistory: boolean;
  /** ISO 8601 duration: per row, only what was known by its Datetime plus this. */
  as_of_offset: string;
  /** `true_only`: without the versions that backfills wrote. */
  vintage: "any" | "true_only";
  /** `full` adds store_version, source_url, source_published_at and run_id to each row. */
  provenance: "basic" | "full";
  /** The encoding of a raw response. */
  format: "json" | "ndjson" | "csv" | "parquet" | "arrow";
  /** Value column; the first when omitted. */
  column: string;
  /** IANA zone in which the panel's `local` shows Datetime. */
  time_zone: string;
  /** Earlier knowledge time of a difference. */
  from: Instant;
  /** Later knowledge time of a difference; the latest vintage when omitted. */
  to: Instant;
  /** ISO 8601 durations after Datetime. */
  lags: string | readonly string[];
  /** Only what was learned after this; the change feed also takes the `next` of a page. */
  since: Instant;
  /** A store_version. */
  after: number;
  /** Rows a page. */
  limit: number;
  commodity: string;
  label: string;
  instrument_id: string;
  /** Hops to follow, 1 to 3. */
  depth: number;
}

type Name = keyof Values;

interface Endpoint {
  path: `/${string}`;
  required: readonly Name[];
  optional: readonly Name[];
}

/** Every data endpoint by its method's name. */
export const ENDPOINTS = {
  health: { path: "/healthz", required: [], optional: [] },
  libraries: { path: "/libraries", required: [], optional: [] },
  symbols: { path: "/symbols", required: ["library"], optional: [] },
  describe: { path: "/symbols/describe", required: ["library"], optional: ["symbol"] },
  series: {
    path: "/series",
    required: ["library", "symbol"],
    optional: [
      ...["as_of", "snapshot", "start", "end", "includeHistory", "as_of_offset"],
      ...["vintage", "provenance", "format"],
    ],
  },
  curve: { path: "/curve", required: ["commodity"], optional: ["as_of"] },
  panel: {
    path: "/panel",
    required: ["symbols"],
    optional: [
      ...["library", "as_of", "snapshot", "start", "end", "as_of_offset", "vintage"],
      ...["column", "time_zone", "format"],
    ],
  },
  vintages: {
    path: "/vintages",
    required: ["library", "symbol"],
    optional: ["since", "as_of", "after", "limit"],
  },
  diff: {
    path: "/diff",
    required: ["library", "symbol", "from"],
    optional: ["to", "start", "end"],
  },
  revisions: {
    path: "/revisions",
    required: ["library", "symbol"],
    optional: ["as_of", "snapshot", "start", "end", "column", "lags"],
  },
  snapshots: { path: "/snapshots", required: [], optional: [] },
  changes: { path: "/changes", required: [], optional: ["since", "library", "limit"] },
  graphEntities: { path: "/graph/entities", required: [], optional: ["label"] },
  graphRelated: { path: "/graph/related", required: ["instrument_id"], optional: ["depth"] },
} as const satisfies Record<string, Endpoint>;

type Method = keyof typeof ENDPOINTS;
type Maybe<Some> = { [Key in keyof Some]?: Some[Key] | undefined };

/** The query of a method, by the names on the wire. */
export type Query<M extends Method> = Pick<Values, (typeof ENDPOINTS)[M]["required"][number]> &
  Maybe<Pick<Values, (typeof ENDPOINTS)[M]["optional"][number]>>;

/** A method for each endpoint. Every one throws a `MarketsError` when it is refused. */
export interface MarketsClient {
  /** Liveness, libraries and the newest knowledge time; needs no key. */
  health(): Promise<Health>;
  libraries(): Promise<string[]>;
  symbols(query: Query<"symbols">): Promise<string[]>;
  /** Names, units and clocks of symbols. */
  describe(query: Query<"describe">): Promise<SymbolDescription[]>;
  /** A series as it was known at `as_of`, ordered by Datetime; whole, so bound large reads. */
  series(query: Omit<Query<"series">, "format">): Promise<SeriesRecord[]>;
  /** A forward curve as it was known at `as_of`, by tenor. */
  curve(query: Query<"curve">): Promise<CurveRecord[]>;
  /** Many series at one knowledge time: a record an instant, a field per instrument. */
  panel(query: Omit<Query<"panel">, "format">): Promise<PanelRecord[]>;
  /** What a series learned when, oldest first, a page at a time. */
  vintages(query: Query<"vintages">): AsyncGenerator<Vintage[]>;
  /** Rows inserted, revised or retracted between the states at `from` and `to`. */
  diff(query: Query<"diff">): Promise<DiffRecord[]>;
  /** The revision triangle of one value column. */
  revisions(query: Query<"revisions">): Promise<Revisions>;
  /** Named knowledge times. */
  snapshots(): Promise<Snapshot[]>;
  /**
   * Commits to all series since an instant or an earlier page's `next`, a page at a time to the
   * end of the feed. The last page may be empty; keep its `next` to go on later.
   */
  changes(query?: Query<"changes">): AsyncGenerator<ChangePage>;
  /** Entities of the catalog graph, of one label where it is given. */
  graphEntities(query?: Query<"graphEntities">): Promise<GraphEntity[]>;
  /** What an instrument is connected to, and its siblings. */
  graphRelated(query: Query<"graphRelated">): Promise<GraphNeighbourhood>;
  /**
   * The raw response of a method: for its headers, as a stream, or in another `format`. With an
   * `If-None-Match` among the headers it may be a 304, which is no error.
   */
  response<M extends Method>(
    method: M,
    query: Query<M>,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Response>;
}

/** A series as it was known at one knowledge time. */
export interface SeriesState {
  records: SeriesRecord[];
  /** Knowledge time of the vintage that answered, to pin later reads to; null before the first. */
  asOf: string | null;
  /** The series' counter at that vintage; null before the first. */
  storeVersion: number | null;
  /** The store holds sandbox data, not a market's. */
  sandbox: boolean;
}

/** Where the read API is and how it is asked. */
export interface MarketsOptions {
  /** Where the read API is, such as http://localhost:8000. */
  baseUrl: string;
  /** Sent as X-API-Key. */
  apiKey?: string | undefined;
  /** Instead of the global one: for timeouts, retries or a service binding. */
  fetch?: (url: string, init: { headers: Record<string, string> }) => Promise<Response>;
}

/** A refused request: the error body of the answer. */
export class MarketsError extends Error {
  override readonly name = "MarketsError";
  readonly status: number;
  /** Stable, for programs; `unreadable` when something before the service answered. */
  readonly code: string;
  readonly detail: string;
  /** Also in the service's log; empty when there is none. */
  readonly request_id: string;
  /** The body's other fields, such as `rows` and `cap`. */
  readonly data: Readonly<Record<string, unknown>>;

  constructor(status: number, body: Readonly<Record<string, unknown>>) {
    const { code, detail, request_id, ...data } = body;
    super(`${status} ${code}: ${detail}`);
    this.status = status;
    this.code = String(code);
    this.detail = String(detail);
    this.request_id = String(request_id ?? "");
    this.data = data;
  }
}

/** A client of the read API at `baseUrl`. */
export function marketsClient({ baseUrl, apiKey, ...options }: MarketsOptions): MarketsClient {
  const send = options.fetch ?? ((url, init) => fetch(url, init));
  const root = baseUrl.replace(/\/+$/, "");
  const own = { accept: "application/json", ...(apiKey ? { "x-api-key": apiKey } : {}) };

  const response: MarketsClient["response"] = async (method, query, headers) => {
    const url = root + ENDPOINTS[method].path + search(query);
    // By lowercase name, so that the caller's headers replace ours.
    const given = Object.entries(headers ?? {}).map(([name, value]) => [name.toLowerCase(), value]);
    const answer = await send(url, { headers: { ...own, ...Object.fromEntries(given) } });
    if (!answer.ok && answer.status !== 304) throw await errorOf(answer);
    return answer;
  };
  const read = async <Reply, M extends Method>(method: M, query: Query<M>): Promise<Reply> =>
    (await response(method, query)).json() as Promise<Reply>;

  return {
    response,
    health: () => read("health", {}),
    libraries: () => read("libraries", {}),
    symbols: (query) => read("symbols", query),
    describe: (query) => read("describe", query),
    series: (query) => read("series", query),
    curve: (query) => read("curve", query),
    panel: (query) => read("panel", query),
    diff: (query) => read("diff", query),
    revisions: (query) => read("revisions", query),
    snapshots: () => read("snapshots", {}),
    graphEntities: (query = {}) => read("graphEntities", query),
    graphRelated: (query) => read("graphRelated", query),

    async *vintages(query) {
      let after = query.after;
      for (;;) {
        const answer = await response("vintages", { ...query, after });
        const page = (await answer.json()) as Vintage[];
        if (page.length > 0) yield page;
        if (!answer.headers.get("Link")?.includes('rel="next"')) return;
        after = page.at(-1)?.store_version;
      }
    },

    async *changes(query = {}) {
      let since = query.since;
      for (;;) {
        const page = await read<ChangePage, "changes">("changes", { ...query, since });
        yield page;
        if (!page.more) return;
        since = page.next;
      }
    },
  };
}

/** A series with what the headers of its answer say: which vintage answered, and of what store. */
export async function readSeriesState(
  client: Pick<MarketsClient, "response">,
  query: Omit<Query<"series">, "format">,
): Promise<SeriesState> {
  const answer = await client.response("series", query);
  const version = answer.headers.get("X-Store-Version");
  return {
    records: (await answer.json()) as SeriesRecord[],
    asOf: answer.headers.get("X-As-Of"),
    storeVersion: version === null ? null : Number(version),
    sandbox: answer.headers.get("X-Sandbox") === "true",
  };
}

function search(query: object): string {
  const pairs = Object.entries(query).flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [[name, value instanceof Date ? value.toISOString() : `${value}`]],
  );
  return pairs.length === 0 ? "" : `?${new URLSearchParams(pairs)}`;
}

async function errorOf(answer: Response): Promise<MarketsError> {
  const body: unknown = await answer.json().catch(() => null);
  if (typeof body === "object" && body !== null && "code" in body && "detail" in body) {
    return new MarketsError(answer.status, { ...body });
  }
  return new MarketsError(answer.status, {
    code: "unreadable",
    detail: "the answer holds no error body of this API",
    request_id: answer.headers.get("X-Request-Id") ?? "",
  });
}
