// Which objects of two lists are the same one: boxes that overlap enough. Symmetric: with the lists
// swapped the same pairs come out, swapped. Pure.

import type { Bbox } from "../shapes.ts";
import { iou } from "./tracks.ts";

/** An object as it is matched. */
export interface MatchedObject {
  class: string;
  confidence: number;
  bbox: Readonly<Bbox>;
}

/** Two objects, by their indexes, that are one. */
export interface ObjectPair {
  a: number;
  b: number;
  iou: number;
  isSameClass: boolean;
}

/** What two lists have in common; each object is of one pair at most. */
export interface ObjectMatches {
  /** Those of one class first, each kind by falling IoU. */
  pairs: ObjectPair[];
  /** Indexes of what has no partner, rising. */
  onlyA: number[];
  onlyB: number[];
}

/**
 * Pairs objects whose boxes overlap by at least `iouMin`: those of one class first, the larger
 * overlap before the smaller; what is left may pair with another class.
 */
export function matchObjects(
  a: readonly MatchedObject[],
  b: readonly MatchedObject[],
  iouMin: number,
): ObjectMatches {
  const candidates = candidatesOf(a, b, iouMin);
  const [pairedA, pairedB] = [new Set<number>(), new Set<number>()];
  const pairs: ObjectPair[] = [];
  const sameFirst = [true, false].flatMap((isSame) =>
    candidates.filter(({ isSameClass }) => isSameClass === isSame),
  );
  for (const pair of sameFirst) {
    if (pairedA.has(pair.a) || pairedB.has(pair.b)) continue;
    pairedA.add(pair.a);
    pairedB.add(pair.b);
    pairs.push(pair);
  }
  const without = (objects: readonly MatchedObject[], paired: ReadonlySet<number>) =>
    Array.from(objects.keys()).filter((index) => !paired.has(index));
  return { pairs, onlyA: without(a, pairedA), onlyB: without(b, pairedB) };
}

/** All pairs that may be one object, by falling IoU. */
function candidatesOf(
  a: readonly MatchedObject[],
  b: readonly MatchedObject[],
  iouMin: number,
): ObjectPair[] {
  const pairs: ObjectPair[] = [];
  for (const [indexA, one] of a.entries()) {
    const [left, top, right, bottom] = one.bbox;
    for (let indexB = 0; indexB < b.length; indexB++) {
      const other = b[indexB] as MatchedObject;
      const box = other.bbox;
      // Most boxes lie apart, and are told so in a fraction of what an overlap costs.
      if (box[0] >= right || box[2] <= left || box[1] >= bottom || box[3] <= top) continue;
      const overlap = iou(one.bbox, box);
      if (overlap < iouMin || overlap === 0) continue;
      pairs.push({ a: indexA, b: indexB, iou: overlap, isSameClass: one.class === other.class });
    }
  }
  // Equal overlaps are told apart by the objects themselves, whichever list is which.
  // Each is named once, as there may be many times more pairs than objects.
  const [namesA, namesB] = [a.map(nameOf), b.map(nameOf)];
  const namesOf = (pair: ObjectPair) => [namesA[pair.a], namesB[pair.b]].sort().join();
  return pairs.sort((one, other) => {
    if (one.iou !== other.iou) return other.iou - one.iou;
    const [name, otherName] = [namesOf(one), namesOf(other)];
    return name === otherName ? 0 : name < otherName ? -1 : 1;
  });
}

const nameOf = ({ class: name, bbox, confidence }: MatchedObject): string =>
  JSON.stringify([name, bbox, confidence]);
