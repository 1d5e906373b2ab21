// Figures and times as people read them, in the browser's language.

const NUMBER = new Intl.NumberFormat();

/** A whole number with its thousands apart. */
export const count = (value: number): string => NUMBER.format(value);

/** A count with its noun, such as `1 video` and `3 videos`. */
export const counted = (value: number, noun: string): string =>
  `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** Seconds as `0:07`, `12:30` or `1:02:03`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes] = [Math.floor(whole / 3_600), Math.floor((whole % 3_600) / 60)];
  const pad = (value: number) => String(value).padStart(2, "0");
  const rest = `${hours > 0 ? pad(minutes) : minutes}:${pad(whole % 60)}`;
  return hours > 0 ? `${hours}:${rest}` : rest;
}

const UNITS = ["B", "KB", "MB", "GB", "TB"] as const;

/** Bytes in the largest unit of which there is one. */
export function bytes(value: number): string {
  const step = value < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log10(value) / 3));
  const amount = value / 1_000 ** step;
  return `${step === 0 || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${UNITS[step]}`;
}

/** An instant as the day and time of this place. */
export const moment = (iso: string): string =>
  new Date(iso).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
