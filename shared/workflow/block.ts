// What a block is: its entry in the catalogue, which says what it takes and makes, and, for those
// that need neither pixels nor models, what it does. An entry of one version never changes but for
// mistakes; another behaviour is another version.

import type { z } from "zod";
import type { Kind } from "./kinds.ts";
import type { ValueOf } from "./values.ts";

/** What a step is given at a port. */
export interface InputPort {
  kind: Kind;
  meaning: string;
  /** A step may leave it open; the block then sees nothing there, or the default. */
  optional?: true;
  /** What an open port gives; it is also what says that the port may be left open. */
  default?: unknown;
  /**
   * `all`: the block takes what all elements of the innermost batch came to, in their order, as a
   * list; masked ones are left out. Its outputs are one level flatter.
   */
  batch?: "all";
  /** It is handed masked elements as null, in place of being masked itself. */
  takesMasked?: true;
}

/** What a step makes at a port. */
export interface OutputPort {
  /** The kind; or the kind of what came in at a port, as it is or with ids of tracks. */
  kind: Kind | { like: string; tracked?: true };
  meaning: string;
  /**
   * The block makes a list of these of one element, and every one is an element of its own from
   * there on. All outputs of a block that deepen have as many.
   */
  deepens?: true;
}

export type InputPorts = Readonly<Record<string, InputPort>>;
export type OutputPorts = Readonly<Record<string, OutputPort>>;

/** What a step of some parameters takes and makes, for blocks whose ports depend on these. */
export interface Ports {
  inputs: InputPorts;
  outputs: OutputPorts;
}

/** Who runs it: every host, or a GPU node alone, since it needs pixels or a model. */
export type RunsOn = "anywhere" | "node";
/**
 * `pure`: the same inputs make the same outputs. `stateful`: it remembers, a state for each step
 * and stream. `sink`: it asks for something to be done outside, once the run has ended well.
 */
export type Purity = "pure" | "stateful" | "sink";
/** What an element costs: no pixels; some milliseconds a megapixel; a model's time. */
export type Cost = "free" | "pixels" | "model";

/** What must be done outside, said by a sink and performed by whoever asked for the run. */
export interface Effect {
  kind: "webhook" | "dataset_upload";
  /** What it needs, by the sink's own schema; a secret is named in it, never told. */
  request: unknown;
  /** An image that goes with it, as the host knows it. */
  image?: unknown;
}

/** A model that has answered, as a run reports it. */
export interface AnsweringModel {
  /** As the step names it. */
  asked: string;
  model_id: string;
  name: string;
  version: number;
}

/** What a block is given for one element. */
export interface BlockCall<Inputs = Readonly<Record<string, unknown>>, Parameters = unknown> {
  inputs: Inputs;
  parameters: Parameters;
  /** What the step has returned as its state for this stream the last time; null at first. */
  state: unknown;
  /** Time of the frame or request, milliseconds: since 1970, or since a video's first frame. */
  now: number;
  signal: AbortSignal;
}

/** What a block has made of one element. */
export interface BlockResult {
  /** By port; null of a port masks it, as if the element were not there. */
  outputs: Readonly<Record<string, unknown>>;
  /** What it wants to see again; JSON. Left out, it stays as it was. */
  state?: unknown;
  effects?: readonly Effect[];
  models?: readonly AnsweringModel[];
  /** For a message to the user who asked, such as what was left out. */
  warnings?: readonly string[];
}

/** Why a block cannot do it, in words for the user who asked; any other error is told to nobody. */
export class BlockFailure extends Error {
  override readonly name = "BlockFailure";
}

export type RunBlock = (call: BlockCall) => BlockResult | Promise<BlockResult>;

/** An example of a block at work: a contract, as each one is run by a test. */
export interface BlockExample {
  parameters: Readonly<Record<string, unknown>>;
  /** Values as they go over the wire: an image is a data address. */
  inputs: Readonly<Record<string, unknown>>;
  outputs: Readonly<Record<string, unknown>>;
  /** The state that it begins with, where it has one, and milliseconds that `now` is. */
  state?: unknown;
  now?: number;
}

/** Kinds of what comes in, by port. */
export type PortKinds = ReadonlyMap<string, Kind | null>;

/** A parameter that does not go with the kinds of what comes in. */
export interface KindProblem {
  parameter: string;
  detail: string;
  fix: string;
}

/** A block as the catalogue has it. */
export interface Block {
  /** `name@version`. */
  type: string;
  title: string;
  description: string;
  /** The section of the catalogue that it stands in. */
  section: Section;
  inputs: InputPorts;
  /** What a step says of itself: literals, that no other step can give. */
  parameters: z.ZodObject;
  outputs: OutputPorts;
  /** The ports of a step, where its parameters decide them; it gets them parsed. */
  portsOf?: (parameters: never) => Ports;
  /** What is wrong with parameters beyond their schema; null where nothing is. */
  problemOf?: (parameters: never) => string | null;
  /**
   * What is wrong with parameters beside the kinds of what comes in, by port; null for nothing. A
   * kind is null where a problem that was told of keeps it from being known.
   */
  kindProblemOf?: (parameters: never, kinds: PortKinds) => KindProblem | null;
  runsOn: RunsOn;
  purity: Purity;
  /**
   * The name that a stateful block's state is kept under, in place of its step's id: steps of one
   * key share one state, and run one after the other in the order of the plan.
   */
  stateKey?: string;
  /** Each call is the next frame of its stream to it: it does not work on a batch of one frame. */
  takesFrames?: true;
  cost: Cost;
  example: BlockExample;
  /** What it does; null where the node has it. */
  run: RunBlock | null;
}

/** What a step takes and makes, of parameters that its block's own schema has parsed. */
export const portsFor = (block: Block, parameters: unknown): Ports =>
  // What the schema has parsed is what the function takes.
  block.portsOf?.(parameters as never) ?? block;

/** What is wrong with such parameters beyond their schema; null where nothing is. */
export const problemFor = (block: Block, parameters: unknown): string | null =>
  // What the schema has parsed is what the function takes.
  block.problemOf?.(parameters as never) ?? null;

/** What is wrong with such parameters beside the kinds of what comes in; null where nothing is. */
export const kindProblemFor = (
  block: Block,
  parameters: unknown,
  kinds: PortKinds,
): KindProblem | null =>
  // What the schema has parsed is what the function takes.
  block.kindProblemOf?.(parameters as never, kinds) ?? null;

export const SECTIONS = [
  "models",
  "images",
  "detections",
  "tracking",
  "flow",
  "values",
  "drawing",
  "formats",
  "sinks",
] as const;
export type Section = (typeof SECTIONS)[number];

type PortValue<Port> = Port extends { kind: infer K extends Kind }
  ?
      | (Port extends { batch: "all" } ? ValueOf<K>[] : ValueOf<K>)
      | (Port extends { optional: true } ? undefined : never)
      | (Port extends { takesMasked: true } ? null : never)
  : never;

/** Values by port, as a block of these ports is given them. */
export type InputsOf<Ports> = { readonly [Name in keyof Ports]: PortValue<Ports[Name]> };

/** What of a block takes the parameters of a step. */
type ParameterReader = "portsOf" | "problemOf" | "kindProblemOf";

/**
 * A block that any host runs, its call typed by its ports and its parameters. Of a block with
 * `portsOf` the inputs are read by name.
 */
export function defineBlock<
  const Inputs extends InputPorts,
  Parameters extends z.ZodObject,
  const Outputs extends OutputPorts,
>(
  block: Omit<Block, "inputs" | "parameters" | "outputs" | "run" | ParameterReader> & {
    inputs: Inputs;
    parameters: Parameters;
    outputs: Outputs;
    portsOf?: (parameters: z.output<Parameters>) => Ports;
    problemOf?: (parameters: z.output<Parameters>) => string | null;
    kindProblemOf?: (parameters: z.output<Parameters>, kinds: PortKinds) => KindProblem | null;
    run:
      | ((
          call: BlockCall<InputsOf<Inputs>, z.output<Parameters>>,
        ) => BlockResult | Promise<BlockResult>)
      | null;
  },
): Block {
  // The executor hands each block only what its own ports and schema let through.
  return block as unknown as Block;
}
