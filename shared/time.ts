// Instants: the one place that asks the machine for the time, and the one parser of wire datetimes.
// Everything inside is epoch milliseconds, UTC; zones appear only where a schedule or market needs
// one.

/** Milliseconds of a minute, an hour and a day of 24 hours. */
export const MINUTE = 60_000;
export const HOUR = 3_600_000;
export const DAY = 86_400_000;

/** A source of "now" in epoch milliseconds; passed as an argument so that tests can move it. */
export type Clock = () => number;

/** The machine's clock. */
export const systemClock: Clock = () => Date.now();

const DATETIME =
  /^(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?:([Zz])| ?([+\- ])(\d\d)(?::?(\d\d))?)?)?$/;

const DAY_FORM =
  "(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)-02-29|" +
  "\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|" +
  "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8])))";
/** A time of the day; 24:00 is the end of the day. */
const TIME_FORM =
  "(?:(?:[01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d(?:[.,]\\d{1,9})?)?|24:00(?::00(?:[.,]0{1,9})?)?)";
const OFFSET_HOURS = "[+\\- ](?:[01]\\d|2[0-3])";
/** What `parseInstant` reads; without `^` and `$`, so that descriptions can make it a part. */
export const INSTANT_FORM = `${DAY_FORM}(?:[Tt ]${TIME_FORM}(?:[Zz]| ?${OFFSET_HOURS}(?::?[0-5]\\d)?)?)?`;

const INSTANT = new RegExp(`^${INSTANT_FORM}$`);

/**
 * Epoch milliseconds of an ISO 8601 date or datetime, or null when it names no instant.
 *
 * A date alone means 00:00Z at its start; a datetime without an offset is UTC. Digits beyond the
 * millisecond are cut, so that an `as_of` cannot reach into its own future; an inclusive lower
 * bound is rounded `up` instead, or it would take in what lies before it. A space before `hh:mm` is
 * read as `+`, which is what an unescaped plus sign in a URL becomes.
 */
export function parseInstant(text: string, rounded: "down" | "up" = "down"): number | null {
  const match = INSTANT.test(text.trim()) ? DATETIME.exec(text.trim()) : null;
  if (!match) return null;
  const part = (index: number) => Number(match[index] ?? 0);
  const [year, month, day] = [part(1), part(2), part(3)];
  const [hour, minute, second] = [part(4), part(5), part(6)];
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  const fraction = match[7] ?? "";
  const isBetween = rounded === "up" && /[1-9]/.test(fraction.slice(3));
  const milliseconds = Number(fraction.padEnd(3, "0").slice(0, 3)) + (isBetween ? 1 : 0);
  const offset = (part(10) * 60 + part(11)) * MINUTE * (match[9] === "-" ? -1 : 1);
  return date.getTime() + hour * HOUR + minute * MINUTE + second * 1000 + milliseconds - offset;
}

/** Forms of ISO 8601 that are refused, by what they look like. */
const REFUSED_FORMS: readonly (readonly [form: RegExp, name: string])[] = [
  [/^\d{8}(?:[Tt]\d{2,6}|$)/, "is of ISO 8601's basic form"],
  [/^\d{4}-?[Ww]\d/, "is a week date"],
  [/^\d{4}-?\d{3}(?:[Tt ]|$)/, "is an ordinal date"],
  [/^\d{4}(?:-\d\d)?$/, "is a year or a month"],
  [/^-?\d{9,}(?:\.\d+)?$/, "is a number of seconds or milliseconds"],
];

/** Why `parseInstant` refuses a text, as the end of a sentence, with the forms that it reads. */
export function instantProblem(text: string): string {
  const named = REFUSED_FORMS.find(([form]) => form.test(text.trim()))?.[1];
  return (
    `${named ?? "is not an ISO 8601 date or datetime"}; write 2026-01-31, ` +
    "2026-01-31T05:20:00Z or 2026-01-31T00:20:00-05:00"
  );
}

/** `2026-01-31T05:00:00.000Z` for epoch milliseconds. */
export const iso = (instant: number): string => new Date(instant).toISOString();

/** `2026-01-31`, the UTC calendar day that holds the instant. */
export const isoDay = (instant: number): string => iso(instant).slice(0, 10);

/** What `parseDuration` reads; the digits keep its milliseconds a safe integer. */
const DURATION =
  /^([+-])?P(?=[\dT])(?:(\d{1,6})W)?(?:(\d{1,7})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,10})M)?(?:(\d{1,12})(?:[.,](\d{1,3}))?S)?)?$/;
/** The same for descriptions, without `^` and `$`. */
export const DURATION_FORM = DURATION.source.slice(1, -1).replaceAll(/\((?!\?)/g, "(?:");

/**
 * Milliseconds of an ISO 8601 duration such as `-PT10H` or `P2D`, or null. Months and years have no
 * fixed length and are refused.
 */
export function parseDuration(text: string): number | null {
  const match = DURATION.exec(text.trim());
  if (!match) return null;
  const part = (index: number) => Number(match[index] ?? 0);
  const whole = part(2) * 7 * DAY + part(3) * DAY + part(4) * HOUR + part(5) * MINUTE;
  const milliseconds = whole + part(6) * 1000 + Number((match[7] ?? "").padEnd(3, "0"));
  return match[1] === "-" ? -milliseconds : milliseconds;
}

/** The start of the month that lies `count` months after the one holding `instant`. */
export const addMonths = (instant: number, count: number): number => {
  const from = new Date(instant);
  return Date.UTC(from.getUTCFullYear(), from.getUTCMonth() + count, 1);
};
