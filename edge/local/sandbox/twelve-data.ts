// Twelve Data's wire format over funds of our own: five-minute bars of New York's sessions, shorter
// ones before holidays, the bar in progress at the end, volumes that are corrected overnight,
// strings for numbers, and errors as a code in a body with HTTP 200.

import { DAY, HOUR, iso, MINUTE, parseInstant } from "../../../shared/time.ts";
import { isTradingDay } from "../../markets/store/trading-days.ts";
import type { SandboxAnswer, SandboxProvider, SandboxRequest } from "./answers.ts";
import { chance } from "./demand.ts";

interface Fund {
  price: number;
  /** Standard deviation of a day's return. */
  risk: number;
  volume: number;
}

const FUNDS: Readonly<Record<string, Fund>> = {
  UNG: { price: 13.6, risk: 0.034, volume: 70_000 },
  USO: { price: 74, risk: 0.02, volume: 45_000 },
  XLE: { price: 88, risk: 0.014, volume: 190_000 },
  XLU: { price: 79, risk: 0.009, volume: 130_000 },
};
const BAR_MS = 5 * MINUTE;
const HISTORY_FROM = Date.UTC(2020, 1, 10);
const BARS_MAX = 5_000;
const BARS_DEFAULT = 30;
const OPENS = 9.5 * HOUR;
const [CLOSES, CLOSES_EARLY] = [16 * HOUR, 13 * HOUR];

interface Bar {
  datetime: number;
  open: number;
  high: number;
  low: number;
  close: number;
  volume: number;
}

const refuse = (code: number, message: string): SandboxAnswer => ({
  status: 200,
  body: { code, message, status: "error" },
});

/** Twelve Data's part of the sandbox. */
export const twelveDataSandbox: SandboxProvider = {
  answer: answerTwelveData,
  drifted: ({ body, ...answer }) => ({
    ...answer,
    body: JSON.stringify(body).replaceAll('"close":', '"last":'),
  }),
  refusal: refuse(401, "**apikey** parameter is incorrect or not specified."),
};

/** Answers one request as Twelve Data would at `now`. */
export function answerTwelveData(
  { url, headers }: Pick<SandboxRequest, "url" | "headers">,
  now: number,
): SandboxAnswer {
  const query = url.searchParams;
  const key = /^apikey (.*)$/.exec(headers.authorization ?? "")?.[1] ?? query.get("apikey");
  if (key !== "sandbox") return refuse(401, "**apikey** parameter is incorrect or not specified.");
  if (url.pathname !== "/twelve_data/time_series")
    return refuse(404, "The endpoint was not found.");
  const symbol = query.get("symbol")?.toUpperCase() ?? "";
  const fund = FUNDS[symbol];
  if (!fund) return refuse(404, "**symbol** or **figi** parameter is missing or invalid.");
  if (query.get("interval") !== "5min" || query.get("timezone") !== "UTC")
    return refuse(400, "The sandbox answers interval=5min and timezone=UTC.");
  const [from, to] = [boundOf(query.get("start_date")), boundOf(query.get("end_date"))];
  const size = Number(query.get("outputsize") ?? BARS_DEFAULT);
  if (from === null || to === null || !(size >= 1 && size <= BARS_MAX))
    return refuse(400, "Invalid **start_date**, **end_date** or **outputsize** provided.");
  const ascending = query.get("order")?.toUpperCase() === "ASC";
  const bars = barsBetween(symbol, fund, { from: Math.max(from, HISTORY_FROM), to, now });
  // The oldest are cut from an ascending answer's end, the newest kept of a descending one.
  const page = ascending ? bars.slice(0, size) : bars.reverse().slice(0, size);
  if (page.length === 0)
    return refuse(400, "No data is available on the specified dates. Try setting different dates.");
  return { status: 200, body: { meta: metaOf(symbol), values: page.map(wireOf), status: "ok" } };
}

const boundOf = (text: string | null) =>
  text === null ? null : parseInstant(text.replace(" ", "T"));

const metaOf = (symbol: string) => ({
  symbol,
  interval: "5min",
  currency: "USD",
  exchange_timezone: "America/New_York",
  exchange: "NYSE",
  mic_code: "ARCX",
  type: "ETF",
});

const wireOf = ({ datetime, volume, ...prices }: Bar) => ({
  datetime: iso(datetime).slice(0, 19).replace("T", " "),
  ...Object.fromEntries(Object.entries(prices).map(([name, price]) => [name, price.toFixed(5)])),
  volume: String(volume),
});

const NEW_YORK = new Intl.DateTimeFormat("en-US", {
  timeZone: "America/New_York",
  hourCycle: "h23",
  hour: "numeric",
});

/** The session of a day, or null: the market closes at one before some holidays. */
function sessionOf(day: number): { from: number; to: number } | null {
  if (!isTradingDay(day)) return null;
  // New York is 4 or 5 hours behind; at noon UTC of a day its offset is that of the session.
  const offset = (12 - Number(NEW_YORK.format(day + 12 * HOUR))) * HOUR;
  const date = new Date(day);
  const [month, dayOfMonth] = [date.getUTCMonth(), date.getUTCDate()];
  const isEve = (month === 11 && dayOfMonth === 24) || (month === 6 && dayOfMonth === 3);
  const afterThanksgiving = month === 10 && date.getUTCDay() === 5 && !isTradingDay(day - DAY);
  const closes = isEve || afterThanksgiving ? CLOSES_EARLY : CLOSES;
  return { from: day + OPENS + offset, to: day + closes + offset };
}

/** A fund's trading of one day, between two instants. */
interface FundSession {
  symbol: string;
  fund: Fund;
  session: { from: number; to: number };
}

function barsBetween(
  symbol: string,
  fund: Fund,
  { from, to, now }: { from: number; to: number; now: number },
): Bar[] {
  const bars: Bar[] = [];
  for (let day = Math.floor(from / DAY) * DAY; day <= Math.min(to, now); day += DAY) {
    const session = sessionOf(day);
    if (!session) continue;
    for (let at = session.from; at < session.to && at <= now; at += BAR_MS) {
      if (at >= from && at <= to) bars.push(barAt({ symbol, fund, session }, at, now));
    }
  }
  return bars;
}

/** Smooth noise in [−1, 1] between whole numbers. */
function noise(name: string, at: number): number {
  const [whole, share] = [Math.floor(at), at - Math.floor(at)];
  const smooth = share * share * (3 - 2 * share);
  return 2 * (chance(name, whole) * (1 - smooth) + chance(name, whole + 1) * smooth) - 1;
}

/** The price at an instant: a wandering level, its weeks, its days and its minutes. */
function priceAt(symbol: string, { price, risk }: Fund, at: number): number {
  const wander =
    9 * noise(`${symbol} quarter`, at / (91 * DAY)) +
    3 * noise(`${symbol} week`, at / (7 * DAY)) +
    1.2 * noise(`${symbol} day`, at / DAY) +
    0.3 * noise(`${symbol} hour`, at / HOUR) +
    0.08 * noise(`${symbol} bar`, at / BAR_MS);
  return price * Math.exp(risk * wander);
}

/** The bar that opens at an instant, as it stands at `now`. */
function barAt({ symbol, fund, session }: FundSession, at: number, now: number): Bar {
  const cents = (value: number) => Math.round(value * 100) / 100;
  const end = Math.min(at + BAR_MS, now);
  const [open, close] = [cents(priceAt(symbol, fund, at)), cents(priceAt(symbol, fund, end))];
  const reach = fund.price * fund.risk * 0.06;
  const high = cents(Math.max(open, close) + reach * chance(symbol, "high", at));
  const low = cents(Math.min(open, close) - reach * chance(symbol, "low", at));
  // Most is traded at the open and at the close.
  const share = (at - session.from) / (session.to - session.from);
  const crowd = 0.5 + 2.2 * (2 * share - 1) ** 4;
  const whole = fund.volume * crowd * (0.6 + 0.8 * chance(symbol, "volume", at));
  const done = (end - at) / BAR_MS;
  const early = now - at < 8 * HOUR && chance(symbol, "late trades", at) < 0.05 ? 0.985 : 1;
  return { datetime: at, open, high, low, close, volume: Math.round(whole * done * early) };
}
