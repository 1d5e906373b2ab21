// About how much memory values take: for bounds, not for accounts.

import { isImage } from "./wire.ts";

/** Bytes of a value of JSON, as an engine of JavaScript holds it; shared parts count each time. */
export function bytesOf(value: unknown): number {
  if (typeof value === "string") return 2 * value.length;
  if (typeof value !== "object" || value === null) return 8;
  let bytes = 32;
  if (Array.isArray(value)) for (const part of value) bytes += bytesOf(part);
  // What flows through a workflow has no members but its own; a list of them would be one more.
  else for (const name in value) bytes += bytesOf((value as Record<string, unknown>)[name]);
  return bytes;
}

/** The same of what a run answers, but for its images, of which whoever writes them has a bound. */
export function answerBytesOf(value: unknown): number {
  if (isImage(value)) return 0;
  if (!Array.isArray(value)) return bytesOf(value);
  return value.reduce((sum: number, part) => sum + answerBytesOf(part), 32);
}
