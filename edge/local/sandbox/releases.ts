// When the sandbox's agency releases its reports: the real one's calendar, with holidays, and an
// API that some weeks shows a report up to an hour after it is out.

import { addMonths, DAY, HOUR, MINUTE } from "../../../shared/time.ts";
import { isTradingDay } from "../../markets/store/trading-days.ts";
import { chance } from "./demand.ts";

const [SUNDAY, MONDAY, TUESDAY, WEDNESDAY, THURSDAY] = [0, 1, 2, 3, 4];
const NOVEMBER = 10;

const weekday = (day: number) => new Date(day).getUTCDay();
const onOrAfter = (wanted: number, day: number) => day + ((wanted - weekday(day) + 7) % 7) * DAY;

/** The instant at which clocks in New York show a time of a day; a day is its 00:00Z. */
function newYork(day: number, hour: number, minute = 0): number {
  const year = new Date(day).getUTCFullYear();
  const begins = onOrAfter(SUNDAY, Date.UTC(year, 2, 8));
  const ends = onOrAfter(SUNDAY, Date.UTC(year, 10, 1));
  const behind = day >= begins && day < ends ? 4 : 5;
  return day + (hour + behind) * HOUR + minute * MINUTE;
}

/** The exchange's holidays, and those two on which only the government rests. */
export function isHoliday(day: number): boolean {
  const date = new Date(day);
  const [month, dayOfMonth] = [date.getUTCMonth(), date.getUTCDate()];
  const isVeteransDay = month === NOVEMBER && dayOfMonth === 11;
  const isColumbusDay =
    month === 9 && weekday(day) === MONDAY && dayOfMonth >= 8 && dayOfMonth <= 14;
  const isWeekend = weekday(day) === SUNDAY || weekday(day) === 6;
  return isVeteransDay || isColumbusDay || (!isWeekend && !isTradingDay(day));
}

/** Most weeks two minutes, in three of ten up to an hour. */
function apiLag(report: string, friday: number): number {
  const fate = chance("api lag", report, friday / DAY);
  return fate < 0.3 ? (fate / 0.3) * 58 * MINUTE + 2 * MINUTE : 2 * MINUTE;
}

/** When the API first shows the storage of the week that ended on a Friday. */
export function storageShown(friday: number): number {
  const thursday = friday + 6 * DAY;
  const released = isHoliday(thursday)
    ? newYork(thursday - DAY, 12)
    : newYork(isHoliday(thursday - DAY) ? thursday + DAY : thursday, 10, 30);
  return released + apiLag("storage", friday);
}

/** When the API first shows the petroleum status of the week that ended on a Friday. */
export function petroleumShown(friday: number): number {
  const wednesday = friday + 5 * DAY;
  const isShort = [MONDAY, TUESDAY, WEDNESDAY].some((day) =>
    isHoliday(wednesday + (day - WEDNESDAY) * DAY),
  );
  const released = isShort ? newYork(wednesday + DAY, 11) : newYork(wednesday, 10, 30);
  return released + apiLag("petroleum", friday);
}

/**
 * When the price of a trade date is first printed: in batches, on the first Wednesday that lies two
 * days after it.
 */
export function priceShown(day: number): number {
  const wednesday = onOrAfter(WEDNESDAY, day + 2 * DAY);
  return newYork(isHoliday(wednesday) ? wednesday + DAY : wednesday, 13);
}

/** The outlook's issue of a month is out on the Tuesday after its first Thursday. */
export const outlookShown = (month: number): number =>
  newYork(onOrAfter(TUESDAY, onOrAfter(THURSDAY, addMonths(month, 0))), 12);
