// About how much memory values take: for bounds, not for accounts.

/** Bytes of a value of JSON, as an engine of JavaScript holds it; shared parts count each time. */
export function bytesOf(value: unknown): number {
  if (typeof value === "string") return 2 * value.length;
  if (typeof value !== "object" || value === null) return 8;
  let bytes = 32;
  for (const part of Array.isArray(value) ? value : Object.values(value)) bytes += bytesOf(part);
  return bytes;
}
