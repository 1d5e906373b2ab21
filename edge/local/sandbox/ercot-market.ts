// The sandbox's Texas: hourly load by weather zone, day-ahead and real-time prices, and when each
// is posted, as pure functions of what, when and when asked. Realistic shapes: summer afternoons,
// windy nights with negative prices, scarcity spikes, congestion between the hubs, day-ahead prices
// that expect most of it, load that is restated the next morning, prices that are corrected days
// later.

import { DAY, HOUR, MINUTE } from "../../../shared/time.ts";
import { dayOfLabel, instantsOfWall, QUARTER } from "../../markets/ingest/sources/ercot-hours.ts";
import type { OperatingDay } from "../../markets/store/operating-day.ts";
import { operatingDay } from "../../markets/store/operating-day.ts";

/** Oldest day of the sandbox. */
export const ERCOT_HISTORY_FROM = Date.UTC(2020, 0, 1, 6);

/** Weather zones and their mean load, MW, in the reports' order. */
const ZONES: readonly (readonly [name: string, mean: number])[] = [
  ["coast", 14_200],
  ["east", 1_750],
  ["farWest", 7_300],
  ["north", 1_500],
  ["northC", 14_600],
  ["southern", 4_300],
  ["southC", 8_300],
  ["west", 1_700],
];

/** A settlement point: its type, and the share of each region's congestion that it pays. */
interface Point {
  name: string;
  type: string;
  west: number;
  houston: number;
  south: number;
}

const point = (
  name: string,
  type: string,
  [west = 0, houston = 0, south = 0]: readonly number[] = [],
): Point => ({ name, type, west, houston, south });

/** The settlement points, in the reports' order. */
export const POINTS: readonly Point[] = [
  point("HB_BUSAVG", "SH", [0.25, 0.25, 0.25]),
  point("HB_HOUSTON", "HU", [0, 1, 0]),
  point("HB_HUBAVG", "AH", [0.25, 0.25, 0.25]),
  point("HB_NORTH", "HU"),
  point("HB_PAN", "HU", [1.4]),
  point("HB_SOUTH", "HU", [0, 0.1, 1]),
  point("HB_WEST", "HU", [1]),
  point("LZ_AEN", "LZ", [0, 0, 0.5]),
  point("LZ_CPS", "LZ", [0, 0, 0.8]),
  point("LZ_HOUSTON", "LZ", [0, 1.02, 0]),
  point("LZ_LCRA", "LZ", [0.05, 0, 0.6]),
  point("LZ_NORTH", "LZ", [0.02]),
  point("LZ_RAYBN", "LZ", [-0.02, 0.05]),
  point("LZ_SOUTH", "LZ", [0, 0.1, 1.05]),
  point("LZ_WEST", "LZ", [0.8]),
  // A few resource nodes, of which the real reports hold a thousand.
  point("7RNCHSLR_ALL", "RN", [0.6]),
  point("AEEC", "RN", [1.1]),
  point("LGE_LGE_STG", "PCCRN", [0, 0.9]),
];

/** A number in [0, 1) from integers; the same on every machine. */
function chance(salt: number, ...parts: number[]): number {
  let hash = Math.imul(salt, 2_654_435_761);
  for (const part of parts) {
    hash = Math.imul(hash ^ (part | 0), 2_246_822_507);
    hash = Math.imul(hash ^ (hash >>> 15), 3_266_489_917);
  }
  return ((hash ^ (hash >>> 16)) >>> 0) / 4_294_967_296;
}

/** A smooth walk in [−1, 1] through a random value at each step. */
function drifting(salt: number, at: number): number {
  const step = Math.floor(at);
  const share = at - step;
  const value = (one: number) => chance(salt, one) + chance(salt + 1, Math.floor(one / 3)) - 1;
  const smooth = share * share * (3 - 2 * share);
  return value(step) * (1 - smooth) + value(step + 1) * smooth;
}

const wave = (value: number, period: number, peak: number) =>
  Math.cos(((value - peak) / period) * 2 * Math.PI);

const cents = (value: number) => Math.round(value * 100) / 100;

/** The calendar and the weather at an instant. */
function conditions(instant: number) {
  // Standard time the year round: people's habits move with the clock, the sun does not.
  const local = instant / HOUR - 6;
  const hour = ((local % 24) + 24) % 24;
  const day = Math.floor(local / 24);
  const yearDay = (((day % 365.25) + 365.25) % 365.25) + hour / 24;
  const weekend = (day + 4) % 7 === 0 || (day + 4) % 7 === 6;
  const summer = Math.max(0, wave(yearDay, 365.25, 210));
  const winter = Math.max(0, wave(yearDay, 365.25, 15));
  const heat = drifting(11, local / 36);
  const wind = Math.min(
    1,
    Math.max(0, 0.5 + 0.4 * drifting(21, local / 20) + 0.12 * wave(hour, 24, 2)),
  );
  const sun = Math.max(0, wave(hour, 24, 12.5)) * (0.75 + 0.25 * summer);
  return { local, hour, day, weekend, summer, winter, heat, wind, sun };
}

type Conditions = ReturnType<typeof conditions>;

/** Load as a share of its mean. */
function loadLevel({ hour, weekend, summer, winter, heat }: Conditions): number {
  const afternoon = wave(hour, 24, 16.5) * (0.09 + 0.13 * summer);
  const morning = Math.max(0, wave(hour, 24, 7)) * 0.07 * winter;
  const seasonal = 0.93 + 0.22 * summer + 0.08 * winter;
  const weather = heat * (0.04 + 0.06 * summer + 0.1 * winter);
  return seasonal * (1 + afternoon + morning + weather) * (weekend ? 0.95 : 1);
}

/** An hour's load by weather zone and in total, MW. */
export interface Load {
  zones: number[];
  total: number;
}

/** The load of the hour that starts at `start`, as the report of the next day has it. */
export const finalLoad = (start: number): Load => loadAt(start, () => 1);

/** The same load as the display page shows it: each zone off by up to 0.2 %. */
export const shownLoad = (start: number): Load =>
  loadAt(start, (zone) => 1 + (chance(32, zone, start / HOUR) - 0.5) * 0.004);

function loadAt(start: number, guessOf: (zone: number) => number): Load {
  const level = loadLevel(conditions(start + HOUR / 2));
  const hour = start / HOUR;
  const zones = ZONES.map(([, mean], zone) => {
    const own = 1 + (chance(31, zone, hour) - 0.5) * 0.03;
    return cents(mean * level * own * guessOf(zone));
  });
  return { zones, total: cents(zones.reduce((sum, zone) => sum + zone, 0)) };
}

/** Whether scarcity strikes a day, and how hard: one day in twenty-five, mostly in summer. */
function scarcity({ day, hour, summer, winter }: Conditions, quarter: number): number {
  const likely = 0.015 + 0.06 * summer + 0.03 * winter;
  if (chance(41, day) > likely) return 0;
  const peak = 17.5 + 2 * chance(42, day);
  const width = 0.6 + 1.5 * chance(43, day);
  const near = Math.max(0, 1 - Math.abs(hour - peak) / width);
  const height = 300 + 4_400 * chance(44, day) ** 3;
  return height * near * (0.5 + 0.5 * chance(45, quarter));
}

/** Short spikes that nobody expects. */
const surprise = (quarter: number) =>
  chance(46, quarter) < 0.004 ? 60 + 500 * chance(47, quarter) ** 2 : 0;

/**
 * The system's price and the three congestions, $/MWh. An expected market has no noise and less
 * than half the scarcity.
 */
function market(instant: number, { expected }: { expected: boolean }) {
  const now = conditions(instant);
  const quarter = Math.floor(instant / QUARTER);
  const netLoad = loadLevel(now) - 0.38 * now.wind - 0.22 * now.sun;
  const fuel = 19 + 6 * drifting(51, now.day / 30);
  const merit = fuel * Math.exp(1.9 * (netLoad - 0.62));
  const noise = expected ? 0 : (chance(52, quarter) - 0.5) * 5 + surprise(quarter);
  const strained = scarcity(now, quarter) * (expected ? 0.45 : 1);
  const glut = Math.max(0, now.wind - 0.76) * 240 * Math.max(0, 0.9 - netLoad);
  const congested = (salt: number) => Math.max(0, drifting(salt, now.local / 9) - 0.15);
  return {
    system: merit + noise + strained - glut,
    west: -congested(61) * 38 * (0.3 + now.wind),
    houston: congested(63) * 14 * (0.6 + now.summer),
    south: (congested(65) - 0.7 * congested(67)) * 11,
  };
}

/** Bounds that the market's rules set. */
const bounded = (price: number) => cents(Math.min(5_000, Math.max(-251, price)));

const priceOf = (state: ReturnType<typeof market>, at: Point, own: number): number =>
  bounded(
    state.system + state.west * at.west + state.houston * at.houston + state.south * at.south + own,
  );

/** Real-time prices of all points over the quarter that starts at `start`, in the points' order. */
export function realtimePrices(start: number): number[] {
  const state = market(start + QUARTER / 2, { expected: false });
  return POINTS.map((at, index) =>
    priceOf(state, at, (chance(71, index, start / QUARTER) - 0.5) * 0.6),
  );
}

/** Day-ahead prices of all points over the hour that starts at `start`. */
export function dayAheadPrices(start: number): number[] {
  const state = market(start + HOUR / 2, { expected: true });
  const premium = 1.5 + 2 * chance(72, start / HOUR);
  return POINTS.map((at, index) =>
    priceOf(state, at, premium + (chance(73, index, start / HOUR) - 0.5) * 0.8),
  );
}

/** A load zone's energy-weighted price, which the report lists beside it. */
export const energyWeighted = (price: number, start: number): number =>
  cents(price + (chance(74, start / QUARTER) - 0.5) * 0.2);

/** Two to five minutes after the quarter's end. */
export const realtimePostedAt = (start: number): number =>
  start + QUARTER + 2 * MINUTE + Math.floor(180 * chance(81, start / QUARTER)) * 1_000;

/** One document in 200 is posted with rows missing, and again three minutes later. */
export const isRepaired = (start: number): boolean => chance(82, start / QUARTER) < 1 / 200;

/** The day before, between 12:30 and 13:51; on one day in 25 up to three hours later. */
export function dayAheadPostedAt(day: OperatingDay): number {
  const eve = operatingDay(day.from - 1);
  const [opens = eve.from] = instantsOfWall(`${eve.key}T12:30:00`);
  const usual = 81 * MINUTE * chance(83, eve.from / DAY) ** 2;
  const late = chance(84, eve.from / DAY) < 0.04 ? 3 * HOUR * chance(85, eve.from / DAY) : 0;
  return Math.floor((opens + usual + late) / 1_000) * 1_000;
}

/** 05:50 of the next day. */
export function loadPostedAt(day: OperatingDay): number {
  const [posted = day.to] = instantsOfWall(`${operatingDay(day.to).key}T05:50:00`);
  return posted + Math.floor(40 * chance(86, day.from / DAY)) * 1_000;
}

/** A corrected price, and when the correction was announced. */
export interface Correction {
  at: number;
  corrected: number;
}

/**
 * The correction of a price as it stands at `now`: some hours of one day in thirty, announced
 * within two days.
 */
export function correctionOf(
  market: "realtime" | "day_ahead",
  day: OperatingDay,
  { start, price, now }: { start: number; price: number; now: number },
): Correction | null {
  const salt = market === "realtime" ? 91 : 95;
  const number = Math.floor(day.from / DAY);
  if (chance(salt, number) > 1 / 30) return null;
  const first = Math.floor(20 * chance(salt + 1, number));
  const hour = Math.floor((start - day.from) / HOUR);
  if (hour < first || hour > first + 2) return null;
  const at = day.to + Math.floor(6 + 30 * chance(salt + 2, number)) * HOUR;
  if (at > now) return null;
  const corrected = bounded(price + 2 + 9 * chance(salt + 3, number));
  return { at, corrected };
}

/** The operating days from one label to another, newest first, within the sandbox's history. */
export function daysBetween(first: string, last: string): OperatingDay[] {
  const [from, to] = [dayOfLabel(first).from, dayOfLabel(last).from];
  const days: OperatingDay[] = [];
  for (let instant = to; instant >= Math.max(from, ERCOT_HISTORY_FROM); ) {
    const day = operatingDay(instant);
    days.push(day);
    instant = day.from - 1;
    if (instant < from) break;
  }
  return days;
}
