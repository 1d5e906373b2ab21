// The elements that a step works on: its inputs' batches side by side, values of outer batches
// given to each element of the inner ones, and the whole of a batch where a port takes it.

import { contentKey } from "./literals.ts";
import type { KeyedValue, PlannedInput, PlannedStep } from "./plan.ts";

/** Values by batch: a value, a list of these for each batch more; null is masked, all of it. */
export type Tree = KeyedValue | null | readonly Tree[];

/** Numbers of elements in the same shape; null where no element is. */
export type Skeleton = number | null | readonly Skeleton[];

export interface StepElement {
  /** Indexes in its batches, outermost first. */
  path: readonly number[];
  /** By port; null where the step is not to work on it. */
  inputs: ReadonlyMap<string, KeyedValue | null> | null;
}

/** Keys that are of one run alone begin so, and so do those of what is made of them. */
export const VOLATILE = "~";
/**
 * Keys of batches as one begin so, of whatever run they are: a list that somebody writes down may
 * have the keys of a batch's values as its items.
 */
const WHOLE = "*";

interface Strand {
  tree: Tree;
  /** Batches that are in the tree yet, but for the one that a port takes whole. */
  levels: number;
  port: PlannedInput | null;
}

/** What a step's values are, by the sources in its plan; the whole of each. */
export type Lookup = (source: PlannedInput["source"]) => Tree;

const MASKED = Symbol("masked");

/** Values of a batch as one, masked ones left out. */
function wholeOf(tree: Tree): KeyedValue | null {
  if (tree === null) return null;
  const items = (tree as readonly (KeyedValue | null)[]).filter((item) => item !== null);
  const keys = items.map(({ key }) => key);
  const isVolatile = keys.some((key) => key.startsWith(VOLATILE));
  return {
    value: items.map(({ value }) => value),
    key: `${isVolatile ? VOLATILE : ""}${WHOLE}${contentKey(keys)}`,
  };
}

/** What is at a port for one element, or that it masks the element. */
function valueAt({ tree, port }: Strand): KeyedValue | null | typeof MASKED {
  if (port === null) return (tree as KeyedValue | null)?.value === true ? null : MASKED;
  const value = port.isWhole ? wholeOf(tree) : (tree as KeyedValue | null);
  return value === null && !port.takesMasked ? MASKED : value;
}

function inputsOf(strands: readonly Strand[]): Map<string, KeyedValue | null> | null {
  const inputs = new Map<string, KeyedValue | null>();
  for (const strand of strands) {
    const value = valueAt(strand);
    if (value === MASKED) return null;
    if (strand.port) inputs.set(strand.port.port, value);
  }
  return inputs;
}

/**
 * The elements of a step in their order, and the shape that their batches have. Where a whole batch
 * is masked, it is one element that is.
 */
export function elementsOf(
  step: PlannedStep,
  lookup: Lookup,
): { elements: StepElement[]; skeleton: Skeleton } {
  const elements: StepElement[] = [];
  const strands: Strand[] = [
    ...step.inputs.map((port) => ({
      tree: lookup(port.source),
      levels: port.lineage.length,
      port,
    })),
    ...step.when.map(({ source, lineage }) => ({
      tree: lookup(source),
      levels: lineage.length,
      port: null,
    })),
  ];
  const walk = (current: readonly Strand[], path: readonly number[]): Skeleton => {
    if (path.length === step.lineage.length) {
      elements.push({ path, inputs: inputsOf(current) });
      return elements.length - 1;
    }
    const deep = current.filter(({ levels }) => levels > path.length);
    const batch = deep.find(({ tree }) => tree !== null)?.tree as readonly Tree[] | undefined;
    const isMasked = deep.some(({ tree, port }) => tree === null && !port?.takesMasked);
    if (!batch || isMasked) {
      elements.push({ path, inputs: null });
      return null;
    }
    return batch.map((_, index) =>
      walk(
        current.map((strand) => {
          if (strand.levels <= path.length || strand.tree === null) return strand;
          return { ...strand, tree: (strand.tree as readonly Tree[])[index] ?? null };
        }),
        [...path, index],
      ),
    );
  };
  const skeleton = walk(strands, []);
  return { elements, skeleton };
}

/** What each element came to, in the shape of their batches. */
export function treeOf(skeleton: Skeleton, of: (element: number) => Tree): Tree {
  if (skeleton === null) return null;
  return typeof skeleton === "number" ? of(skeleton) : skeleton.map((each) => treeOf(each, of));
}

/** Values of a tree, masked ones as well. */
export function countOf(tree: Tree): number {
  if (tree === null) return 1;
  return "key" in tree ? 1 : tree.reduce((sum: number, each) => sum + countOf(each), 0);
}

/** A tree's values alone. */
export function valuesOf(tree: Tree): unknown {
  if (tree === null) return null;
  return "key" in tree ? tree.value : tree.map(valuesOf);
}
