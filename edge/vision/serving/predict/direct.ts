// Requests by the direct line: an image goes straight to a node that has what it needs open, and
// its answer comes back on the same way. Nothing of it is stored; who loses the node asks another
// one.

import { type ErrorCode, Failure } from "../../../../shared/errors.ts";
import {
  ASK_BYTES_MAX,
  encodeAsk,
  LINE_STATUS,
  type LineAnswer,
  type LineHead,
  type LineHeadOf,
  type LineKind,
  LineProblem,
} from "../../../../shared/tasks/line.ts";
import type { MaskedPrediction } from "../../../../shared/tasks/predict-task.ts";
import { IMAGE_BOUNDS, type MaskForm } from "../../../../shared/tasks/sam.ts";
import type { Parts } from "../../base/parts.ts";
import { tally } from "../../base/tally.ts";
import { type ModelRow, modelSource } from "../../models/registry.ts";
import { lineOf } from "../../tasks/nodes/bell.ts";
import { boxProblem } from "../../tasks/nodes/detections.ts";
import { type LineNode, listLineNodes } from "../../tasks/nodes/nodes.ts";
import { signReferences } from "../../tasks/objects.ts";
import { asksByNode, openAsk } from "./asks.ts";
import { lineAnswerOf } from "./line-answer.ts";
import { masksProblem } from "./masks.ts";
import { subjectOf } from "./model-choice.ts";

/** Nodes that get an image, one after another: one that fell over is no reason to try all. */
const NODES_MAX = 2;
/** Nodes that are asked whether they have room: to be refused takes a millisecond, and no image. */
const ASKED_MAX = 8;
/** How old a list of nodes may be that an early look goes by. */
const EARLY_LIST_MS = 10_000;
/** Entries of each cache of this isolate. */
const CACHED_MAX = 1_000;

/** The nodes that this isolate listed last, by topic: `NODE_LIST_SECONDS` says for how long. */
const nodeLists = new Map<string, { at: number; nodes: LineNode[] }>();

/** An image to predict on. */
export interface DirectRequest {
  /** The file in pieces. */
  image: readonly Uint8Array[];
  confidenceMin: number;
  /** The form of masks; `none` when omitted. */
  mask?: MaskForm;
  /** Aborts when whoever asked has gone. */
  signal: AbortSignal;
  /** Nobody waits for it: it gets no place that others may soon need, no model leaves for it. */
  isBatch?: boolean;
  /** A node that was asked before. */
  tried?: TriedNode | null;
}

/** A node that had an image in its hands, and did not answer. */
export interface TriedNode {
  nodeId: string;
  /** A status of the line. */
  status: number;
  /** Since when it was asked, milliseconds of the clock. */
  since: number;
}

/** What a node found, and which. */
export interface DirectAnswer {
  predictions: MaskedPrediction[];
  /** Masks beyond the bounds. */
  masksLeftOut: number;
  /** The node's name. */
  servedBy: string;
  /** Images that the node looked at together. */
  batch: number;
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
  const answer = await askLine(parts, predictCall(parts, model, request));
  return answer && foundOf(parts, model, answer, request);
}

/**
 * What one node finds on an image that may be for nothing. It is a node that has the model open, as
 * nodes were listed lately, and the image takes no place there that others may soon need. Null
 * where it did not get the image. Fails as `predictDirectly` does where the node answered.
 */
export async function predictEarly(
  parts: Parts,
  model: ModelRow,
  request: Omit<DirectRequest, "isBatch" | "tried">,
): Promise<DirectAnswer | TriedNode | null> {
  const call = predictCall(parts, model, { ...request, isBatch: true });
  const [node] = choose(likelyNodes(parts, call), asksByNode("predict", parts.clock));
  if (!node?.warm) return null;
  const { kind, body } = await encoded(call);
  // Who is there now is asked beside it, and waited for: what is left behind at a request's end may
  // be cut off.
  const listing = nodesOf(parts, call).catch(() => {});
  const since = parts.clock();
  const { warmMs: ms, signal } = call;
  const reply = await ask(parts, node, {
    kind,
    body,
    ms,
    signal,
    isWaitedFor: true,
    lane: "batch",
  });
  await listing;
  if (isAnswer(reply)) return foundOf(parts, model, { said: reply, servedBy: node.name }, request);
  return hadImage(reply.status) ? { nodeId: node.nodeId, status: reply.status, since } : null;
}

function predictCall(parts: Parts, model: ModelRow, request: DirectRequest): LineCall {
  const { confidenceMin: confidence, mask = "none", ...rest } = request;
  const { imageMsMax } = parts.limits;
  return {
    ...rest,
    warmMs: imageMsMax / 2,
    coldMs: imageMsMax,
    head: async () => ({
      kind: "predict",
      model: await signedSource(parts, model),
      confidence,
      may_evict: !rest.isBatch,
      ...(mask !== "none" && { mask }),
    }),
    ...predictingLines(parts, model),
  };
}

function foundOf(
  parts: Parts,
  model: ModelRow,
  { said, servedBy }: LineSaying,
  { mask = "none" }: Pick<DirectRequest, "mask">,
): DirectAnswer {
  const { predictions, batch, cold, ...rest } = answerOf(parts, model, said, mask);
  return { predictions, masksLeftOut: rest.masks_left_out ?? 0, servedBy, batch, cold };
}

/** How long a signed model is handed out again: its address is good for ten minutes. */
const SIGNED_MS = 60_000;

type SignedSource = LineHeadOf<"predict">["model"];

/** Models with the addresses of their files, by who signs and by the model's own words. */
const signedBy = new WeakMap<Parts["s3"], Map<string, { at: number; source: SignedSource }>>();

/** A model as a node opens it. A node that has it open has no use for the address. */
async function signedSource(parts: Parts, model: ModelRow): Promise<SignedSource> {
  const signed = signedBy.get(parts.s3) ?? new Map<string, { at: number; source: SignedSource }>();
  signedBy.set(parts.s3, signed);
  const unsigned = modelSource(model);
  const name = JSON.stringify(unsigned);
  const now = parts.clock();
  const known = signed.get(name);
  if (known && Math.abs(now - known.at) < SIGNED_MS) return known.source;
  const source = (await signReferences(parts, unsigned)) as SignedSource;
  if (signed.size >= CACHED_MAX) signed.clear();
  signed.set(name, { at: now, source });
  return source;
}

const predictingLines = (
  { database }: Pick<Parts, "database">,
  { workspaceId, modelId, imageSize }: ModelRow,
): LineGroup => ({
  topic: subjectOf(`${workspaceId}.${modelId}.${imageSize}`),
  list: () => listLineNodes(database, { workspaceId, modelId, imageSize }),
});

/** Whether a node that has a model open was there lately. */
export const isLineLikely = (parts: Parts, model: ModelRow): boolean =>
  likelyNodes(parts, predictingLines(parts, model)).length > 0;

/** Whether a node that predicts with a model has a line, as far as this isolate knows. */
export const hasLine = async (parts: Parts, model: ModelRow): Promise<boolean> =>
  (await nodesOf(parts, predictingLines(parts, model))).length > 0;

/** The nodes that may be asked for something. */
interface LineGroup {
  /** What they have in common. */
  topic: string;
  list(): Promise<LineNode[]>;
}

/** A request to one of some nodes, and by when it is answered. */
export interface LineCall extends LineGroup {
  /** What a node is asked. */
  head(): Promise<LineHead>;
  /** The file in pieces. */
  image: readonly Uint8Array[];
  /** By when a node answers that has what is needed open, and one that opens it first. */
  warmMs: number;
  coldMs: number;
  /** Aborts when whoever asked has gone. */
  signal: AbortSignal;
  /** As of a `DirectRequest`. */
  isBatch?: boolean;
  tried?: TriedNode | null;
}

/** What a node said, unchecked, and which. */
export interface LineSaying {
  said: LineReply;
  /** The node's name. */
  servedBy: string;
}

/**
 * Asks a node, and another one where that has no answer; one that has no room for the image did not
 * get it, and counts for nothing. Null where no node has a line, or the request is too large for
 * one, and the queue has to do it. Fails with `overloaded` and `no_node`.
 */
export async function askLine(parts: Parts, call: LineCall): Promise<LineSaying | null> {
  const { signal, isBatch = false, tried = null } = call;
  const nodes = (await nodesOf(parts, call)).filter(({ nodeId }) => nodeId !== tried?.nodeId);
  if (nodes.length === 0 && !tried) return null;
  const { kind, body } = await encoded(call);
  if (body.length > ASK_BYTES_MAX) return null;
  const began = tried?.since ?? parts.clock();
  const statuses = tried ? [tried.status] : [];
  const askedMax = isBatch ? NODES_MAX : ASKED_MAX;
  for (const node of choose(nodes, asksByNode(kind, parts.clock)).slice(0, askedMax)) {
    const ms = began + (node.warm ? call.warmMs : call.coldMs) - parts.clock();
    if (ms <= 0 || statuses.some(isLast) || statuses.filter(hadImage).length === NODES_MAX) break;
    const lane = isBatch ? "batch" : "usual";
    const said = await ask(parts, node, { kind, body, ms, signal, isWaitedFor: !isBatch, lane });
    if (isAnswer(said)) return { said, servedBy: node.name };
    statuses.push(said.status);
  }
  if (statuses.every((status) => status === LINE_STATUS.noLine)) return null;
  throw unanswered(statuses);
}

async function encoded(call: LineCall) {
  const head = await call.head();
  return { kind: head.kind, body: encodeAsk(head, call.image) };
}

const isAnswer = ({ status }: LineReply): boolean =>
  status === LINE_STATUS.done || status === LINE_STATUS.refused;

/** Whether nobody is asked any more after a node that answered so. */
const isLast = (status: number): boolean =>
  status === LINE_STATUS.late || status === LINE_STATUS.left;

/** Whether a node that answered so had the image. */
const hadImage = (status: number): boolean =>
  status !== LINE_STATUS.full && status !== LINE_STATUS.noLine;

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
  // Whoever waited until the time was over is told so, whatever other nodes said before.
  const late = statuses.includes(LINE_STATUS.late);
  if (!late && statuses.includes(LINE_STATUS.full)) {
    return new Failure("overloaded", "the GPU nodes have as much as they take", {
      data: { retry_after_seconds: 1 },
    });
  }
  const detail = `no GPU node answered${late ? " in time" : ""}; try again`;
  return new Failure("no_node", detail, { cause: late ? new LateAnswer() : undefined });
}

/** A node had the image in its hands, and its answer did not come in time. */
class LateAnswer extends Error {
  override readonly name = "LateAnswer";
}

/** Codes of tasks that no model has done anything to. */
const UNASKED = [
  "lease_lost",
  "node_crashed",
  "node_stalled",
  "node_disk_full",
  "store_unavailable",
];

/**
 * Whether a prediction failed at the model: a node was really asked, and refused or kept silent.
 * Full or absent nodes, a store that is away and tasks that were taken back say nothing of it.
 */
export function isModelFailure(thrown: unknown): boolean {
  if (!(thrown instanceof Failure)) return false;
  if (thrown.cause instanceof LateAnswer) return true;
  const { task_id, node_code } = thrown.data;
  // A task that ended without a node's word was taken back.
  const isTakenBack = task_id !== undefined && node_code === undefined;
  return thrown.code === "task_failed" && !isTakenBack && !UNASKED.includes(String(node_code));
}

/** The nodes that may be asked. */
async function nodesOf(parts: Parts, { topic, list }: LineGroup): Promise<LineNode[]> {
  const known = nodeLists.get(topic);
  const now = parts.clock();
  if (known && now - known.at < parts.limits.nodeListMs) return known.nodes;
  const nodes = await list();
  if (nodeLists.size >= CACHED_MAX) nodeLists.clear();
  // An empty list is not kept: a node that connects is asked at once.
  if (nodes.length > 0) nodeLists.set(topic, { at: now, nodes });
  else nodeLists.delete(topic);
  return nodes;
}

/** Nodes as they were listed lately, without asking; none where none had what is needed open. */
function likelyNodes({ clock }: Pick<Parts, "clock">, { topic }: LineGroup): LineNode[] {
  const known = nodeLists.get(topic);
  const isLikely =
    known && clock() - known.at < EARLY_LIST_MS && known.nodes.some(({ warm }) => warm);
  return isLikely ? known.nodes : [];
}

/**
 * All nodes in the order in which they are asked. Of those that have what is needed open two random
 * ones come first, the one with less to do before the other (the power of two choices), then the
 * rest by what they have to do. Those that have to open it follow.
 */
function choose(nodes: readonly LineNode[], asks: ReadonlyMap<string, number>): LineNode[] {
  const warm = nodes.filter((node) => node.warm);
  const cold = nodes.filter((node) => !node.warm);
  return [...inOrder(warm, asks), ...inOrder(cold, asks)];
}

function inOrder(nodes: readonly LineNode[], asks: ReadonlyMap<string, number>): LineNode[] {
  const left = [...nodes];
  const two: LineNode[] = [];
  while (two.length < 2 && left.length > 0) {
    two.push(...left.splice(Math.floor(Math.random() * left.length), 1));
  }
  const load = ({ nodeId }: LineNode) => asks.get(nodeId) ?? 0;
  const byLoad = (one: LineNode, other: LineNode) => load(one) - load(other);
  return [...two.toSorted(byLoad), ...left.toSorted(byLoad)];
}

/** The status of an answer, and its body as it came. */
export interface LineReply {
  status: number;
  text: string;
}

interface LineRequest {
  kind: LineKind;
  body: Uint8Array<ArrayBuffer>;
  ms: number;
  signal: AbortSignal;
  isWaitedFor: boolean;
  /** In `batch` it takes no place that others may soon need. */
  lane: "usual" | "batch";
}

/** What a node says to a request, which is counted. */
async function ask(
  parts: Pick<Parts, "lines" | "log" | "clock">,
  { nodeId }: LineNode,
  request: LineRequest,
): Promise<LineReply> {
  const asked = parts.clock();
  const reply = await send(parts, nodeId, request);
  const took = parts.clock() - asked;
  // A node that gives a place back as the time is over was no less silent.
  const isOver = reply.status === LINE_STATUS.nodeGone && took >= request.ms;
  const status = isOver ? LINE_STATUS.late : reply.status;
  countAsk(status, took);
  if (!isAnswer({ ...reply, status }))
    parts.log.info("line_unanswered", { node_id: nodeId, status });
  return { ...reply, status };
}

async function send(
  parts: Pick<Parts, "lines" | "log" | "clock">,
  nodeId: string,
  { kind, body, ms, signal, isWaitedFor, lane }: LineRequest,
): Promise<LineReply> {
  const close = openAsk({ nodeId, kind, ms, signal, isWaitedFor }, parts.clock);
  try {
    const address = `https://line/?kind=${kind}&ms=${Math.ceil(ms)}&bytes=${body.length}&lane=${lane}`;
    const init = { method: "POST", body, signal };
    const response = await lineOf(parts, nodeId).fetch(new Request(address, init));
    return { status: response.status, text: await response.text() };
  } catch (error) {
    if (signal.aborted) return { status: LINE_STATUS.left, text: "" };
    parts.log.warning("line_failed", { node_id: nodeId, error });
    return { status: LINE_STATUS.noLine, text: "" };
  } finally {
    close();
  }
}

/** An answer, checked: nothing that a node says is believed. */
function answerOf({ log }: Parts, model: ModelRow, reply: LineReply, form: MaskForm): LineAnswer {
  const answer = lineAnswerOf(bodyOf(reply, ["unsupported_media"]));
  const classes = new Set(model.classes);
  const sound = answer?.predictions.every(
    ({ class: name, bbox }) => classes.has(name) && boxProblem(bbox, answer) === null,
  );
  if (!answer || !sound) throw noAnswer();
  const numbersMax = IMAGE_BOUNDS.maskNumbers;
  const problem = masksProblem(answer.predictions, { form, size: answer, numbersMax });
  if (problem === null) return answer;
  log.warning("line_answer_refused", { problem });
  throw new Failure("task_failed", `a GPU node gave an answer that is none: ${problem}`);
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
