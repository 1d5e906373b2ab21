// NYMEX trading days and the last trading days of its energy futures, pure. A day or a month is the
// epoch milliseconds of its start, 00:00Z. Holidays follow the exchange's standing rules; closures
// decreed for a single day are not known here.

import { addMonths, DAY } from "../../../shared/time.ts";

/** The last day on which the contract of a delivery month trades. */
export type Expiry = (deliveryMonth: number) => number;

const [SUNDAY, MONDAY, THURSDAY, SATURDAY] = [0, 1, 4, 6];
const JUNETEENTH_FIRST = 2022;

/** The day of the week, 0 for Sunday. */
export const weekday = (day: number) => new Date(day).getUTCDay();
const date = (year: number, month: number, day: number) => Date.UTC(year, month - 1, day);

/** Whether the exchange settles prices on this day. */
export const isTradingDay = (day: number): boolean =>
  weekday(day) !== SUNDAY &&
  weekday(day) !== SATURDAY &&
  !holidays(new Date(day).getUTCFullYear()).includes(day);

/** Three trading days before the delivery month begins. */
export const naturalGasExpiry: Expiry = (month) => tradingDaysBefore(month, 3);

/**
 * Three trading days before the 25th of the month before delivery; where the 25th is none itself,
 * three before the trading day that precedes it.
 */
export const crudeOilExpiry: Expiry = (month) => {
  const the25th = addMonths(month, -1) + 24 * DAY;
  return tradingDaysBefore(the25th, isTradingDay(the25th) ? 3 : 4);
};

/** The last trading day of the month before delivery. */
export const refinedProductExpiry: Expiry = (month) => tradingDaysBefore(month, 1);

/**
 * The delivery month of the n-th contract on a trade date. Contract 1 is the nearest not yet
 * expired; on its last trading day it still is.
 */
export function deliveryMonth(expiry: Expiry, tradeDate: number, contract: number): number {
  let front = addMonths(tradeDate, 0);
  while (expiry(front) < tradeDate) front = addMonths(front, 1);
  return addMonths(front, contract - 1);
}

function tradingDaysBefore(day: number, count: number): number {
  let found = day;
  for (let left = count; left > 0; ) {
    found -= DAY;
    if (isTradingDay(found)) left--;
  }
  return found;
}

function holidays(year: number): number[] {
  const newYear = date(year, 1, 1);
  return [
    // On a Saturday it is not moved: the last day of the old year is traded.
    weekday(newYear) === SATURDAY ? newYear : observed(newYear),
    onOrAfter(MONDAY, date(year, 1, 15)),
    onOrAfter(MONDAY, date(year, 2, 15)),
    easter(year) - 2 * DAY,
    onOrAfter(MONDAY, date(year, 5, 25)),
    ...(year >= JUNETEENTH_FIRST ? [observed(date(year, 6, 19))] : []),
    observed(date(year, 7, 4)),
    onOrAfter(MONDAY, date(year, 9, 1)),
    onOrAfter(THURSDAY, date(year, 11, 22)),
    observed(date(year, 12, 25)),
  ];
}

/** A holiday on a Saturday is kept on the Friday before, one on a Sunday on the Monday after. */
export const observed = (day: number) =>
  weekday(day) === SATURDAY ? day - DAY : weekday(day) === SUNDAY ? day + DAY : day;

/** The first day of the week that is wanted, 0 for Sunday, on a day or after it. */
export const onOrAfter = (wanted: number, day: number) =>
  day + ((wanted - weekday(day) + 7) % 7) * DAY;

/** Easter Sunday by the Gregorian computus of Meeus, Jones and Butcher. */
function easter(year: number): number {
  const golden = year % 19;
  const century = Math.floor(year / 100);
  const ofCentury = year % 100;
  const moonShift = Math.floor((century - Math.floor((century + 8) / 25) + 1) / 3);
  const epact = (19 * golden + century - Math.floor(century / 4) - moonShift + 15) % 30;
  const leaps = 2 * (century % 4) + 2 * Math.floor(ofCentury / 4);
  const toSunday = (32 + leaps - epact - (ofCentury % 4)) % 7;
  const correction = Math.floor((golden + 11 * epact + 22 * toSunday) / 451);
  const days = epact + toSunday - 7 * correction + 114;
  return date(year, Math.floor(days / 31), (days % 31) + 1);
}
