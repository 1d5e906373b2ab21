// Images that are the same, or nearly: on both sides of a split they would measure memory. Nodes
// hash what they probe (gpu-node/media/image-hash.ts, which says what distances mean). Pure.

/** A video or still with what its probe says of it. */
export interface HashedVideo {
  id: string;
  frame_count: number;
  /** Bytes of the file. */
  bytes: number;
  /** SHA-256 of the pixels of the thumbnail's frame, in hex; null where no node said so. */
  pixels: string | null;
  /** Hash of a still's look, 256 bits in hex; null of a plain one. */
  look: string | null;
}

/** Videos that belong together, and images that would but are too many. */
export interface LookAlikes {
  /** Groups of two or more, by ids. */
  groups: string[][];
  /**
   * Videos that are kept apart although they look alike or are the same, as their group is too
   * large: those of a fixed camera.
   */
  unsplit: number;
}

/** Bits by which hashes of one image's copies differ at most. */
const DISTANCE_MAX = 40;
/** A group of more than this share of all leaves too little for the other side; a pair never is. */
const ALIKE_SHARE_MAX = 0.2;
const SAME_SHARE_MAX = 0.5;
/** Words of 32 bits of a hash. */
const WORDS = 8;
/** Stills with the same part of a hash that one is compared with. */
const CANDIDATES_MAX = 8;
const HEX = /^[0-9a-f]{64}$/;

/** The first video of the group of each video that is in one, by the videos' ids. */
export const groupByVideo = ({ groups }: Pick<LookAlikes, "groups">): Map<string, string> =>
  new Map(groups.flatMap((ids) => ids.map((id) => [id, ids[0] ?? id] as const)));

/** Groups of videos that are the same, and of stills that look alike. */
export function lookAlikes(videos: readonly HashedVideo[]): LookAlikes {
  const same = new Groups(videos.length);
  const first = new Map<string, number>();
  for (const [index, { frame_count, bytes, pixels }] of videos.entries()) {
    if (pixels === null || !HEX.test(pixels)) continue;
    // Clips of which one frame is the same, such as a black one, are not.
    const content = frame_count === 1 ? pixels : `${frame_count} ${bytes} ${pixels}`;
    const known = first.get(content);
    if (known === undefined) first.set(content, index);
    else same.join(index, known);
  }
  const alike = new Groups(videos.length, same);
  for (const [one, other] of nearPairs(videos)) alike.join(one, other);
  const isTooLarge = (group: readonly number[], share: number) =>
    group.length > 2 && group.length > share * videos.length;
  const groups: number[][] = [];
  let unsplit = 0;
  for (const group of alike.all()) {
    const parts = [...Map.groupBy(group, (index) => same.of(index)).values()];
    if (
      parts.length === 1 ? !isTooLarge(group, SAME_SHARE_MAX) : !isTooLarge(group, ALIKE_SHARE_MAX)
    ) {
      groups.push(group);
      continue;
    }
    unsplit += group.length;
    groups.push(...parts.filter((part) => parts.length > 1 && !isTooLarge(part, SAME_SHARE_MAX)));
  }
  const several = groups.filter(({ length }) => length > 1);
  // Where nothing would be left for the other side, all are apart.
  if (several.some(({ length }) => length === videos.length)) {
    return { groups: [], unsplit: videos.length };
  }
  const ids = (group: number[]) => group.map((index) => (videos[index] as HashedVideo).id);
  return { groups: several.map(ids), unsplit };
}

/**
 * Pairs of stills whose hashes are near, by their indices. Those with one of the sixteen parts in
 * common are compared: hashes that differ by up to 15 bits, and most that differ by 30.
 */
function* nearPairs(videos: readonly HashedVideo[]): Generator<[number, number]> {
  const hashed = videos.flatMap(({ frame_count, look }, index) =>
    frame_count === 1 && look !== null && HEX.test(look) ? [{ index, look }] : [],
  );
  if (hashed.length < 2) return;
  const words = new Uint32Array(WORDS * hashed.length);
  for (const [row, { look }] of hashed.entries()) {
    for (let word = 0; word < WORDS; word++) {
      words[WORDS * row + word] = Number.parseInt(look.slice(8 * word, 8 * word + 8), 16);
    }
  }
  for (let part = 0; part < 2 * WORDS; part++) {
    const partOf = (row: number) =>
      ((words[WORDS * row + (part >> 1)] as number) >>> (16 * (part & 1))) & 0xffff;
    // Rows in the order of this part, as counts of smaller values say.
    const ends = new Uint32Array(0x1_0001);
    for (let row = 0; row < hashed.length; row++) increment(ends, partOf(row) + 1);
    for (let value = 1; value < ends.length; value++) {
      ends[value] = (ends[value] as number) + (ends[value - 1] as number);
    }
    const order = new Uint32Array(hashed.length);
    for (let row = 0; row < hashed.length; row++) order[increment(ends, partOf(row))] = row;
    for (let position = 1; position < order.length; position++) {
      const row = order[position] as number;
      for (let before = position - 1; before >= position - CANDIDATES_MAX; before--) {
        const other = order[before];
        if (other === undefined || partOf(other) !== partOf(row)) break;
        if (distance(words, row, other) > DISTANCE_MAX) continue;
        yield [
          (hashed[row] as { index: number }).index,
          (hashed[other] as { index: number }).index,
        ];
      }
    }
  }
}

/** Adds one to a count; returns what it was. */
function increment(counts: Uint32Array, index: number): number {
  const before = counts[index] as number;
  counts[index] = before + 1;
  return before;
}

/** Bits in which two rows differ; any number above the limit where they are more. */
function distance(words: Uint32Array, one: number, other: number): number {
  let bits = 0;
  for (let word = 0; word < WORDS && bits <= DISTANCE_MAX; word++) {
    const mine = words[WORDS * one + word] as number;
    bits += ones((mine ^ (words[WORDS * other + word] as number)) >>> 0);
  }
  return bits;
}

/** The ones of a 32-bit word, added up in parts of two, four and eight bits. */
function ones(word: number): number {
  const pairs = word - ((word >>> 1) & 0x55555555);
  const fours = (pairs & 0x33333333) + ((pairs >>> 2) & 0x33333333);
  return Math.imul((fours + (fours >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}

/** Which of some numbers belong together: a union-find, with paths halved. */
class Groups {
  readonly #parents: number[];

  /** Each number alone, or as in other groups. */
  constructor(count: number, from?: Groups) {
    this.#parents = from ? [...from.#parents] : Array.from({ length: count }, (_, index) => index);
  }

  /** The number that stands for the group of another. */
  of(index: number): number {
    let at = index;
    for (;;) {
      const parent = this.#parents[at] as number;
      if (parent === at) return at;
      const next = this.#parents[parent] as number;
      this.#parents[at] = next;
      at = next;
    }
  }

  join(one: number, other: number): void {
    this.#parents[this.of(one)] = this.of(other);
  }

  all(): number[][] {
    const indices = this.#parents.map((_, index) => index);
    return [...Map.groupBy(indices, (index) => this.of(index)).values()];
  }
}
