// First weights from a file: of the registry, or brought along as safetensors or ONNX. Tensors go
// where their names say. A file under other names goes by order, where the whole sequence of its
// shapes is the graph's. Files made for inference have batch norm folded in and one head: the norm
// is made again so that it changes nothing, and the other head starts as a copy.

import * as fs from "node:fs/promises";
import type { Engine, LoadReport } from "../../native/index.d.ts";
import { deployed } from "../../shared/detector/deployed-detector.ts";
import { NORM_EPSILON } from "../../shared/detector/deployed-weights.ts";
import {
  type ConvNode,
  type DetectorGraph,
  type GraphNode,
  HEAD_LAYER,
  stateTensors,
} from "../../shared/detector/detector.ts";
import type { ResolvedSettings } from "../../shared/wire/training.ts";
import { TaskFailure } from "../base/failure.ts";
import { floatsOf, readTensors, writeTensors } from "../export/weights-file.ts";
import { readInitializers, type Weights } from "./initializers.ts";

const BYTES_MAX = 2 * 1024 ** 3;
/** Names in a report, of each kind. */
const NAMED_MAX = 20;

export type PretrainedReport = NonNullable<ResolvedSettings["pretrained"]>;

export interface PretrainedFile {
  path: string;
  format: "safetensors" | "onnx";
}

/** First weights under a graph's names, for an engine that is to begin with them. */
export interface FirstWeights extends TensorArrangement {
  /** Something of the graph's head is among them; without it a run learns that from nothing. */
  hasHead: boolean;
}

/** Reads a file's weights as a graph has them. Fails with `bad_weights`. */
export async function readPretrained(
  graph: DetectorGraph,
  { path, format }: PretrainedFile,
): Promise<FirstWeights> {
  const orders = format === "onnx" ? await onnxOrders(path) : [await safetensorsOrder(path)];
  const arranged = orders.map((weights) => arrange(weights, graph)).find((one) => one !== null);
  const count = orders[0]?.length ?? 0;
  if (!arranged) {
    const named = `none of the file's ${count} tensors is named as in ${graph.variant}`;
    const detail = `${named}, and their shapes in order are not its either`;
    throw new TaskFailure("bad_weights", `the first weights do not fit: ${detail}`);
  }
  const hasHead = stateTensors(graph).some(
    ({ name, layer, shape }) =>
      layer === HEAD_LAYER &&
      shape.length > 0 &&
      arranged.tensors.get(name)?.shape.join() === shape.join(),
  );
  return { ...arranged, hasHead };
}

/**
 * Gives an engine its first weights, by way of a file; says how, line by line. Fails with
 * `bad_weights`.
 */
export async function loadPretrained(
  engine: Pick<Engine, "load">,
  weights: FirstWeights,
  temporary: string,
): Promise<{ report: PretrainedReport; lines: string[] }> {
  try {
    await fs.writeFile(temporary, writeTensors(weights.tensors), { mode: 0o600 });
    const report = await engine.load(temporary);
    if (report.matched.length === 0) {
      const detail = "no tensor has the shape that it has in the model: choose the same variant";
      throw new TaskFailure("bad_weights", `the first weights do not fit: ${detail}`);
    }
    return described(report, weights);
  } finally {
    await fs.rm(temporary, { force: true });
  }
}

async function onnxOrders(path: string): Promise<Weights[][]> {
  const { listed, used } = await readInitializers(path);
  return [listed, used];
}

async function safetensorsOrder(path: string): Promise<Weights[]> {
  const { size } = await fs.stat(path);
  if (size > BYTES_MAX) throw new TaskFailure("bad_weights", "the weights have more than 2 GiB");
  const { tensors } = readTensors(await fs.readFile(path));
  return [...tensors].flatMap(([name, stored]) =>
    // Counters and the like are no weights, and what a trainer keeps beside them is none of ours.
    /^(F16|BF16|F32|F64)$/.test(stored.dtype) && !name.startsWith("trainer.")
      ? [{ name, shape: stored.shape, values: floatsOf(stored, name) }]
      : [],
  );
}

interface TensorArrangement {
  tensors: Map<string, { shape: readonly number[]; values: Float32Array }>;
  /** How they were matched, and what was made of them, as sentences. */
  how: string[];
  unused: string[];
}

/** The weights under the graph's names; null where neither names nor order say which is which. */
export function arrange(
  weights: readonly Weights[],
  graph: DetectorGraph,
): TensorArrangement | null {
  const convs = graph.nodes.filter(isConv);
  const known = new Set(stateTensors(graph).map(({ name }) => name));
  for (const { name } of convs) known.add(`${name}.bias`);
  const named = weights.filter(({ name }) => known.has(name));
  if (named.length > 0) {
    const unused = weights.filter(({ name }) => !known.has(name)).map(({ name }) => name);
    return completed(named, graph, { how: ["Matched by name."], unused });
  }
  // Counters have no shape, and not every file has them.
  const shaped = weights.filter(({ shape }) => shape.length > 0);
  for (const [order, what] of ordersOf(graph)) {
    const renamed = byOrder(shaped, order);
    if (!renamed) continue;
    const how = [`Matched by order: all ${shaped.length} shapes are ${what}, under other names.`];
    return completed(renamed, graph, { how, unused: [] });
  }
  return null;
}

const isConv = (node: GraphNode): node is ConvNode => node.op === "conv";

interface Slot {
  name: string;
  shape: readonly number[];
}

/** What a file may hold in the graph's order: all it trains, or what is deployed of it. */
function ordersOf(graph: DetectorGraph): [Slot[], string][] {
  const whole = stateTensors(graph).filter(({ shape }) => shape.length > 0);
  const one = deployed(graph);
  const kept = new Set(one.nodes.flatMap((node) => ("name" in node ? [node.name] : [])));
  const single = whole.filter(({ name }) => kept.has(convOf(name)));
  return [
    [whole, "those of the model in training"],
    [single, "those of the model with one head"],
    [stateTensors(one), "those of the model as it is deployed"],
  ];
}

const convOf = (tensor: string) => tensor.replace(/(\.norm)?\.[^.]+$/, "");

/** Classes may differ: the last part of the class branch need not have the same shape. */
const ofClasses = (name: string) => /\.(cls|semantic)\./.test(name);

function byOrder(weights: readonly Weights[], order: readonly Slot[]): Weights[] | null {
  if (weights.length !== order.length || order.length === 0) return null;
  const fits = weights.every(({ shape }, at) => {
    const slot = order[at] as Slot;
    if (shape.length !== slot.shape.length) return false;
    return ofClasses(slot.name) || shape.join() === slot.shape.join();
  });
  if (!fits) return null;
  return weights.map((one, at) => ({ ...one, name: (order[at] as Slot).name }));
}

/** A tensor's name in the other head; null of what is in none. */
const twinOf = (name: string): string | null => {
  if (name.includes(".o2m.")) return name.replace(".o2m.", ".o2o.");
  return name.includes(".o2o.") ? name.replace(".o2o.", ".o2m.") : null;
};

/** Adds what files for inference lack: norms, and the head that they are not served by. */
function completed(
  weights: readonly Weights[],
  graph: DetectorGraph,
  { how, unused }: Pick<TensorArrangement, "how" | "unused">,
): TensorArrangement {
  const tensors: TensorArrangement["tensors"] = new Map(
    weights.map(({ name, ...one }) => [name, one]),
  );
  const said = [...how];
  let unfolded = 0;
  for (const { name, normalized } of graph.nodes.filter(isConv)) {
    const bias = tensors.get(`${name}.bias`);
    if (!normalized || !bias) continue;
    tensors.delete(`${name}.bias`);
    if (tensors.has(`${name}.norm.bias`)) continue;
    const filled = (value: number) => new Float32Array(bias.values.length).fill(value);
    const { shape } = bias;
    tensors.set(`${name}.norm.weight`, { shape, values: filled(Math.sqrt(1 + NORM_EPSILON)) });
    tensors.set(`${name}.norm.bias`, bias);
    tensors.set(`${name}.norm.mean`, { shape, values: filled(0) });
    tensors.set(`${name}.norm.variance`, { shape, values: filled(1) });
    unfolded += 1;
  }
  if (unfolded > 0) {
    said.push(`Its batch norm is folded in: made again for ${unfolded} convolutions.`);
  }
  let copied = 0;
  for (const { name } of stateTensors(graph)) {
    const twin = tensors.get(twinOf(name) ?? "");
    if (tensors.has(name) || !twin) continue;
    tensors.set(name, twin);
    copied += 1;
  }
  if (copied > 0) said.push("It has one head: the other starts as a copy.");
  return { tensors, how: said, unused };
}

function described(
  { matched, mismatched, missing, unused }: LoadReport,
  arranged: TensorArrangement,
): { report: PretrainedReport; lines: string[] } {
  const lost = [...arranged.unused, ...unused];
  // Counters of batches are no weights; nothing is missing without them.
  const lacking = missing.filter((name) => !name.endsWith("norm.batches"));
  const of = matched.length + mismatched.length + lacking.length;
  const shapes = mismatched.map(
    ({ name, file, graph }) => `${name}: [${file}] in the file, [${graph}] here`,
  );
  const report = {
    matched: matched.length,
    of,
    mismatched: few(shapes),
    missing: few(lacking),
    unused: few(lost),
  };
  const lines = [
    `First weights: ${matched.length} of ${of} tensors.`,
    ...arranged.how,
    ...(mismatched.length > 0
      ? [`${mismatched.length} of another shape start fresh, such as ${mismatched[0]?.name}.`]
      : []),
    ...(lacking.length > 0 ? [`${lacking.length} are not in the file and start fresh.`] : []),
    ...(lost.length > 0 ? [`${lost.length} of the file are not used.`] : []),
  ];
  return { report, lines };
}

const few = (names: readonly string[]): string[] =>
  names.length <= NAMED_MAX
    ? [...names]
    : [...names.slice(0, NAMED_MAX), `and ${names.length - NAMED_MAX} more`];
