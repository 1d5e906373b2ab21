// The direct line between the vision service and a GPU node: one WebSocket, on which requests
// that somebody waits for go to the node and come back, in binary frames below the platform's limit
// of a message. All numbers are big-endian:
//
//   0  u8   kind
//   1  u8   1: the last frame of its request or answer
//   2  u16  index of the frame in its request or answer
//   4  u32  life: the service's object may lose its memory while the socket stays; what belongs
//           to a former life fits nothing
//   8  u32  number of the request in that life
//  12  u32  ask: milliseconds left (clocks differ, so no time of day); answer: status; grant:
//           requests that the node takes at once; read: bytes that it has read since it said so
//  16       payload

import { z } from "zod";
import { MaskedPrediction, MaskWish } from "./predict-task.ts";
import { SamRequest } from "./sam.ts";
import { ModelSource } from "./tasks.ts";
import { WorkflowAsk } from "./workflow-task.ts";

const HEADER_BYTES = 16;
/** The largest payload of a frame: with its header it is a message of 1 MiB. */
export const PAYLOAD_BYTES_MAX = 1024 * 1024 - HEADER_BYTES;
/** The largest request and the largest answer. */
export const ASK_BYTES_MAX = 9 * 1024 * 1024;
export const ANSWER_BYTES_MAX = 4 * 1024 * 1024;
/** The node pings so often; a node that was not heard of for the longer time is gone. */
export const LINE_PING_MS = 10_000;
export const LINE_SILENCE_MS = 25_000;

/** `ask` and its like, `cancel` and `hello` go to the node; the others come from it. */
export const FRAME_KINDS = {
  ask: 1,
  cancel: 2,
  hello: 3,
  grant: 4,
  answer: 5,
  read: 6,
  /** The node does not work on a request any more, and has no answer. */
  released: 7,
  sam_ask: 8,
  sam_grant: 9,
  workflow_ask: 10,
  workflow_grant: 11,
} as const;
export type FrameKind = keyof typeof FRAME_KINDS;
const KIND_OF = new Map<number, FrameKind>(
  Object.entries(FRAME_KINDS).map(([kind, number]) => [number, kind as FrameKind]),
);

/**
 * What is asked on the line, by the kind of task that would do the same, and its frames. A node
 * grants each kind places of its own: an image takes a detector milliseconds and a segmenter
 * seconds, and one must not be refused because the other is busy. Frames of unknown kinds are
 * passed over.
 */
export const LINE_KINDS = {
  predict: { ask: "ask", grant: "grant" },
  sam: { ask: "sam_ask", grant: "sam_grant" },
  workflow: { ask: "workflow_ask", grant: "workflow_grant" },
} as const satisfies Record<string, { ask: FrameKind; grant: FrameKind }>;
export type LineKind = keyof typeof LINE_KINDS;
export const LINE_KIND_NAMES = Object.keys(LINE_KINDS) as LineKind[];

/** The kind whose requests, or places, frames of a kind are of; null for all other frames. */
export const lineKindOf = (frame: FrameKind, role: "ask" | "grant"): LineKind | null =>
  LINE_KIND_NAMES.find((kind) => LINE_KINDS[kind][role] === frame) ?? null;

/** One message of the line. */
export interface Frame {
  kind: FrameKind;
  last: boolean;
  index: number;
  life: number;
  id: number;
  value: number;
  payload: Uint8Array;
}

const NOTHING = new Uint8Array(0);

/** A frame as bytes; what is left out is 0. */
export function encodeFrame(frame: Partial<Frame> & Pick<Frame, "kind">): Uint8Array<ArrayBuffer> {
  const { kind, last = false, index = 0, life = 0, id = 0, value = 0, payload = NOTHING } = frame;
  const bytes = new Uint8Array(HEADER_BYTES + payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, FRAME_KINDS[kind]);
  view.setUint8(1, last ? 1 : 0);
  view.setUint16(2, index);
  view.setUint32(4, life);
  view.setUint32(8, id);
  view.setUint32(12, value);
  bytes.set(payload, HEADER_BYTES);
  return bytes;
}

/** The frame of a message; null for one that is none, or of a kind that is not known. */
export function decodeFrame(data: ArrayBuffer | Uint8Array): Frame | null {
  const bytes = data instanceof Uint8Array ? data : new Uint8Array(data);
  if (bytes.length < HEADER_BYTES) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES);
  const kind = KIND_OF.get(view.getUint8(0));
  if (!kind) return null;
  return {
    kind,
    last: view.getUint8(1) === 1,
    index: view.getUint16(2),
    life: view.getUint32(4),
    id: view.getUint32(8),
    value: view.getUint32(12),
    payload: bytes.subarray(HEADER_BYTES),
  };
}

/** Pieces of bytes in one. */
export function joined(parts: readonly Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0] as Uint8Array;
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** What is wanted of an image; a workflow's images are one after another. */
export const LineHead = z.discriminatedUnion("kind", [
  z.object({
    kind: z.literal("predict"),
    model: ModelSource,
    /** The lowest confidence of a detection that is told. */
    confidence: z.number().min(0).max(1),
    mask: MaskWish,
    /** Whether a model may leave the node for this one. */
    may_evict: z.boolean(),
  }),
  SamRequest.extend({ kind: z.literal("sam") }),
  WorkflowAsk.extend({ kind: z.literal("workflow") }),
]);
export type LineHead = z.infer<typeof LineHead>;
export type LineHeadOf<Kind extends LineKind> = Extract<LineHead, { kind: Kind }>;

/** A request: the length of its head as JSON, in four bytes, the head, and the image's file. */
export function encodeAsk(head: LineHead, image: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(JSON.stringify(head));
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, text.length);
  // Several pieces are copied into a buffer of their own.
  return joined([length, text, ...image]) as Uint8Array<ArrayBuffer>;
}

/** The parts of a request; throws for bytes that are none. */
export function decodeAsk(bytes: Uint8Array): { head: LineHead; image: Uint8Array } {
  const length = new DataView(bytes.buffer, bytes.byteOffset, bytes.length).getUint32(0);
  const text = new TextDecoder().decode(bytes.subarray(4, 4 + length));
  return { head: LineHead.parse(JSON.parse(text)), image: bytes.subarray(4 + length) };
}

/** An answer of status 200 to `predict`; `sam` has a `SamResult`, `workflow` a `WorkflowAnswer`. */
export const LineAnswer = z.object({
  predictions: z.array(MaskedPrediction),
  /** Size of the image as people see it, turned as its EXIF says. */
  width: z.number().int().min(1),
  height: z.number().int().min(1),
  /** Images that the node looked at together. */
  batch: z.number().int().min(1).max(1_024),
  /** Whether the node had to open the model first. */
  cold: z.boolean(),
  /** Masks of objects that are told, beyond the bounds; only where masks were asked for. */
  masks_left_out: z.number().int().min(0).max(1_000_000).optional(),
});
export type LineAnswer = z.infer<typeof LineAnswer>;

/** An answer of any other status: why there is none, in a code and in words for people. */
export const LineProblem = z.object({ code: z.string(), detail: z.string() });
export type LineProblem = z.infer<typeof LineProblem>;

/**
 * Statuses of answers. From the node: `done`, `refused` (another node would say the same), `failed`
 * (another may do it). From the service's object: the others.
 */
export const LINE_STATUS = {
  done: 200,
  refused: 422,
  failed: 500,
  /** The node has as much as it takes. */
  full: 429,
  /** There is no open line to the node. */
  noLine: 503,
  /** The line ended with the request in the node's hands. */
  nodeGone: 502,
  /** The time is over. */
  late: 504,
  /** Whoever asked has gone. */
  left: 499,
} as const;
