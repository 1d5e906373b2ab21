// A workflow that was checked, ready to be run: its steps in an order in which each comes after
// what it needs, with the kind and the batches of every value. Only `checkWorkflow` makes one.

import type { Block, RunsOn } from "./block.ts";
import type { WorkflowInput } from "./definition.ts";
import type { Kind } from "./kinds.ts";

/** A value with what tells it from any other: equal keys, equal values. */
export interface KeyedValue {
  value: unknown;
  key: string;
}

/** Ids of the steps whose batches a value's elements are of, outermost first. */
export type Lineage = readonly string[];

/** Where a value comes from. */
export type PlannedSource =
  | { from: "input"; name: string }
  | { from: "literal"; literal: KeyedValue }
  | { from: "step"; step: string; port: string };

/** What a step is given at a port; a port that is left open and has no default is not listed. */
export interface PlannedInput {
  port: string;
  kind: Kind;
  /** The innermost batch as a list. */
  isWhole: boolean;
  takesMasked: boolean;
  source: PlannedSource;
  /** Batches that the step has in common with the value: of a whole one, all but the innermost. */
  lineage: Lineage;
}

export interface PlannedStep {
  id: string;
  block: Block;
  /** As the block's schema parsed them. */
  parameters: unknown;
  /** Digest of its block and parameters: with its inputs' keys it makes those of its outputs. */
  key: string;
  inputs: readonly PlannedInput[];
  /** Booleans that all have to be true. */
  when: readonly { source: PlannedSource; lineage: Lineage }[];
  outputs: readonly { port: string; kind: Kind; deepens: boolean }[];
  /** Batches of its elements. */
  lineage: Lineage;
}

export interface PlannedOutput {
  name: string;
  kind: Kind;
  source: PlannedSource;
  /** The value is in as many lists, one in another. */
  lineage: Lineage;
}

export interface WorkflowPlan {
  /** What a run is given. */
  inputs: readonly WorkflowInput[];
  /** What sub-workflows were given as literals, by path. */
  constants: ReadonlyMap<string, KeyedValue>;
  /** Those that an output or a sink needs, and sinks. */
  steps: readonly PlannedStep[];
  outputs: readonly PlannedOutput[];
  runsOn: RunsOn;
  isStateful: boolean;
  hasEffects: boolean;
  /** What it names itself, as literals and as defaults of inputs. */
  models: readonly string[];
  secrets: readonly string[];
  projects: readonly string[];
}
