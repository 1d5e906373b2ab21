// The sandbox's agency: gas storage, petroleum status, prices and the monthly outlook, as pure
// functions of series, date and when they are asked. With what the real ones are known for: first
// prints that are revised, and prices of holidays that are taken back.

import { addMonths, DAY, iso } from "../../../shared/time.ts";
import { isTradingDay } from "../../markets/store/trading-days.ts";
import { chance, HISTORY_FROM, wave } from "./demand.ts";
import { outlookShown, petroleumShown, priceShown, storageShown } from "./releases.ts";

const WEEK = 7 * DAY;
/** The agency's last trade date of futures. */
const FUTURES_LAST = Date.UTC(2024, 3, 5);

/** A walk in [−1, 1] that is somewhere else every `period` days. */
function walk(name: string, day: number, period: number): number {
  const step = Math.floor(day / period);
  const share = day / period - step;
  const smooth = share * share * (3 - 2 * share);
  const at = (one: number) => 2 * chance(name, one) - 1;
  return at(step) * (1 - smooth) + at(step + 1) * smooth;
}

const dayNumber = (instant: number) => Math.floor(instant / DAY);
const yearDay = (instant: number) => (dayNumber(instant) + 365) % 365.25;

/** Region: share of the Lower 48, and how much more of its gas it burns in winter. */
const STORAGE_REGIONS = {
  R31: { share: 0.23, swing: 1.15 },
  R32: { share: 0.28, swing: 1.2 },
  R33: { share: 0.32, swing: 0.8 },
  R34: { share: 0.065, swing: 0.9 },
  R35: { share: 0.105, swing: 0.7 },
} as const;

/** Working gas by series at the end of a Friday, Bcf. */
function storageOf(friday: number, now: number): ReadonlyMap<string, number> {
  const day = dayNumber(friday);
  const season = wave(yearDay(friday), 365.25, 312);
  const level = 2_600 + 190 * walk("storage", day, 180);
  const regions = Object.entries(STORAGE_REGIONS).map(([region, { share, swing }]) => {
    const noise = 5 * (chance("storage", region, day) - 0.5);
    return [region, Math.round(share * (level + 780 * swing * season) + noise)] as const;
  });
  const values = new Map(regions.map(([region, value]) => [`NW2_EPG0_SWO_${region}_BCF`, value]));
  // In one week of eight, the first print of a region is wrong until the next report.
  const isFirst = now < storageShown(friday + WEEK) && chance("storage revised", day) < 0.125;
  if (isFirst) {
    const [region] = regions[Math.floor(chance("storage region", day) * regions.length)] ?? [""];
    const id = `NW2_EPG0_SWO_${region}_BCF`;
    values.set(id, (values.get(id) ?? 0) + Math.round(4 + 4 * chance("storage by", day)));
  }
  const whole = [...values.values()].reduce((sum, value) => sum + value, 0);
  const central = values.get("NW2_EPG0_SWO_R33_BCF") ?? 0;
  const salt = Math.round(central * (0.27 + 0.04 * season));
  const rounding = chance("storage rounding", day) < 0.15 ? 1 : 0;
  return values
    .set("NW2_EPG0_SSO_R33_BCF", salt)
    .set("NW2_EPG0_SNO_R33_BCF", central - salt)
    .set("NW2_EPG0_SWO_R48_BCF", whole + rounding);
}

/** A petroleum stock or flow, in the unit of its series. */
interface Stock {
  mean: number;
  /** How far it strays from its mean with the seasons and from week to week, as shares of it. */
  season: number;
  stray: number;
  /** Day of the year on which it is highest. */
  peak: number;
  digits: number;
}

const PETROLEUM: ReadonlyMap<string, Stock> = new Map([
  ["WCESTUS1", { mean: 431_000, season: 0.03, stray: 0.03, peak: 110, digits: 0 }],
  ["WCSSTUS1", { mean: 392_000, season: 0, stray: 0.02, peak: 0, digits: 0 }],
  ["W_EPC0_SAX_YCUOK_MBBL", { mean: 29_500, season: 0.06, stray: 0.12, peak: 100, digits: 0 }],
  ["WGTSTUS1", { mean: 229_000, season: 0.05, stray: 0.02, peak: 40, digits: 0 }],
  ["WDISTUS1", { mean: 118_500, season: 0.06, stray: 0.04, peak: 20, digits: 0 }],
  ["WCRFPUS2", { mean: 13_300, season: 0, stray: 0.02, peak: 0, digits: 0 }],
  ["WRPUPUS2", { mean: 20_300, season: 0.02, stray: 0.03, peak: 210, digits: 0 }],
  ["WPULEUS3", { mean: 90.5, season: 0.04, stray: 0.03, peak: 200, digits: 1 }],
]);

function petroleumOf(id: string, friday: number, now: number): number {
  // All crude is the sum of the crude in the strategic reserve and elsewhere.
  if (id === "WCRSTUS1") {
    return petroleumOf("WCESTUS1", friday, now) + petroleumOf("WCSSTUS1", friday, now);
  }
  const { mean, season, stray, peak, digits } = PETROLEUM.get(id) ?? {
    mean: 0,
    season: 0,
    stray: 0,
    peak: 0,
    digits: 0,
  };
  const day = dayNumber(friday);
  const seasonal = season * wave(yearDay(friday), 365.25, peak);
  const strayed = stray * (walk(id, day, 70) + 0.15 * walk(`${id} weeks`, day, 21));
  const isFirst = now < petroleumShown(friday + WEEK) && chance("revised", id, day) < 0.02;
  const value = mean * (1 + seasonal + strayed) * (isFirst ? 1.004 : 1);
  return Number(value.toFixed(digits));
}

/** Natural gas at the Henry Hub, or oil at Cushing: what the other prices follow. */
const HUB = (day: number, instant: number) =>
  2.9 *
  Math.exp(0.32 * walk("hub", day, 120) + 0.14 * walk("hub weeks", day, 13)) *
  (1 + 0.22 * Math.max(0, wave(yearDay(instant), 365.25, 20))) *
  (1 + (chance("cold snap", Math.floor(day / 5)) < 0.02 ? 0.9 : 0));
const OIL = (day: number) =>
  73 * Math.exp(0.18 * walk("oil", day, 150) + 0.06 * walk("oil weeks", day, 11));
const noise = (id: string, day: number, size: number) => 1 + size * (chance(id, day) - 0.5);

type Price = (instant: number) => number;
const product =
  (id: string, margin: number, size: number): Price =>
  (instant) =>
    (OIL(dayNumber(instant)) / 42) *
    (margin + 0.12 * wave(yearDay(instant), 365.25, 180)) *
    noise(id, dayNumber(instant), size);
const gasPrice: Price = (instant) => {
  const day = dayNumber(instant);
  return HUB(day, instant) * noise("gas", day, 0.05);
};
const oilPrice: Price = (instant) => {
  const day = dayNumber(instant);
  return OIL(day) * noise("oil", day, 0.02);
};
/** A contract is nearer its mean the later it delivers. */
const contract =
  (spot: Price, mean: number, number: number): Price =>
  (instant) =>
    mean + (spot(instant) - mean) * 0.93 ** number + 0.004 * mean * number;

const four = <Value>(of: (number: number) => Value): Value[] => [1, 2, 3, 4].map(of);
const gasoline = product("gasoline", 1.22, 0.03);
const heatingOil = product("heating oil", 1.36, 0.03);

const PRICES: ReadonlyMap<string, { price: Price; digits: number; last: number }> = new Map(
  [
    ...[["RNGWHHD", gasPrice, 2] as const],
    ...[["RWTC", oilPrice, 2] as const],
    [
      "RBRTE",
      (instant: number) => oilPrice(instant) * 1.02 + 3 + walk("brent", dayNumber(instant), 40),
      2,
    ] as const,
    ...[["EER_EPMRU_PF4_Y35NY_DPG", gasoline, 3] as const],
    ...[["EER_EPD2F_PF4_Y35NY_DPG", heatingOil, 3] as const],
    ...[["EER_EPLLPA_PF4_Y44MB_DPG", product("propane", 0.42, 0.04), 3] as const],
    ...four((n) => [`RNGC${n}`, contract(gasPrice, 3.1, n), 3] as const),
    ...four((n) => [`RCLC${n}`, contract(oilPrice, 72, n), 2] as const),
    ...four((n) => [`EER_EPMRR_PE${n}_Y35NY_DPG`, contract(gasoline, 2.3, n), 3] as const),
    ...four((n) => [`EER_EPD2F_PE${n}_Y35NY_DPG`, contract(heatingOil, 2.5, n), 3] as const),
  ].map(([id, price, digits]) => {
    const last = /C\d$|_PE\d_/.test(id) ? FUTURES_LAST : Infinity;
    return [id, { price, digits, last }] as const;
  }),
);

/** The value that the agency shows at `now`; undefined where it has no row. */
export type ValueAt = (id: string, datetime: number, now: number) => string | undefined;

/** Working gas of a series at the end of a Friday, Bcf. */
export const storageAt: ValueAt = (id, friday, now) =>
  now < storageShown(friday) ? undefined : String(storageOf(friday, now).get(id) ?? 0);

/** A petroleum stock or flow in the week of a Friday, in the unit of its series. */
export const petroleumAt: ValueAt = (id, friday, now) =>
  now < petroleumShown(friday) ? undefined : String(petroleumOf(id, friday, now));

/** The price of a trade date, dollars; printed holidays are taken back a fortnight later. */
export const priceAt: ValueAt = (id, day, now) => {
  const { price, digits, last } = PRICES.get(id) ?? { price: () => 0, digits: 0, last: 0 };
  if (day > last || [0, 6].includes(new Date(day).getUTCDay())) return undefined;
  const shown = priceShown(day);
  if (now < shown) return undefined;
  const age = now - shown;
  if (!isTradingDay(day)) {
    // Printed by mistake, and taken back a fortnight later.
    const isPrinted = chance("holiday", id, dayNumber(day)) < 0.4 && age < 14 * DAY;
    return isPrinted ? price(day - DAY).toFixed(digits) : undefined;
  }
  const isFirst = age < WEEK && chance("first print", id, dayNumber(day)) < 1 / 50;
  return (price(day) * (isFirst ? 0.95 : 1)).toFixed(digits);
};

const OUTLOOK: ReadonlyMap<string, Price> = new Map([
  ["NGHHUUS", gasPrice],
  ["WTIPUUS", oilPrice],
  ["BREPUUS", (instant) => oilPrice(instant) * 1.02 + 3],
]);

/** The month of the newest issue of the outlook, or null before there was one. */
function newestIssue(now: number): number | null {
  const issue = now < outlookShown(now) ? addMonths(now, -1) : addMonths(now, 0);
  return issue < HISTORY_FROM ? null : issue;
}

/** Past months are means of daily prices; the others are a path back to usual prices. */
export const outlookAt: ValueAt = (id, month, now) => {
  const issue = newestIssue(now);
  const price = OUTLOOK.get(id);
  if (issue === null || !price) return undefined;
  const last = Date.UTC(new Date(issue).getUTCFullYear() + 1, 11, 1);
  if (month > last) return undefined;
  const meanOf = (one: number) =>
    [2, 9, 16, 23].reduce((sum, day) => sum + price(one + day * DAY), 0) / 4;
  if (month < issue) return meanOf(month).toFixed(3);
  const ahead = (month - issue) / (30 * DAY);
  const usual = meanOf(addMonths(month, -12)) * 0.5 + meanOf(addMonths(month, -24)) * 0.5;
  const opinion = 1 + 0.06 * (chance("opinion", id, iso(issue)) - 0.5) * Math.min(ahead, 6);
  const weight = Math.exp(-ahead / 5);
  return ((meanOf(addMonths(issue, -1)) * weight + usual * (1 - weight)) * opinion).toFixed(3);
};
