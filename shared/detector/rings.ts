// Masks of other tools as the one ring that an annotation keeps. Several pieces, and holes, become
// one ring that visits them over bridges of no width, there and back: filled by the even-odd or by
// the non-zero rule it is the same mask, in any reader. Pure.

/** Corners of a ring, x and y in turn, in pixels. */
export type Ring = readonly number[];

/** COCO's run lengths: column by column, zeros first; as numbers or as pycocotools packs them. */
export interface RunLengths {
  /** Height and width. */
  size: readonly [number, number];
  counts: readonly number[] | string;
}

/** What masks may still cost: columns and runs looked at, and numbers of rings kept. */
export interface MaskBudget {
  steps: number;
  numbers: number;
}

/** The masks of one import: of 100,000 objects, 40 numbers each. */
export const maskBudget = (): MaskBudget => ({ steps: 20_000_000, numbers: 4_000_000 });

/** Run lengths of one mask, which are in memory at once. */
export const RUNS_MAX = 2_000_000;

/** A mask that cannot be read, or one too many; the message says why. */
export class BrokenMask extends Error {
  override readonly name = "BrokenMask";
}

/** Pixels of a column that are on: from, to, from, to …, ascending, `to` exclusive. */
interface Column {
  x: number;
  runs: number[];
}

const SIDE_MAX = 65_535;
/** Comparisons of two numbers that take as long as one step. */
const COMPARISONS = 50;

function spend(budget: MaskBudget, kind: keyof MaskBudget, count: number) {
  budget[kind] -= count;
  if (budget[kind] < 0) throw new BrokenMask("masks of one import are too detailed");
}

/** Twice the area of a ring; positive where it runs clockwise on the screen. */
function twiceArea(ring: Ring): number {
  let twice = 0;
  for (let at = 0; at < ring.length; at += 2) {
    const next = (at + 2) % ring.length;
    twice += (ring[at] ?? 0) * (ring[next + 1] ?? 0) - (ring[next] ?? 0) * (ring[at + 1] ?? 0);
  }
  return twice;
}

/** The box around a ring: x1, y1, x2, y2. */
export function boxAround(ring: Ring): [number, number, number, number] {
  const box: [number, number, number, number] = [Infinity, Infinity, -Infinity, -Infinity];
  for (let at = 0; at < ring.length; at += 2) {
    const [x, y] = [ring[at] ?? 0, ring[at + 1] ?? 0];
    box[0] = Math.min(box[0], x);
    box[1] = Math.min(box[1], y);
    box[2] = Math.max(box[2], x);
    box[3] = Math.max(box[3], y);
  }
  return box;
}

/** Whether a ring is nothing but the box around it. */
export function isRectangle(ring: Ring): boolean {
  if (ring.length !== 8) return false;
  const [x1, y1, x2, y2] = boxAround(ring);
  const clockwise = [x1, y1, x2, y1, x2, y2, x1, y2];
  const other = [x1, y1, x1, y2, x2, y2, x2, y1];
  const same = (corners: number[], from: number) =>
    corners.every((value, at) => value === ring[(at + from) % 8]);
  return [0, 2, 4, 6].some((from) => same(clockwise, from) || same(other, from));
}

/**
 * The ring of polygons, whose union is the mask, as COCO has it; null where none has an area.
 * Polygons that overlap are united on the pixels whose centers they hold.
 */
export function ringOfPolygons(polygons: readonly Ring[], budget: MaskBudget): number[] | null {
  const rings = polygons.map(open).filter((ring) => ring.length >= 6 && twiceArea(ring) !== 0);
  if (rings.length <= 1) return kept(rings[0] ?? null, budget);
  const boxes = rings.map(boxAround);
  spend(budget, "steps", rings.length ** 2 / COMPARISONS);
  const meet = boxes.some((one, index) =>
    boxes.some((other, position) => position > index && touch(one, other)),
  );
  const united = meet ? outlines(painted(rings, budget), budget) : [];
  return kept(joined(united.length > 0 ? united : rings.map(clockwise), budget), budget);
}

/** The ring along the pixel borders of a mask given as run lengths; null for an empty mask. */
export function ringOfRunLengths(mask: RunLengths, budget: MaskBudget): number[] | null {
  const rings = outlines(columnsOf(mask, budget), budget);
  return kept(rings.length > 0 ? joined(rings, budget) : null, budget);
}

/** Pixels of a mask that take as long to look through as one step. */
const PIXELS = 50;

/**
 * The ring of a mask whose run lengths go row by row, `size` being its height and width; null for
 * an empty mask.
 */
export function ringOfRows(
  { size: [height, width], counts }: RunLengths,
  budget: MaskBudget,
): number[] | null {
  spend(budget, "steps", (height * width) / PIXELS);
  // Read column by column it is the same mask with its axes exchanged.
  const ring = ringOfRunLengths({ size: [width, height], counts }, budget);
  return ring && cornersOf(ring).flatMap(([x, y]) => [y, x]);
}

function kept(ring: Ring | null, budget: MaskBudget): number[] | null {
  spend(budget, "numbers", ring?.length ?? 0);
  return ring && [...ring];
}

/** Without a last corner that is the first one again. */
function open(ring: Ring): Ring {
  const last = ring.length - 2;
  const closed = last >= 6 && ring[0] === ring[last] && ring[1] === ring[last + 1];
  return closed ? ring.slice(0, last) : ring;
}

function clockwise(ring: Ring): Ring {
  if (twiceArea(ring) > 0) return ring;
  return cornersOf(ring).toReversed().flat();
}

type Box = ReturnType<typeof boxAround>;
const touch = (one: Box, other: Box) =>
  one[0] <= other[2] && other[0] <= one[2] && one[1] <= other[3] && other[1] <= one[3];

type Corner = [x: number, y: number];
const cornersOf = (ring: Ring): Corner[] =>
  Array.from({ length: ring.length / 2 }, (_, at) => [ring[2 * at] ?? 0, ring[2 * at + 1] ?? 0]);

/** The rings as one: the largest, which leaves for each other at its nearest corner and returns. */
function joined(rings: readonly Ring[], budget: MaskBudget): number[] {
  const numbers = rings.reduce((sum, { length }) => sum + length, 0);
  // Bridges only add to it: what is too much already is not joined first.
  if (numbers > budget.numbers) spend(budget, "numbers", numbers);
  const bySize = rings
    .map((ring) => ({ ring, size: Math.abs(twiceArea(ring)) }))
    .sort((one, other) => other.size - one.size);
  const [main = [], ...parts] = bySize.map(({ ring }) => cornersOf(ring));
  spend(budget, "steps", (parts.length * main.length) / COMPARISONS);
  const nearest = (corners: readonly Corner[], [x, y]: Corner) => {
    const distances = corners.map(([cx, cy]) => (cx - x) ** 2 + (cy - y) ** 2);
    let best = 0;
    for (const [at, distance] of distances.entries())
      if (distance < (distances[best] ?? 0)) best = at;
    return best;
  };
  const [x1, y1, x2, y2] = boxAround(main.flat());
  const middle: Corner = [(x1 + x2) / 2, (y1 + y2) / 2];
  const detours = new Map<number, Corner[][]>();
  for (const part of parts) {
    const from = nearest(part, middle);
    const loop = [...part.slice(from), ...part.slice(0, from + 1)];
    const gate = nearest(main, loop[0] as Corner);
    const others = detours.get(gate);
    if (others) others.push(loop);
    else detours.set(gate, [loop]);
  }
  return main.flatMap((corner, at) => [
    ...corner,
    ...(detours.get(at) ?? []).flatMap((loop) => [...loop.flat(), ...corner]),
  ]);
}

/** The pixels whose centers lie in one ring or more. */
function painted(rings: readonly Ring[], budget: MaskBudget): Column[] {
  const columns = new Map<number, number[][]>();
  for (const ring of rings) {
    for (const [x, crossings] of crossingsOf(ring, budget)) {
      const rows = crossings.toSorted((one, other) => one - other).map((y) => Math.ceil(y - 0.5));
      const column = columns.get(x) ?? [];
      columns.set(x, column);
      for (let at = 0; at + 1 < rows.length; at += 2) {
        if ((rows[at + 1] ?? 0) > (rows[at] ?? 0)) column.push(rows.slice(at, at + 2));
      }
    }
  }
  return [...columns]
    .filter(([, spans]) => spans.length > 0)
    .toSorted(([one], [other]) => one - other)
    .map(([x, spans]) => ({ x, runs: union(spans) }));
}

/** Where a ring's edges cross the middles of the columns, by column. */
function crossingsOf(ring: Ring, budget: MaskBudget): Map<number, number[]> {
  const crossings = new Map<number, number[]>();
  const corners = cornersOf(ring);
  for (const [at, [x1, y1]] of corners.entries()) {
    const [x2, y2] = corners[(at + 1) % corners.length] as Corner;
    const [from, to] = [Math.min(x1, x2), Math.max(x1, x2)];
    const [first, end] = [Math.ceil(from - 0.5), Math.ceil(to - 0.5)];
    spend(budget, "steps", end - first + 1);
    for (let x = first; x < end; x++) {
      const y = y1 + ((x + 0.5 - x1) / (x2 - x1)) * (y2 - y1);
      const column = crossings.get(x);
      if (column) column.push(y);
      else crossings.set(x, [y]);
    }
  }
  return crossings;
}

/** Spans of rows as runs that neither overlap nor touch. */
function union(spans: number[][]): number[] {
  const runs: number[] = [];
  for (const [from = 0, to = 0] of spans.toSorted(
    (one, other) => (one[0] ?? 0) - (other[0] ?? 0),
  )) {
    append(runs, from, to);
  }
  return runs;
}

/** Adds a run that begins no earlier than the others; one that meets the last is a part of it. */
function append(runs: number[], from: number, to: number) {
  const last = runs.length - 1;
  if (last > 0 && from <= (runs[last] ?? 0)) runs[last] = Math.max(runs[last] ?? 0, to);
  else runs.push(from, to);
}

function columnsOf({ size, counts }: RunLengths, budget: MaskBudget): Column[] {
  const [height, width] = size;
  if (![height, width].every((side) => Number.isInteger(side) && side > 0 && side <= SIDE_MAX)) {
    throw new BrokenMask("size must be a height and a width");
  }
  const lengths = typeof counts === "string" ? unpacked(counts) : counts;
  const columns: Column[] = [];
  let start = 0;
  for (const [index, length] of lengths.entries()) {
    if (!(Number.isInteger(length) && length >= 0)) throw new BrokenMask("counts are lengths");
    const end = start + length;
    if (end > height * width) break;
    for (let at = start; index % 2 === 1 && at < end; ) {
      const x = Math.floor(at / height);
      const to = Math.min(end, (x + 1) * height);
      const last = columns.at(-1);
      const runs: [number, number] = [at - x * height, to - x * height];
      if (last?.x === x) append(last.runs, ...runs);
      else columns.push({ x, runs });
      at = to;
      spend(budget, "steps", 1);
    }
    start = end;
  }
  if (start !== height * width) throw new BrokenMask("counts must add up to height times width");
  return columns;
}

const pairs = (runs: readonly number[]): number[][] =>
  Array.from({ length: runs.length / 2 }, (_, at) => [runs[2 * at] ?? 0, runs[2 * at + 1] ?? 0]);

/** Run lengths as pycocotools packs them: five bits a character, each less the last but one. */
function unpacked(text: string): number[] {
  const lengths: number[] = [];
  for (let at = 0; at < text.length; ) {
    let value = 0;
    for (let bits = 0; ; bits += 5) {
      const code = text.charCodeAt(at++) - 48;
      if (!(code >= 0 && code < 64) || bits > 25)
        throw new BrokenMask("counts are not packed right");
      value |= (code & 31) << bits;
      if ((code & 32) === 0) {
        if (code & 16 && bits < 25) value |= -1 << (bits + 5);
        break;
      }
    }
    lengths.push(value + (lengths.length > 2 ? (lengths.at(-2) ?? 0) : 0));
  }
  return lengths;
}

/** A corner as a number, and back. */
const codeOf = (x: number, y: number) => x * (SIDE_MAX + 1) + y;
const cornerOf = (code: number): Corner => [
  Math.floor(code / (SIDE_MAX + 1)),
  code % (SIDE_MAX + 1),
];

/**
 * The borders of pixels that are on, clockwise around them and so the other way around holes.
 * Pieces touch by sides, not by corners.
 */
function outlines(columns: readonly Column[], budget: MaskBudget): number[][] {
  const edges = new Map<number, number[]>();
  const add = (x1: number, y1: number, x2: number, y2: number) => {
    spend(budget, "steps", 1);
    const from = codeOf(x1, y1);
    const ends = edges.get(from);
    if (ends) ends.push(codeOf(x2, y2));
    else edges.set(from, [codeOf(x2, y2)]);
  };
  let before: Column | null = null;
  for (const column of [...columns, null]) {
    const adjoins = before !== null && column?.x === before.x + 1;
    if (before && !adjoins) sides(before.x + 1, before.runs, [], add);
    if (!column) break;
    sides(column.x, adjoins ? (before?.runs ?? []) : [], column.runs, add);
    for (const [from = 0, to = 0] of pairs(column.runs)) {
      add(column.x, from, column.x + 1, from);
      add(column.x + 1, to, column.x, to);
    }
    before = column;
  }
  const rings: number[][] = [];
  for (const start of edges.keys()) {
    while ((edges.get(start)?.length ?? 0) > 0) rings.push(walk(edges, start));
  }
  return rings;
}

type AddEdge = (x1: number, y1: number, x2: number, y2: number) => void;

/** The edges between two columns: up where the right one begins, down where the left ends. */
function sides(x: number, left: readonly number[], right: readonly number[], add: AddEdge) {
  const ends = [
    ...left.map((y) => ({ y, side: "left" as const })),
    ...right.map((y) => ({ y, side: "right" as const })),
  ].sort((one, other) => one.y - other.y);
  const on = { left: false, right: false };
  let from = 0;
  for (const { y, side } of ends) {
    if (y > from && on.right && !on.left) add(x, y, x, from);
    if (y > from && on.left && !on.right) add(x, from, x, y);
    on[side] = !on[side];
    from = y;
  }
}

/** Takes the edges of one border, from a corner back to it; corners are where it turns. */
function walk(edges: Map<number, number[]>, start: number): number[] {
  const ring: Corner[] = [];
  let [at, direction] = [start, [0, 0] as Corner];
  do {
    const [x, y] = cornerOf(at);
    const ends = edges.get(at) ?? [];
    const ways = ends.map((end): Corner => {
      const [nextX, nextY] = cornerOf(end);
      return [Math.sign(nextX - x), Math.sign(nextY - y)];
    });
    // Where two pixels touch by a corner the border turns right, and stays with its own piece.
    const right = ways.findIndex(([dx, dy]) => dx === -direction[1] && dy === direction[0]);
    const chosen = ends.length > 1 && right >= 0 ? right : 0;
    const way = ways[chosen] as Corner;
    if (way[0] !== direction[0] || way[1] !== direction[1]) ring.push([x, y]);
    direction = way;
    at = ends.splice(chosen, 1)[0] as number;
  } while (at !== start);
  const [first, second, last] = [ring[0] as Corner, ring[1] as Corner, ring.at(-1) as Corner];
  const straight =
    (last[0] === first[0] && first[0] === second[0]) ||
    (last[1] === first[1] && first[1] === second[1]);
  return (straight ? ring.slice(1) : ring).flat();
}
