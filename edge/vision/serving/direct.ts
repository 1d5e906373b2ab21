// Requests by the direct line: an image goes straight to a node that has what it needs open, and
// its answer comes back on the same way. Nothing of it is stored; who loses the node asks another
// one.

import { type ErrorCode, Failure } from "../../../shared/errors.ts";
import {
  ASK_BYTES_MAX,
  encodeAsk,
  LINE_STATUS,
  LineAnswer,
  type LineHead,
  type LineHeadOf,
  type LineKind,
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
const DEADLINES = { warmMs: 30_000, coldMs: 60_000 };
/** Nodes that are asked, one after another: one that fell over is no reason to try all. */
const NODES_MAX = 2;
/** How long an isolate believes which nodes are there. */
const BELIEVED_MS = 1_000;
const BELIEVED_MAX = 1_000;

/** What this isolate heard of the nodes that may be asked, by what is asked of them. */
const believed = new Map<string, { at: number; nodes: LineNode[] }>();
/** Requests of this isolate that are at each node, by kind and node. */
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
  const { workspaceId, modelId } = model;
  const head = async () => {
    const signed = await signReferences(parts, modelSource(model));
    const source = signed as LineHeadOf<"predict">["model"];
    const { confidenceMin: confidence, isBatch = false } = request;
    return { kind: "predict" as const, model: source, confidence, may_evict: !isBatch };
  };
  const answer = await askLine(parts, {
    ...request,
    ...DEADLINES,
    head,
    topic: subjectOf(`${workspaceId}.${modelId}`),
    list: () => listLineNodes(parts.database, { workspaceId, modelId }),
  });
  if (!answer) return null;
  const { predictions, batch = null, cold = false } = answerOf(model, answer.said);
  return { predictions, servedBy: answer.servedBy, batch, cold };
}

/** A request to one of some nodes, and by when it is answered. */
export interface LineCall {
  /** What the nodes have in common that may be asked. */
  topic: string;
  list(): Promise<LineNode[]>;
  head(): Promise<LineHead>;
  /** The file in pieces. */
  image: readonly Uint8Array[];
  /** By when a node answers that has what is needed open, and one that opens it first. */
  warmMs: number;
  coldMs: number;
  /** Aborts when whoever asked has gone. */
  signal: AbortSignal;
  /** Nobody waits for it: it gets no place that others may soon need. */
  isBatch?: boolean;
}

/** What a node said, unchecked, and which. */
export interface LineSaying {
  said: LineReply;
  /** The node's name. */
  servedBy: string;
}

/**
 * Asks a node, and another one where that has no answer. Null where no node has a line, or the
 * request is too large for one, and the queue has to do it. Fails with `overloaded` and `no_node`.
 */
export async function askLine(parts: Parts, call: LineCall): Promise<LineSaying | null> {
  const nodes = await nodesOf(parts, call);
  if (nodes.length === 0) return null;
  const head = await call.head();
  const body = encodeAsk(head, call.image);
  if (body.length > ASK_BYTES_MAX) return null;
  const began = parts.clock();
  const statuses: number[] = [];
  for (const node of choose(nodes, head.kind)) {
    const left = began + (node.warm ? call.warmMs : call.coldMs) - parts.clock();
    if (left <= 0) break;
    const { signal, isBatch = false } = call;
    const asked = parts.clock();
    const answer = await ask(parts, node, { kind: head.kind, body, ms: left, signal, isBatch });
    countAsk(answer.status, parts.clock() - asked);
    if (answer.status === LINE_STATUS.done || answer.status === LINE_STATUS.refused) {
      return { said: answer, servedBy: node.name };
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

/** The nodes that may be asked. */
async function nodesOf(parts: Parts, { topic, list }: LineCall): Promise<LineNode[]> {
  const known = believed.get(topic);
  const now = parts.clock();
  if (known && now - known.at < BELIEVED_MS) return known.nodes;
  const nodes = await list();
  if (believed.size >= BELIEVED_MAX) believed.clear();
  believed.set(topic, { at: now, nodes });
  return nodes;
}

/**
 * Two random nodes that have what is needed open, the one with less to do first (the power of two
 * choices). Where fewer have it, others follow: whom the first one has no room for opens it there.
 */
function choose(nodes: readonly LineNode[], kind: LineKind): LineNode[] {
  const warm = some(
    nodes.filter((node) => node.warm),
    kind,
  );
  const cold = some(
    nodes.filter((node) => !node.warm),
    kind,
  );
  return [...warm, ...cold].slice(0, NODES_MAX);
}

/** As many random nodes as are asked, the one with less to do first. */
function some(nodes: readonly LineNode[], kind: LineKind): LineNode[] {
  const left = [...nodes];
  const chosen: LineNode[] = [];
  while (chosen.length < NODES_MAX && left.length > 0) {
    chosen.push(...left.splice(Math.floor(Math.random() * left.length), 1));
  }
  const load = ({ nodeId }: LineNode) => inFlight.get(`${kind} ${nodeId}`) ?? 0;
  return chosen.toSorted((one, other) => load(one) - load(other));
}

/** The status of an answer, and its body as it came. */
export interface LineReply {
  status: number;
  text: string;
}

interface LineRequest {
  kind: LineKind;
  body: Uint8Array;
  ms: number;
  signal: AbortSignal;
  isBatch: boolean;
}

async function ask(
  parts: Pick<Parts, "lines" | "log">,
  { nodeId }: LineNode,
  { kind, body, ms, signal, isBatch }: LineRequest,
): Promise<LineReply> {
  const key = `${kind} ${nodeId}`;
  inFlight.set(key, (inFlight.get(key) ?? 0) + 1);
  try {
    const lane = isBatch ? "&lane=batch" : "";
    const address = `https://line/?kind=${kind}&ms=${Math.ceil(ms)}&bytes=${body.length}${lane}`;
    const init = { method: "POST", body: body as BodyInit, signal };
    const response = await lineOf(parts, nodeId).fetch(new Request(address, init));
    return { status: response.status, text: await response.text() };
  } catch (error) {
    if (signal.aborted) return { status: LINE_STATUS.left, text: "" };
    parts.log.warning("line_failed", { node_id: nodeId, error });
    return { status: LINE_STATUS.noLine, text: "" };
  } finally {
    const others = (inFlight.get(key) ?? 1) - 1;
    if (others > 0) inFlight.set(key, others);
    else inFlight.delete(key);
  }
}

/** An answer, checked: nothing that a node says is believed. */
function answerOf(model: ModelRow, reply: LineReply): LineAnswer {
  const answer = LineAnswer.safeParse(bodyOf(reply, ["unsupported_media"])).data;
  const sound = answer?.predictions.every(
    ({ class: name, bbox }) => model.classes.includes(name) && boxProblem(bbox, answer) === null,
  );
  if (answer && sound) return answer;
  throw noAnswer();
}

/** What is told of an answer that does not hold. */
export const noAnswer = () => new Failure("task_failed", "a GPU node gave an answer that is none");

/**
 * The body of an answer, as JSON. Fails in the node's words where it refused: with its code where
 * that is about the request, else with `task_failed`.
 */
export function bodyOf({ status, text }: LineReply, codes: readonly ErrorCode[]): unknown {
  const said = parseJson(text);
  if (status !== LINE_STATUS.refused) return said;
  const { code, detail } = LineProblem.safeParse(said).data ?? { code: "", detail: "no reason" };
  const own = codes.find((one) => one === code) ?? "task_failed";
  throw new Failure(own, detail, { data: { node_code: code } });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
