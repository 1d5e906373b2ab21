// Identifiers made by the client: UUIDs of version 7, which sort in the order in which they were
// made, also within one millisecond.

import { uuidsOf } from "./columns.ts";

const SEQUENCE_MAX = 0xfff;

/**
 * A source of UUIDs, each greater than the one before, whatever the clock does. `random` gives
 * numbers in [0, 1).
 */
export function uuidSource(now: () => number, random: () => number): () => string {
  let [milliseconds, sequence] = [0, 0];
  return () => {
    const time = Math.floor(now());
    if (time > milliseconds) [milliseconds, sequence] = [time, 0];
    else if (sequence < SEQUENCE_MAX) sequence += 1;
    else [milliseconds, sequence] = [milliseconds + 1, 0];
    const bytes = new Uint8Array(16).map(() => Math.floor(random() * 256));
    let rest = milliseconds;
    for (let index = 5; index >= 0; index--) {
      bytes[index] = rest % 256;
      rest = Math.floor(rest / 256);
    }
    bytes[6] = 0x70 | (sequence >>> 8);
    bytes[7] = sequence & 0xff;
    bytes[8] = 0x80 | ((bytes[8] as number) & 0x3f);
    return uuidsOf(bytes)[0] as string;
  };
}
