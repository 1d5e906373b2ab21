// EIA API v2: partition → requests → rows. No store, no clock, no environment.
//
// Facts it relies on: hourly `period` is the UTC hour ENDING, every other period is the day or
// month itself; `start` and `end` are inclusive and compared as texts; pages hold at most 5,000
// rows and a short page is a warning, not an error; values are numbers, strings, null, "." or "NA";
// the field of the unit has three names; the answer echoes the caller's key; before v2.1.10 an
// error body could come with HTTP 200.

import { z } from "zod";
import { Failure } from "../../../../shared/errors.ts";
import { whole } from "../../../../shared/scalars.ts";
import type { Secret } from "../../../../shared/secret.ts";
import { addMonths, DAY, HOUR, iso, parseInstant } from "../../../../shared/time.ts";
import type { Range } from "../../store/rows.ts";
import { driftFailure, shapeDrift } from "./drift.ts";
import { decimalOf, LeftOut } from "./left-out.ts";
import { type Answer, type Fetcher, get, type Provider } from "./upstream.ts";

/** The way to the API. */
export interface EiaAccess {
  /** `https://api.eia.gov/v2/`, or another host that speaks its format; ends in a slash. */
  baseUrl: string;
  apiKey: Secret;
  /** What `source_url` shows for `baseUrl`; a sandbox names itself here. */
  shownAs: string;
}

/** How often a route has a value. */
export type Frequency = "hourly" | "daily" | "weekly" | "monthly";

/** A route of the API and how to ask it. */
export interface EiaQuery {
  /** Such as `electricity/rto/region-data`. */
  route: string;
  frequency: Frequency;
  facets: Readonly<Record<string, readonly string[]>>;
  /** Fields that, with `period`, identify a row; they also give pages a total order. */
  keyFields: readonly string[];
  /** Valid time wanted, half-open. */
  window: Range;
}

/** A row of a route. */
export interface EiaRow {
  /** The interval's START, or 00:00Z of a date, epoch milliseconds. */
  datetime: number;
  /** Shared by all rows of one key. */
  key: Readonly<Record<string, string>>;
  /** NaN when the provider sent none. */
  value: number;
  unit: string;
}

/** The rows of a query with their origin. */
export interface EiaRows {
  rows: EiaRow[];
  /** The first request, without its key. */
  sourceUrl: string;
  leftOut: LeftOut;
}

/** The real API. */
export const EIA_BASE_URL = "https://api.eia.gov/v2/";
const PAGE_ROWS = 5_000;
/** A page of the widest route has some 2 MB. */
const EIA: Provider = { name: "EIA", bytesMax: 16 * 1024 ** 2 };
const PAGES_MAX = 1_000;
const READINGS_MAX = 3;
const MISSING = new Set(["", ".", "NA"]);
/** Its name on the grid's routes, on those of gas and petroleum, and on the outlook's. */
const UNIT_FIELDS = ["value-units", "units", "unit"] as const;

interface Period {
  pattern: RegExp;
  /** Completes a period to what `parseInstant` reads. */
  completion: string;
  /** From the start of the interval to the instant its period names. */
  shiftMs: number;
  /** The first start of an interval at or after an instant. */
  firstFrom: (instant: number) => number;
}

const upTo = (step: number) => (instant: number) => Math.ceil(instant / step) * step;
const CALENDAR: Period = {
  pattern: /^\d{4}-\d\d-\d\d$/,
  completion: "",
  shiftMs: 0,
  firstFrom: upTo(DAY),
};
const PERIODS: Readonly<Record<Frequency, Period>> = {
  hourly: {
    pattern: /^\d{4}-\d\d-\d\dT\d\d$/,
    completion: ":00",
    shiftMs: HOUR,
    firstFrom: upTo(HOUR),
  },
  daily: CALENDAR,
  weekly: CALENDAR,
  monthly: {
    pattern: /^\d{4}-\d\d$/,
    completion: "-01",
    shiftMs: 0,
    firstFrom: (instant) => addMonths(instant - 1, 1),
  },
};
const PERIOD_CHARACTERS: Readonly<Record<Frequency, number>> = {
  hourly: 13,
  daily: 10,
  weekly: 10,
  monthly: 7,
};

const Page = z.object({
  response: z.object({
    total: whole(0),
    data: z.array(z.record(z.string(), z.unknown())),
  }),
});

const ErrorPage = z.object({
  error: z.union([z.string(), z.object({ code: z.string(), message: z.string().optional() })]),
  /** The HTTP status that it means, where the answer's own is another. */
  code: z.number().optional(),
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
    const leftOut = new LeftOut();
    const rows = await readPages(access, query, { fetcher, leftOut });
    if (rows) return { rows, sourceUrl: requestUrl(access.shownAs, query, 0), leftOut };
    if (reading === READINGS_MAX) {
      throw new Failure("upstream_truncated", "EIA's rows changed each time they were read");
    }
  }
}

/** The rows of all pages, or null when they did not fit together. */
async function readPages(
  access: EiaAccess,
  query: EiaQuery,
  { fetcher, leftOut }: { fetcher: Fetcher; leftOut: LeftOut },
) {
  const collected = openCollection(query, leftOut);
  let announced: number | undefined;
  let received = 0;
  for (let page = 0; page < PAGES_MAX; page++) {
    const url = requestUrl(access.baseUrl, query, received);
    const withKey = `${url}&api_key=${encodeURIComponent(access.apiKey.reveal())}`;
    const { total, data } = readPage(await get(fetcher, EIA, withKey));
    announced ??= total;
    if (total !== announced || !collected.add(data)) return null;
    received += data.length;
    if (received > total) return null;
    if (received === total) {
      leftOut.assertFormat();
      return collected.rows();
    }
    if (data.length === 0) throw truncated(received, total);
  }
  throw new Failure("upstream_rejected", `EIA: the query needs more than ${PAGES_MAX} pages`);
}

const truncated = (received: number, total: number) =>
  new Failure("upstream_truncated", `EIA announced ${total} rows and sent ${received}`);

/** The request of one page, without the key. */
function requestUrl(base: string, query: EiaQuery, offset: number): string {
  const { shiftMs, firstFrom } = PERIODS[query.frequency];
  const period = (start: number) =>
    iso(start + shiftMs).slice(0, PERIOD_CHARACTERS[query.frequency]);
  const parameters = [
    ["frequency", query.frequency],
    ["data[0]", "value"],
    ...Object.entries(query.facets).flatMap(([facet, values]) =>
      values.map((value) => [`facets[${facet}][]`, value]),
    ),
    ["start", period(firstFrom(query.window.from))],
    ["end", period(query.window.to - 1)],
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
  if (failed.success || status >= 400) throw refusal(status, failed.data);
  if (body === undefined)
    throw new Failure("upstream_truncated", "EIA sent a body that is not whole JSON");
  const page = Page.safeParse(body);
  if (!page.success) throw shapeDrift("EIA", page.error, body);
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
function refusal(status: number, page: z.output<typeof ErrorPage> | undefined): Failure {
  const code = typeof page?.error === "object" ? page.error.code : "";
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
  const detail = `EIA answered HTTP ${status}${code && ` (${code})`}`;
  // An error under a status of success says nothing of the request, unless its own status does.
  const meant = status < 400 ? (page?.code ?? 500) : status;
  if (meant >= 500) return new Failure("upstream_unavailable", `${detail} with an error in it`);
  return new Failure("upstream_rejected", detail);
}

type PageRecord = z.output<typeof Page>["response"]["data"][number];

/** The rows of one key. */
interface KeyRows {
  key: EiaRow["key"];
  /** Index, among all rows, of the row of a Datetime. */
  indexes: Map<number, number>;
}

/**
 * Collects rows page by page, keeping of a page no more than its rows: ten days of the grid are
 * 150,000 of them, and the process is a small one.
 */
function openCollection({ frequency, keyFields }: EiaQuery, leftOut: LeftOut) {
  const rows: EiaRow[] = [];
  /** Indexes of rows that came again with another value. */
  const contradicted = new Set<number>();
  const byNames = new Map<string, KeyRows>();
  const units = new Map<string, string>();
  const rowsOfKey = (record: PageRecord): KeyRows => {
    const names = keyFields.map((field) => nameOf(record, field));
    const joined = names.join(" ");
    const known = byNames.get(joined);
    if (known) return known;
    const key = Object.fromEntries(keyFields.map((field, index) => [field, names[index] ?? ""]));
    const own = { key, indexes: new Map<number, number>() };
    byNames.set(joined, own);
    return own;
  };
  const read = (record: PageRecord) => ({
    datetime: readPeriod(record, frequency),
    ...rowsOfKey(record),
    unit: unitOf(record),
    value: readValue(record),
  });
  return {
    rows: () => (contradicted.size > 0 ? rows.filter((_, at) => !contradicted.has(at)) : rows),
    /**
     * Adds a page; false when it repeats a row of an earlier one. A row sent twice on one page is
     * one row; sent with two values it is left out.
     */
    add(data: readonly PageRecord[]): boolean {
      const pageFrom = rows.length;
      for (const { key, indexes, datetime, unit, value } of leftOut.rows(data, read, {
        isPart: true,
      })) {
        const index = indexes.get(datetime);
        if (index !== undefined && index < pageFrom) return false;
        if (index === undefined) {
          indexes.set(datetime, rows.length);
          // All rows share one text of a unit, or each would hold a copy of its own.
          if (!units.has(unit)) units.set(unit, unit);
          rows.push({ datetime, key, value, unit: units.get(unit) ?? unit });
        } else if (!contradicted.has(index) && !Object.is(rows[index]?.value, value)) {
          contradicted.add(index);
          const names = Object.values(key).join(" ").slice(0, 60);
          const where = `two values for ${names} at ${iso(datetime)}`;
          leftOut.add("contradicting_rows", where);
        }
      }
      return true;
    },
  };
}

function nameOf(record: PageRecord, field: string): string {
  const value = record[field];
  if (typeof value !== "string" || value === "") throw fieldDrift(field, record);
  return value;
}

function unitOf(record: PageRecord): string {
  const field = UNIT_FIELDS.find((name) => record[name] !== undefined);
  const unit = field === undefined ? undefined : record[field];
  if (typeof unit === "string") return unit;
  if (unit === null) return "";
  throw fieldDrift(field ?? UNIT_FIELDS.join("` or `"), record);
}

/** The start of the interval that a period names. */
function readPeriod(record: PageRecord, frequency: Frequency): number {
  const { pattern, completion, shiftMs } = PERIODS[frequency];
  const { period } = record;
  const isPeriod = typeof period === "string" && pattern.test(period);
  const instant = isPeriod ? parseInstant(`${period}${completion}`) : null;
  if (instant === null) throw fieldDrift("period", record);
  return instant - shiftMs;
}

function readValue(record: PageRecord): number {
  const raw = record.value;
  if (raw === null || (typeof raw === "string" && MISSING.has(raw.trim()))) return NaN;
  const value = typeof raw === "string" ? decimalOf(raw) : raw;
  if (typeof value !== "number" || !Number.isFinite(value)) throw fieldDrift("value", record);
  // −0 and 0 are one value.
  return value + 0;
}

const fieldDrift = (field: string, record: PageRecord) => {
  const value = record[field];
  const shown =
    value === undefined ? "missing" : `unexpected ${JSON.stringify(value).slice(0, 40)}`;
  const at = field === "period" ? "" : ` in the row of ${String(record.period).slice(0, 20)}`;
  return driftFailure("EIA", `\`${field}\` is ${shown}${at}`, record);
};
