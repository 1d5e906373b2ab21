// Who of several answers a request: by weight, and where the request names a key, always the same
// one for it. Weighted rendezvous hashing: each candidate draws a number from the key, the largest
// wins. Where weights change or a candidate joins or leaves, only those keys move that have to.

/** Somebody who may answer. */
export interface Candidate {
  /** What tells it from the others for good: not what it stands for now. */
  name: string;
  weight: number;
}

/**
 * The candidate that a key falls to. `salt` makes the keys of one endpoint fall otherwise than
 * those of another; without a key chance decides. Null where no candidate has a weight.
 */
export function choose<One extends Candidate>(
  candidates: readonly One[],
  { key, salt }: { key: string | null; salt: string },
): One | null {
  const drawn = key ?? crypto.randomUUID();
  let winner: One | null = null;
  let best = Number.POSITIVE_INFINITY;
  for (const one of candidates) {
    if (!(one.weight > 0)) continue;
    // Exponential with the weight as its rate: the smallest is this one's with its share's chance.
    const draw = -Math.log(unit(`${salt}\0${one.name}\0${drawn}`)) / one.weight;
    if (draw < best) [winner, best] = [one, draw];
  }
  return winner;
}

/** A number between 0 and 1, both exclusive, that a text always gives. */
function unit(text: string): number {
  // FNV-1a over two halves with other seeds, each finished as MurmurHash3 does: 53 even bits.
  const bytes = new TextEncoder().encode(text);
  const high = finished(fnv(bytes, 0x811c9dc5)) >>> 5;
  const low = finished(fnv(bytes, 0x01000193)) >>> 6;
  return (high * 2 ** 26 + low + 0.5) / 2 ** 53;
}

function fnv(bytes: Uint8Array, seed: number): number {
  let hash = seed;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}

function finished(hash: number): number {
  let mixed = hash;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}
