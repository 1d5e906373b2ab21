// Predictions by the direct line: an image goes straight to a node that has the model open, and its
// answer comes back on the same way. Nothing of it is stored; who loses the node asks another one.

import { Failure } from "../../../shared/errors.ts";
import {
  encodeAsk,
  LINE_STATUS,
  LineAnswer,
  type LineHead,
  LineProblem,
} from "../../../shared/line.ts";
import type { Prediction } from "../../../shared/tasks.ts";
import type { Parts } from "../base/parts.ts";
import { tally } from "../base/tally.ts";
import { type ModelRow, modelSource } from "../registry/models.ts";
import { lineOf } from "../tasks/bell.ts";
import { boxProblem } from "../tasks/detections.ts";
import { type LineNode, listLineNodes } from "../tasks/nodes.ts";
import { signReferences } from "../tasks/objects.ts";
import { subjectOf } from "./model-choice.ts";

/** By when a node that has the model open answers, and one that opens it first. */
const WARM_MS = 30_000;
const COLD_MS = 60_000;
/** Nodes that are asked, one after another: one that fell over is no reason to try all. */
const NODES_MAX = 2;
/** How long an isolate believes which nodes are there. */
const BELIEVED_MS = 1_000;
const BELIEVED_MAX = 1_000;

/** What this isolate heard of the nodes of a model, by workspace and model. */
const believed = new Map<string, { at: number; nodes: LineNode[] }>();
/** Requests of this isolate that are at each node. */
const inFlight = new Map<string, number>();

/** An image to predict on. */
export interface DirectRequest {
  /** The file in pieces. */
  image: readonly Uint8Array[];
  confidenceMin: number;
  /** Aborts when whoever asked has gone. */
  signal: AbortSignal;
  /** Nobody waits for it: it gets no place that others may soon need. */
  isBatch?: boolean;
}

/** What a node found, and which. */
export interface DirectAnswer {
  predictions: Prediction[];
  /** The node's name. */
  servedBy: string;
  /** Images that the node looked at together; null where it does not tell. */
  batch: number | null;
  /** Whether the node had to open the model first. */
  cold: boolean;
}

/**
 * What a node finds on an image; null where no node has a line, and the queue has to do it. Fails
 * with `overloaded` where all have as much as they take, with `no_node` where none answered, with
 * `unsupported_media` and `task_failed`.
 */
export async function predictDirectly(
  parts: Parts,
  model: ModelRow,
  request: DirectRequest,
): Promise<DirectAnswer | null> {
  const nodes = await nodesOf(parts, model);
  if (nodes.length === 0) return null;
  const signed = await signReferences(parts, modelSource(model));
  const head = { model: signed as LineHead["model"], confidence: request.confidenceMin };
  const body = encodeAsk(head, request.image);
  const began = parts.clock();
  const statuses: number[] = [];
  for (const node of choose(nodes)) {
    const left = began + (node.warm ? WARM_MS : COLD_MS) - parts.clock();
    if (left <= 0) break;
    const { signal, isBatch = false } = request;
    const asked = parts.clock();
    const answer = await ask(parts, node, { body, ms: left, signal, isBatch });
    countAsk(answer.status, parts.clock() - asked);
    if (answer.status === LINE_STATUS.done || answer.status === LINE_STATUS.refused) {
      const { predictions, batch = null, cold = false } = answerOf(model, answer);
      return { predictions, servedBy: node.name, batch, cold };
    }
    parts.log.info("line_unanswered", { node_id: node.nodeId, status: answer.status });
    statuses.push(answer.status);
    if (answer.status === LINE_STATUS.late || answer.status === LINE_STATUS.left) break;
  }
  // What no node had in its hands is the queue's.
  if (statuses.every((status) => status === LINE_STATUS.noLine)) return null;
  throw unanswered(statuses);
}

const STATUS_NAMES = new Map<number, string>(
  Object.entries(LINE_STATUS).map(([name, status]) => [status, name]),
);

function countAsk(status: number, milliseconds: number): void {
  const name = STATUS_NAMES.get(status) ?? "other";
  tally.count("vantage_vision_line_asks_total", { status: name });
  if (status !== LINE_STATUS.done) return;
  tally.observe("vantage_vision_line_ask_duration_seconds", {}, milliseconds / 1_000);
}

function unanswered(statuses: readonly number[]): Failure {
  if (statuses.includes(LINE_STATUS.full)) {
    return new Failure("overloaded", "the GPU nodes have as much as they take", {
      data: { retry_after_seconds: 1 },
    });
  }
  const late = statuses.includes(LINE_STATUS.late);
  return new Failure("no_node", `no GPU node answered${late ? " in time" : ""}; try again`);
}

/** The nodes with a line that may serve a model. */
async function nodesOf(parts: Parts, { workspaceId, modelId }: ModelRow): Promise<LineNode[]> {
  const key = subjectOf(`${workspaceId}.${modelId}`);
  const known = believed.get(key);
  const now = parts.clock();
  if (known && now - known.at < BELIEVED_MS) return known.nodes;
  const nodes = await listLineNodes(parts.database, { workspaceId, modelId });
  if (believed.size >= BELIEVED_MAX) believed.clear();
  believed.set(key, { at: now, nodes });
  return nodes;
}

/**
 * Two random nodes that have the model open, the one with less to do first (the power of two
 * choices). Where fewer have it, others follow: whom the first one has no room for opens it there.
 */
function choose(nodes: readonly LineNode[]): LineNode[] {
  const warm = some(nodes.filter((node) => node.warm));
  const cold = some(nodes.filter((node) => !node.warm));
  return [...warm, ...cold].slice(0, NODES_MAX);
}

/** As many random nodes as are asked, the one with less to do first. */
function some(nodes: readonly LineNode[]): LineNode[] {
  const left = [...nodes];
  const chosen: LineNode[] = [];
  while (chosen.length < NODES_MAX && left.length > 0) {
    chosen.push(...left.splice(Math.floor(Math.random() * left.length), 1));
  }
  const load = ({ nodeId }: LineNode) => inFlight.get(nodeId) ?? 0;
  return chosen.toSorted((one, other) => load(one) - load(other));
}

interface LineRequest {
  body: Uint8Array;
  ms: number;
  signal: AbortSignal;
  isBatch: boolean;
}

interface LineReply {
  status: number;
  text: string;
}

async function ask(
  parts: Pick<Parts, "lines" | "log">,
  { nodeId }: LineNode,
  { body, ms, signal, isBatch }: LineRequest,
): Promise<LineReply> {
  inFlight.set(nodeId, (inFlight.get(nodeId) ?? 0) + 1);
  try {
    const lane = isBatch ? "&lane=batch" : "";
    const address = `https://line/?ms=${Math.ceil(ms)}&bytes=${body.length}${lane}`;
    const init = { method: "POST", body: body as BodyInit, signal };
    const response = await lineOf(parts, nodeId).fetch(new Request(address, init));
    return { status: response.status, text: await response.text() };
  } catch (error) {
    if (signal.aborted) return { status: LINE_STATUS.left, text: "" };
    parts.log.warning("line_failed", { node_id: nodeId, error });
    return { status: LINE_STATUS.noLine, text: "" };
  } finally {
    const others = (inFlight.get(nodeId) ?? 1) - 1;
    if (others > 0) inFlight.set(nodeId, others);
    else inFlight.delete(nodeId);
  }
}

/** An answer, checked: nothing that a node says is believed. */
function answerOf(model: ModelRow, { status, text }: LineReply): LineAnswer {
  const said = parseJson(text);
  if (status === LINE_STATUS.refused) {
    const { code, detail } = LineProblem.safeParse(said).data ?? { code: "", detail: "no reason" };
    throw new Failure(code === "unsupported_media" ? code : "task_failed", detail, {
      data: { node_code: code },
    });
  }
  const answer = LineAnswer.safeParse(said).data;
  const sound = answer?.predictions.every(
    ({ class: name, bbox }) => model.classes.includes(name) && boxProblem(bbox, answer) === null,
  );
  if (answer && sound) return answer;
  throw new Failure("task_failed", "a GPU node gave an answer that is none");
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
