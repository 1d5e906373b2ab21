// Numbers and instants as ASCII bytes, without a string in between: what makes a large answer fast.

const DIGITS = Uint8Array.from({ length: 200 }, (_, index) =>
  index % 2 === 0 ? 48 + Math.floor(index / 20) : 48 + ((index >> 1) % 10),
);
/** A day, milliseconds. */
export const DAY_MS = 86_400_000;
const MINUS = 45;
const DOT = 46;
const ZERO = 48;

/** Longest text of a number: `-0.0000012345678901234567`. */
export const NUMBER_BYTES = 25;
/** An instant's text before `writeIso` or, once its date stands, `writeTime` fills it in. */
export const ISO_TEMPLATE = "0000-00-00T00:00:00.000Z";
/** Length of an instant's text. */
export const ISO_BYTES = ISO_TEMPLATE.length;
/** Length of the date in it. */
export const DATE_BYTES = 10;

const TEMPLATE = new TextEncoder().encode(ISO_TEMPLATE);

function twoDigits(out: Uint8Array, at: number, value: number) {
  out[at] = DIGITS[2 * value] as number;
  out[at + 1] = DIGITS[2 * value + 1] as number;
}

/**
 * Writes `2026-01-31T05:00:00.000Z` for epoch milliseconds of the years 0 to 9999; returns the end.
 * The calendar arithmetic is Howard Hinnant's `civil_from_days`.
 */
export function writeIso(out: Uint8Array, at: number, instant: number): number {
  const days = Math.floor(instant / DAY_MS);
  const shifted = days + 719_468;
  const era = Math.floor(shifted / 146_097);
  const dayOfEra = shifted - era * 146_097;
  const yearOfEra = Math.floor(
    (dayOfEra -
      Math.floor(dayOfEra / 1_460) +
      Math.floor(dayOfEra / 36_524) -
      Math.floor(dayOfEra / 146_096)) /
      365,
  );
  const dayOfYear =
    dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const marchMonth = Math.floor((5 * dayOfYear + 2) / 153);
  const month = marchMonth < 10 ? marchMonth + 3 : marchMonth - 9;
  const year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0);
  twoDigits(out, at, Math.floor(year / 100));
  twoDigits(out, at + 2, year % 100);
  out[at + 4] = MINUS;
  twoDigits(out, at + 5, month);
  out[at + 7] = MINUS;
  twoDigits(out, at + 8, dayOfYear - Math.floor((153 * marchMonth + 2) / 5) + 1);
  for (let index = DATE_BYTES; index < ISO_BYTES; index++) {
    out[at + index] = TEMPLATE[index] as number;
  }
  writeTime(out, at + DATE_BYTES + 1, instant - days * DAY_MS);
  return at + ISO_BYTES;
}

/** Writes a time of day, in milliseconds, over the `00:00:00.000` at `at`. */
export function writeTime(out: Uint8Array, at: number, time: number) {
  const minutes = (time / 60_000) | 0;
  const hours = (minutes / 60) | 0;
  twoDigits(out, at, hours);
  twoDigits(out, at + 3, minutes - hours * 60);
  const rest = time - minutes * 60_000;
  if (rest === 0) return;
  const seconds = (rest / 1_000) | 0;
  const milliseconds = rest - seconds * 1_000;
  twoDigits(out, at + 6, seconds);
  out[at + 9] = ZERO + ((milliseconds / 100) | 0);
  twoDigits(out, at + 10, milliseconds % 100);
}

/** Writes a finite number as `String(value)` would, −0 as 0; returns the end. */
export function writeNumber(out: Uint8Array, at: number, value: number): number {
  const size = value < 0 ? -value : value;
  if (size < 20_000_000) {
    // Prices and megawatts have at most two decimals: exact when the division gives the value back.
    const cents = Math.round(size * 100);
    if (cents / 100 === size) return writeCents(out, at, cents, value < 0);
  }
  const text = String(value);
  for (let index = 0; index < text.length; index++) out[at + index] = text.charCodeAt(index);
  return at + text.length;
}

function writeCents(out: Uint8Array, at: number, cents: number, negative: boolean): number {
  let end = at;
  if (negative && cents > 0) out[end++] = MINUS;
  const whole = (cents / 100) | 0;
  const rest = cents - whole * 100;
  end = writeWhole(out, end, whole);
  if (rest === 0) return end;
  out[end] = DOT;
  twoDigits(out, end + 1, rest);
  return rest % 10 === 0 ? end + 2 : end + 3;
}

function writeWhole(out: Uint8Array, at: number, value: number): number {
  let digits = 1;
  for (let limit = 10; limit <= value; limit *= 10) digits++;
  let left = value;
  for (let index = at + digits - 1; index >= at; index--) {
    const tenth = (left / 10) | 0;
    out[index] = ZERO + left - tenth * 10;
    left = tenth;
  }
  return at + digits;
}
