// Twelve Data: symbol and window → pages of five-minute bars. No store, no clock, no environment.
//
// Facts it relies on: the key goes into a header; times are those at which bars open, UTC where it
// is asked for; numbers are strings; an error is a `code` in the body, often with HTTP 200; a day
// without trading is error 400, not an empty list; the last bar may still be in progress; an
// answer holds at most 5,000 bars and does not say that there are more.

import { z } from "zod";
import { Failure } from "../../../../shared/errors.ts";
import type { Secret } from "../../../../shared/secret.ts";
import { iso, MINUTE, parseInstant } from "../../../../shared/time.ts";

import type { Range } from "../../store/rows.ts";
import { driftFailure, shapeDrift } from "./drift.ts";
import { decimalOf, LeftOut } from "./left-out.ts";
import { type Answer, type Fetcher, get, type Provider } from "./upstream.ts";

/** The way to the API. */
export interface TwelveDataAccess {
  /** `https://api.twelvedata.com/`, or another host that speaks its format; ends in a slash. */
  baseUrl: string;
  apiKey: Secret;
  /** What `source_url` shows for `baseUrl`. */
  shownAs: string;
}

/** A five-minute bar; prices in dollars, volume in shares. */
export interface Bar {
  /** When it opens. */
  datetime: number;
  open: number;
  high: number;
  low: number;
  close: number;
  volume: number;
}

/** Which bars are fetched. */
export interface BarsQuery {
  symbol: string;
  /** Bars that open inside it. */
  window: Range;
  now: number;
}

/** The real API. */
export const TWELVE_DATA_BASE_URL = "https://api.twelvedata.com/";
/** Length of a bar, milliseconds. */
export const BAR_MS = 5 * MINUTE;
const PAGE_BARS = 5_000;
const PAGES_MAX = 100;
/** A page of 5,000 bars has some 1 MB. */
const TWELVE_DATA: Provider = { name: "Twelve Data", bytesMax: 8 * 1024 ** 2 };
const RATE_WAIT_SECONDS = 60;

const Page = z.object({
  meta: z.object({ symbol: z.string(), interval: z.literal("5min") }),
  values: z.array(z.record(z.string(), z.unknown())),
});

const ErrorBody = z.object({ status: z.literal("error"), code: z.number(), message: z.string() });

/**
 * Fetches the bars that are over, oldest first. Fails with a coded `Failure` that never holds the
 * key.
 */
export async function fetchBars(
  access: TwelveDataAccess,
  { symbol, window, now }: BarsQuery,
  fetcher: Fetcher,
): Promise<{ bars: Bar[]; sourceUrl: string; leftOut: LeftOut }> {
  const headers = { Authorization: `apikey ${access.apiKey.reveal()}` };
  const bars: Bar[] = [];
  const leftOut = new LeftOut();
  let from = window.from;
  for (let page = 0; from < window.to; page++) {
    if (page === PAGES_MAX)
      throw new Failure("upstream_rejected", `Twelve Data: more than ${PAGES_MAX} pages of bars`);
    const path = requestPath(symbol, { from, to: window.to });
    const answer = await get(fetcher, TWELVE_DATA, `${access.baseUrl}${path}`, headers);
    const { sent, bars: next } = readPage(answer, { symbol, from, leftOut });
    bars.push(...next);
    if (sent < PAGE_BARS) break;
    from = (next.at(-1)?.datetime ?? window.to) + BAR_MS;
  }
  return {
    bars: bars.filter(({ datetime }) => datetime + BAR_MS <= now),
    leftOut,
    sourceUrl: `${access.shownAs}${requestPath(symbol, window)}`,
  };
}

/** Both ends of the provider's range are included. */
function requestPath(symbol: string, { from, to }: Range): string {
  const wire = (instant: number) => iso(instant).slice(0, 19).replace("T", " ");
  const query = new URLSearchParams({
    symbol,
    interval: "5min",
    start_date: wire(from),
    end_date: wire(to - BAR_MS),
    timezone: "UTC",
    order: "ASC",
    outputsize: String(PAGE_BARS),
  });
  return `time_series?${query}`;
}

/** The bars of a page, oldest first whatever order they came in, and how many were sent. */
function readPage(
  { status, text }: Answer,
  { symbol, from, leftOut }: { symbol: string; from: number; leftOut: LeftOut },
): { bars: Bar[]; sent: number } {
  const body = parseJson(text);
  const refused = ErrorBody.safeParse(body);
  if (refused.success) return readRefusal(refused.data);
  if (status >= 400) throw refusal(status);
  if (body === undefined)
    throw new Failure("upstream_truncated", "Twelve Data sent a body that is not whole JSON");
  const page = Page.safeParse(body);
  if (!page.success) throw shapeDrift("Twelve Data", page.error, body);
  const { meta, values } = page.data;
  if (meta.symbol.toUpperCase() !== symbol.toUpperCase())
    throw drift(`\`meta.symbol\` is ${JSON.stringify(meta.symbol)}, not ${symbol}`);
  const bars = leftOut
    .distinct(leftOut.rows(values, readBar), {
      keyOf: ({ datetime }) => datetime,
      isAlike: (one, other) => JSON.stringify(one) === JSON.stringify(other),
      named: ({ datetime }) => `${symbol} at ${iso(datetime)}`,
    })
    .sort((left, right) => left.datetime - right.datetime);
  const stray = bars.find(({ datetime }) => datetime < from);
  if (stray) throw drift(`a bar of ${iso(stray.datetime)} came where ${iso(from)} was the first`);
  return { bars, sent: values.length };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** No bars where there was no trading; else the failure. Its message may quote what was sent. */
function readRefusal({ code, message }: z.output<typeof ErrorBody>): { bars: Bar[]; sent: number } {
  if (code === 400 && /no data is available/i.test(message)) return { bars: [], sent: 0 };
  throw refusal(code);
}

function refusal(code: number): Failure {
  if (code === 401) {
    const detail = "Twelve Data refused the key in TWELVE_DATA_API_KEY (401)";
    return new Failure("upstream_unauthorized", detail);
  }
  if (code === 429) {
    const detail = "Twelve Data: the credits of this minute or day are used up";
    const data = { retry_after_s: RATE_WAIT_SECONDS };
    return new Failure("upstream_unavailable", detail, { data });
  }
  const failed = code >= 500 ? "upstream_unavailable" : "upstream_rejected";
  return new Failure(failed, `Twelve Data answered with code ${code}`);
}

function readBar(record: z.output<typeof Page>["values"][number]): Bar {
  const opens = record.datetime;
  const isTime = typeof opens === "string" && /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/.test(opens);
  const datetime = isTime ? parseInstant(opens) : null;
  if (datetime === null) throw fieldDrift("datetime", opens, opens);
  const number = (field: "open" | "high" | "low" | "close" | "volume") => {
    const text = record[field];
    const value = typeof text === "string" ? decimalOf(text) : null;
    if (value === null) throw fieldDrift(field, text, opens);
    return value;
  };
  return {
    datetime,
    open: number("open"),
    high: number("high"),
    low: number("low"),
    close: number("close"),
    volume: number("volume"),
  };
}

const fieldDrift = (field: string, value: unknown, opens: unknown) => {
  const shown = value === undefined ? "missing" : JSON.stringify(value).slice(0, 40);
  return drift(`\`${field}\` is ${shown} in the bar of ${String(opens).slice(0, 20)}`);
};

const drift = (what: string) => driftFailure("Twelve Data", what);
