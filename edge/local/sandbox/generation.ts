// The sandbox's grid beside its demand: forecast, net generation by fuel, and interchange of every
// balancing authority. Demand is generation less exports, but for the few authorities that count
// otherwise; half of them publish within hours, the others the next morning.

import { DAY, HOUR, MINUTE } from "../../../shared/time.ts";
import { type Authority, chance, demandAt, finalDemand, publishedAt, wave } from "./demand.ts";

/** EIA's types of the region route: demand, its forecast, net generation, total interchange. */
export type RegionType = "D" | "DF" | "NG" | "TI";

/** Authorities without customers: they sell all they generate and forecast no demand. */
const GENERATION_ONLY = new Set(
  "AVRN DEAA EEI GLHB GRID GRIF GRMA GWA HGMA OVEC SEPA SIKE WWA YAD".split(" "),
);
/** By authority, the share of hours in which demand is not generation less exports. */
const UNBALANCED: Readonly<Record<string, number>> = { BPAT: 1, CISO: 0.34, SEC: 0.1 };
const HYDRO_ONLY = new Set("BPAT CHPD DOPD GCPD SCL SEPA TPWR WAUW YAD".split(" "));
const LARGE_MEAN = 20_000;

type Shares = Readonly<Record<string, number>>;
/** Shares of an hour's mean generation by fuel; gas makes up the rest. */
const MIX_BY_OFFSET: Readonly<Record<string, Shares>> = {
  "-5": { COL: 0.12, NUC: 0.3, OIL: 0.005, OTH: 0.02, SUN: 0.05, WAT: 0.04, WND: 0.03 },
  "-6": { COL: 0.22, NUC: 0.1, OIL: 0.002, OTH: 0.01, SUN: 0.07, WAT: 0.03, WND: 0.25 },
  "-7": { COL: 0.3, GEO: 0.01, NUC: 0.1, OIL: 0.002, SUN: 0.12, WAT: 0.08, WND: 0.12 },
  "-8": { COL: 0.04, GEO: 0.03, NUC: 0.06, OTH: 0.02, SUN: 0.13, WAT: 0.32, WND: 0.1 },
};
const HAS_FUEL: Shares = { COL: 0.6, GEO: 0.2, NUC: 0.4, OIL: 0.35, OTH: 0.6, WAT: 0.75 };
const HAS_ANY_FUEL = 0.7;

/** The character of an authority, derived from its code once. */
interface Portrait {
  seed: number;
  /** Mean exports, MWh; negative for one that buys. */
  exports: number;
  /** Mean generation, MWh. */
  mean: number;
  mix: Shares;
  balancing: string;
  isPrompt: boolean;
}

const portraits = new Map<string, Portrait>();

function portraitOf(authority: Authority): Portrait {
  const { code, mean, offset } = authority;
  const known = portraits.get(code);
  if (known) return known;
  const exports = GENERATION_ONLY.has(code)
    ? 150 + 600 * chance("capacity", code)
    : mean * (chance("exports", code) * 0.4 - 0.2);
  const mix = Object.entries(MIX_BY_OFFSET[String(offset)] ?? {}).filter(
    ([fuel]) => mean > LARGE_MEAN || chance("has", code, fuel) < (HAS_FUEL[fuel] ?? HAS_ANY_FUEL),
  );
  const stores = mean > LARGE_MEAN ? [["BAT", 0.03] as const, ["PS", 0.02] as const] : [];
  const portrait = {
    seed: Math.floor(chance("seed", code) * 4_294_967_296),
    exports,
    mean: Math.max(mean + exports, 1),
    mix: HYDRO_ONLY.has(code) ? {} : Object.fromEntries([...mix, ...stores]),
    balancing: HYDRO_ONLY.has(code) ? "WAT" : "NG",
    isPrompt: chance("prompt", code) < 0.5,
  };
  portraits.set(code, portrait);
  return portrait;
}

/** A number in [0, 1) from two integers; quicker than `chance`, as there are many hours. */
function roll(seed: number, n: number): number {
  let hash = Math.imul(seed ^ Math.imul(n, 2_654_435_761), 2_246_822_507);
  hash = Math.imul(hash ^ (hash >>> 15), 3_266_489_909);
  hash = Math.imul(hash ^ (hash >>> 13), 668_265_263);
  return ((hash ^ (hash >>> 16)) >>> 0) / 4_294_967_296;
}

/** A slow walk in [−1, 1] that is somewhere else every `period` hours. */
function drift(seed: number, hour: number, period: number): number {
  const step = Math.floor(hour / period);
  const share = hour / period - step;
  return 2 * (roll(seed, step) * (1 - share) + roll(seed, step + 1) * share) - 1;
}

/** Net exports of the hour, MWh. */
function interchange(portrait: Portrait, localHour: number): number {
  const { seed, exports, mean } = portrait;
  const tie = drift(seed + 1, localHour, 18) * 0.05;
  const daily = wave(localHour, 24, 13) * 0.03 * (2 * roll(seed, 7) - 1);
  return Math.round(exports * (1 + daily * 4) + mean * (tie + daily) * 0.6);
}

/** What an authority finally reports for an hour, MWh. */
interface Hour {
  demand: number;
  generation: number;
  interchange: number;
}

function finalHour(authority: Authority, datetime: number): Hour {
  const portrait = portraitOf(authority);
  const hour = Math.floor(datetime / HOUR);
  const demand = finalDemand(authority, datetime);
  const exported = interchange(portrait, hour + authority.offset);
  const otherwise = UNBALANCED[authority.code] ?? 0;
  const gap = otherwise > 0 && roll(portrait.seed + 2, hour) < otherwise ? 0.08 * demand : 0;
  const generation = Math.max(0, Math.round(demand + exported + gap));
  return { demand, generation, interchange: exported };
}

/** When what was generated and exchanged in an hour is first published. */
function generationPublishedAt(authority: Authority, datetime: number): number {
  const { isPrompt, seed } = portraitOf(authority);
  if (isPrompt) return publishedAt(authority, datetime) + 10 * MINUTE;
  const nextMorning = Math.floor(datetime / DAY) * DAY + DAY + 11 * HOUR;
  return nextMorning + 50 * roll(seed, 3) * MINUTE;
}

/** The error of a value in its first days, as a share of it; 0 once the value is final. */
function restatement(seed: number, datetime: number, now: number): number {
  const day = Math.floor(datetime / DAY);
  const age = now - datetime;
  const fate = roll(seed + 4, day);
  if (fate < 0.08 && age < 80 * HOUR) return (roll(seed + 5, day) - 0.5) * 0.02;
  if (fate > 0.98 && age < 8 * DAY) return (roll(seed + 5, day) - 0.5) * 0.03;
  return 0;
}

/** Withdrawn for a day, once in 2,000 hours. */
const isWithdrawn = (seed: number, datetime: number, now: number) =>
  now - datetime > 40 * HOUR &&
  now - datetime < 64 * HOUR &&
  roll(seed + 6, datetime / HOUR) < 1 / 2_000;

/**
 * The day-ahead forecast: published on the morning before the local day, sometimes again on its
 * eve, and on few days quite wrong.
 */
function forecastAt(authority: Authority, datetime: number, now: number): number | undefined {
  if (GENERATION_ONLY.has(authority.code)) return undefined;
  const { seed } = portraitOf(authority);
  const localDay = Math.floor((datetime / HOUR + authority.offset) / 24);
  const begins = localDay * DAY - authority.offset * HOUR;
  if (now < begins - 17 * HOUR + 20 * MINUTE * roll(seed, 8)) return undefined;
  const isUpdated = now >= begins - 2 * HOUR && roll(seed + 9, localDay) < 0.15;
  const missed = roll(seed + 10, localDay) < 0.003 ? 0.3 : 0.05;
  const bias = (roll(seed + 11, localDay) - 0.5) * missed * (isUpdated ? 1 : 2);
  const noise = (roll(seed + 12, datetime / HOUR) - 0.5) * 0.02;
  return Math.max(1, Math.round(finalDemand(authority, datetime) * (1 + bias + noise)));
}

/**
 * What the provider answers at `now` for a type of the region route: a number, null where it
 * reports none, or undefined where it has no row.
 */
export function regionAt(
  authority: Authority,
  type: RegionType,
  datetime: number,
  now: number,
): number | null | undefined {
  if (type === "D") return demandAt(authority, datetime, now);
  if (datetime < authority.since) return undefined;
  if (type === "DF") return forecastAt(authority, datetime, now);
  const { seed } = portraitOf(authority);
  if (now < generationPublishedAt(authority, datetime)) return undefined;
  if (isWithdrawn(seed, datetime, now)) return undefined;
  const { generation, interchange: exported } = finalHour(authority, datetime);
  if (type === "TI") return exported;
  return Math.round(generation * (1 + restatement(seed, datetime, now)));
}

/** What an hour's generation came from, in alphabetical order of the codes; empty: no rows. */
export function fuelsAt(
  authority: Authority,
  datetime: number,
  now: number,
): (readonly [fuel: string, value: number])[] {
  if (datetime < authority.since || now < generationPublishedAt(authority, datetime)) return [];
  const portrait = portraitOf(authority);
  const { seed, mix, balancing, mean } = portrait;
  if (isWithdrawn(seed, datetime, now)) return [];
  const total = regionAt(authority, "NG", datetime, now) ?? 0;
  const localHour = Math.floor(datetime / HOUR) + authority.offset;
  const parts = Object.entries(mix).map(
    ([fuel, share]) => [fuel, mean * share * profile(fuel, seed, localHour)] as const,
  );
  const made = parts.reduce((sum, [, value]) => sum + Math.max(value, 0), 0);
  const max = Math.max(total * 0.97, 0);
  // Where sun and wind would make more than is needed, they are turned down.
  const turnedDown = made > max && made > 0 ? max / made : 1;
  const rounded = parts.map(
    ([fuel, value]) => [fuel, Math.round(value > 0 ? value * turnedDown : value)] as const,
  );
  const rest = rounded.reduce((left, [, value]) => left - value, total);
  const all = [...rounded, [balancing, rest] as const];
  return all.sort(([left], [right]) => (left < right ? -1 : 1));
}

/** What a fuel makes in an hour, in parts of its mean. */
function profile(fuel: string, seed: number, localHour: number): number {
  const hour = ((localHour % 24) + 24) % 24;
  const yearDay = (localHour / 24 + 365) % 365.25;
  const summer = wave(yearDay, 365.25, 172);
  switch (fuel) {
    case "SUN": {
      const height = wave(hour, 24, 12.5) + 0.25 * summer;
      const clouds = 0.75 + 0.25 * drift(seed + 20, localHour, 11);
      return height > 0 ? 3.1 * height * clouds : -0.004;
    }
    case "WND":
      return 1 + 0.55 * drift(seed + 21, localHour, 31) + 0.4 * drift(seed + 22, localHour, 9);
    case "NUC":
      return roll(seed + 23, Math.floor(localHour / (24 * 30))) < 0.06 ? 0.55 : 1;
    case "WAT":
      return 1 + 0.3 * wave(yearDay, 365.25, 140) + 0.25 * wave(hour, 24, 18);
    case "COL":
      return 1 + 0.15 * wave(hour, 24, 17) + 0.15 * drift(seed + 24, localHour, 50);
    case "BAT":
      return wave(hour, 12, 7) > 0.4 ? wave(hour, 24, 19.5) : -0.05;
    case "PS":
      return wave(hour, 24, 17);
    default:
      return 1 + 0.1 * drift(seed + 25, localHour, 20);
  }
}
