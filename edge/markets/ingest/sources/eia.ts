// EIA API v2: partition → requests → rows. No store, no clock, no environment.
//
// Facts it relies on: hourly `period` is the UTC hour ENDING; pages hold at most 5,000 rows and a
// short page is a warning, not an error; values are numbers, strings, null, "." or "NA"; the answer
// echoes the caller's key; before v2.1.10 an error body could come with HTTP 200.

import { z } from "zod";
import { Failure } from "../../../../shared/errors.ts";
import type { Secret } from "../../../../shared/secret.ts";
import { HOUR, iso, parseInstant } from "../../../../shared/time.ts";
import type { Range } from "../../store/plan.ts";
import { type Answer, type Fetcher, get } from "./upstream.ts";

export interface EiaAccess {
  /** `https://api.eia.gov/v2/`, or another host that speaks its format; ends in a slash. */
  baseUrl: string;
  apiKey: Secret;
  /** What `source_url` shows for `baseUrl`; a sandbox names itself here. */
  shownAs: string;
}

/** An hourly route of the API and how to ask it. */
export interface EiaQuery {
  /** Such as `electricity/rto/region-data`. */
  route: string;
  facets: Readonly<Record<string, readonly string[]>>;
  /** Fields that, with `period`, identify a row; they also give pages a total order. */
  keyFields: readonly string[];
  /** Valid time wanted, half-open, on the hour. */
  window: Range;
}

export interface EiaRow {
  /** The interval's START, epoch milliseconds. */
  datetime: number;
  key: Readonly<Record<string, string>>;
  /** NaN when the provider sent none. */
  value: number;
  unit: string;
}

export interface EiaRows {
  rows: EiaRow[];
  /** The first request, without its key. */
  sourceUrl: string;
}

export const EIA_BASE_URL = "https://api.eia.gov/v2/";
const PAGE_ROWS = 5_000;
const PAGES_MAX = 1_000;
const READINGS_MAX = 3;
const MISSING = new Set(["", ".", "NA"]);

const Page = z.object({
  response: z.object({
    total: z.coerce.number().int().nonnegative(),
    data: z.array(
      z.looseObject({
        period: z.string(),
        value: z.union([z.number(), z.string(), z.null()]),
        "value-units": z.string(),
      }),
    ),
  }),
});

const ErrorPage = z.object({
  error: z.union([z.string(), z.object({ code: z.string(), message: z.string().optional() })]),
});

/**
 * Fetches every page of a query. Fails with a coded `Failure` that never holds the key. Rows that
 * come or go between two pages shift the later ones and hide a row, which would look like a
 * retraction: such a reading is thrown away and started again.
 */
export async function fetchEia(
  access: EiaAccess,
  query: EiaQuery,
  fetcher: Fetcher,
): Promise<EiaRows> {
  for (let reading = 1; ; reading++) {
    const rows = await readPages(access, query, fetcher);
    if (rows) return { rows, sourceUrl: requestUrl(access.shownAs, query, 0) };
    if (reading === READINGS_MAX) {
      throw new Failure("upstream_truncated", "EIA's rows changed each time they were read");
    }
  }
}

/** The rows of all pages, or null when they did not fit together. */
async function readPages(access: EiaAccess, query: EiaQuery, fetcher: Fetcher) {
  const unique = new Map<string, EiaRow>();
  let announced: number | undefined;
  let received = 0;
  for (let page = 0; page < PAGES_MAX; page++) {
    const url = requestUrl(access.baseUrl, query, received);
    const withKey = `${url}&api_key=${encodeURIComponent(access.apiKey.reveal())}`;
    const { total, data } = readPage(await get(fetcher, "EIA", withKey));
    announced ??= total;
    if (total !== announced) return null;
    for (const [key, row] of readRows(data, query.keyFields)) {
      if (unique.has(key)) return null;
      unique.set(key, row);
    }
    received += data.length;
    if (received >= total) return received === total ? [...unique.values()] : null;
    if (data.length === 0) throw truncated(received, total);
  }
  throw new Failure("upstream_rejected", `EIA: the query needs more than ${PAGES_MAX} pages`);
}

const truncated = (received: number, total: number) =>
  new Failure("upstream_truncated", `EIA announced ${total} rows and sent ${received}`);

/**
 * The request of one page, without the key. Periods are hour-ending, so the window moves by an
 * hour.
 */
function requestUrl(base: string, query: EiaQuery, offset: number): string {
  const hourEnding = (start: number) => iso(start + HOUR).slice(0, 13);
  const parameters = [
    ["frequency", "hourly"],
    ["data[0]", "value"],
    ...Object.entries(query.facets).flatMap(([facet, values]) =>
      values.map((value) => [`facets[${facet}][]`, value]),
    ),
    ["start", hourEnding(query.window.from)],
    ["end", hourEnding(query.window.to - HOUR)],
    ...["period", ...query.keyFields].flatMap((column, index) => [
      [`sort[${index}][column]`, column],
      [`sort[${index}][direction]`, "asc"],
    ]),
    ["offset", String(offset)],
    ["length", String(PAGE_ROWS)],
  ];
  const text = parameters
    .map(([name, value]) => `${name}=${encodeURIComponent(value ?? "")}`)
    .join("&");
  return `${base}${query.route}/data/?${text}`;
}

function readPage({ status, text }: Answer): z.output<typeof Page>["response"] {
  const body = parseJson(text);
  const failed = ErrorPage.safeParse(body);
  if (failed.success || status >= 400) throw refusal(status, failed.data?.error);
  if (body === undefined)
    throw new Failure("upstream_truncated", "EIA sent a body that is not whole JSON");
  const page = Page.safeParse(body);
  if (!page.success) throw drift(page.error);
  return page.data.response;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** The failure for an error answer. Its texts are EIA's codes only: messages may quote the key. */
function refusal(status: number, error: z.output<typeof ErrorPage>["error"] | undefined): Failure {
  const code = typeof error === "object" ? error.code : "";
  if (code.startsWith("API_KEY")) {
    const detail = `EIA refused the key in EIA_API_KEY (HTTP ${status}, ${code})`;
    return new Failure("upstream_unauthorized", detail);
  }
  if (code === "OVER_RATE_LIMIT") {
    return new Failure(
      "upstream_unavailable",
      "EIA suspended the key for exceeding its rate limit",
    );
  }
  return new Failure("upstream_rejected", `EIA answered HTTP ${status}${code && ` (${code})`}`);
}

function drift(error: z.core.$ZodError): Failure {
  const fields = error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`);
  return new Failure(
    "upstream_schema_drift",
    `EIA changed its format: ${fields.slice(0, 3).join("; ")}`,
  );
}

/** The rows of one page. A row sent twice is one row; sent with two values it is a fault. */
function readRows(data: readonly PageRecord[], keyFields: readonly string[]): Map<string, EiaRow> {
  const rows = new Map<string, EiaRow>();
  for (const record of data) {
    const row = readRow(record, keyFields);
    const names = Object.values(row.key).join(" ");
    const key = `${row.datetime} ${names}`;
    const known = rows.get(key);
    if (known && !Object.is(known.value, row.value)) {
      const detail = `EIA sent two values for ${names} at ${record.period}`;
      throw new Failure("upstream_schema_drift", detail);
    }
    rows.set(key, row);
  }
  return rows;
}

type PageRecord = z.output<typeof Page>["response"]["data"][number];

function readRow(record: PageRecord, keyFields: readonly string[]): EiaRow {
  const period = /^\d{4}-\d\d-\d\dT\d\d$/.test(record.period)
    ? parseInstant(`${record.period}:00`)
    : null;
  if (period === null) throw fieldDrift("period", record.period);
  const key = keyFields.map((field) => {
    const value = record[field];
    if (typeof value !== "string" || value === "") throw fieldDrift(field, value);
    return [field, value] as const;
  });
  return {
    datetime: period - HOUR,
    key: Object.fromEntries(key),
    value: readValue(record.value),
    unit: record["value-units"],
  };
}

function readValue(raw: string | number | null): number {
  if (raw === null || (typeof raw === "string" && MISSING.has(raw.trim()))) return NaN;
  const value = Number(raw);
  if (!Number.isFinite(value)) throw fieldDrift("value", raw);
  // −0 and 0 are one value.
  return value + 0;
}

const fieldDrift = (field: string, value: unknown) => {
  const shown =
    value === undefined ? "missing" : `unexpected ${JSON.stringify(value).slice(0, 40)}`;
  return new Failure("upstream_schema_drift", `EIA changed its format: \`${field}\` is ${shown}`);
};
