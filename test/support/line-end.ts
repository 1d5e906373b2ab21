// A node's end of a direct line, whose frames the test reads and whose answers it gives; and a node
// that answers by its line alone, with what the test decides.

import { expect } from "vitest";
import { WebSocket } from "ws";
import {
  decodeAsk,
  decodeFrame,
  encodeFrame,
  type Frame,
  joined,
  LINE_KINDS,
  LINE_STATUS,
  type LineAnswer,
  type LineHeadOf,
  type LineKind,
  type LineProblem,
  lineKindOf,
} from "../../shared/tasks/line.ts";
import type { Capabilities } from "../../shared/tasks/node-protocol.ts";
import { until } from "./node-service.ts";
import { CAPABILITIES, introduce, openModels, type TestNode } from "./nodes.ts";
import { type Api, apiAs } from "./scripted-node.ts";
import type { World } from "./world.ts";

export interface LineEnd {
  node: TestNode;
  socket: WebSocket;
  /** Every frame that came. */
  frames: Frame[];
  life(): number;
  send(frame: Parameters<typeof encodeFrame>[0]): void;
  /** Resolves with the id of the so-manyth whole request. */
  request(count: number): Promise<number>;
  /** The bytes of a request. */
  bytesOf(id: number): Uint8Array;
  answer(id: number, body: object, status?: number): void;
}

export interface LineEndOptions {
  kind?: LineKind;
  capacity?: number;
  /** What is open on the node. */
  loaded?: readonly string[];
  /** The sizes that its models are open for; those of generated models when omitted. */
  sizes?: number[] | undefined;
  /** Hears every frame as it comes. */
  hear?: (end: LineEnd, frame: Frame) => void;
}

/** Opens the line of a node, grants it a capacity, and tells of it by a heartbeat. */
export async function openLineEnd(
  world: Pick<World, "urls">,
  node: TestNode,
  { kind = "predict", capacity = 8, loaded = [], sizes, hear }: LineEndOptions = {},
): Promise<LineEnd> {
  const address = `${world.urls.vision}/api/v1/node/line`.replace(/^http/, "ws");
  const socket = new WebSocket(address, { headers: node.headers, perMessageDeflate: false });
  const frames: Frame[] = [];
  socket.on("message", (data: Buffer) => {
    const frame = decodeFrame(data);
    if (!frame) return;
    frames.push(frame);
    hear?.(end, frame);
  });
  socket.on("error", () => {});
  // As a node does: one that is not heard of for long is taken for gone.
  const ping = setInterval(
    () => socket.readyState === WebSocket.OPEN && socket.send("ping"),
    5_000,
  );
  socket.on("close", () => clearInterval(ping));
  const asks = () => frames.filter((frame) => lineKindOf(frame.kind, "ask") !== null);
  const end: LineEnd = {
    node,
    socket,
    frames,
    life: () => frames.findLast((frame) => frame.kind === "hello")?.life ?? 0,
    send: (frame) => socket.send(encodeFrame(frame)),
    request: async (count) => {
      const whole = () => asks().filter(({ last }) => last);
      await expect.poll(() => whole().length).toBeGreaterThanOrEqual(count);
      return (whole()[count - 1] as Frame).id;
    },
    bytesOf: (wanted) => {
      const own = asks().filter(({ id, life }) => id === wanted && life === end.life());
      return joined(own.map(({ payload }) => payload));
    },
    answer: (id, body, status = LINE_STATUS.done) => {
      const payload = Buffer.from(JSON.stringify(body));
      end.send({ kind: "answer", last: true, life: end.life(), id, value: status, payload });
    },
  };
  // Not `expect.poll`, which is for tests: worlds open lines before theirs begin.
  await until("the line says hello", () => frames.some(({ kind: said }) => said === "hello"));
  end.send({ kind: LINE_KINDS[kind].grant, value: capacity });
  await node.post("/node/heartbeat", {
    tasks: [],
    line: true,
    ...openModels(loaded, sizes),
  });
  return end;
}

/** What an answering node says: a status of its own, or else `done`. */
export interface AnsweringReply {
  status?: number;
  body: LineAnswer | LineProblem;
}

export interface AnsweringOptions extends Pick<LineEndOptions, "capacity" | "loaded"> {
  name?: string;
  answer: (head: LineHeadOf<"predict">) => AnsweringReply | Promise<AnsweringReply>;
}

export interface AnsweringNode extends TestNode {
  /** What was asked, in the order in which it came. */
  asked: LineHeadOf<"predict">[];
  /** Tells the service what it has open from now on. */
  load(modelIds: readonly string[]): Promise<void>;
  /** Cuts the line. */
  cut(): void;
}

/** Introduces a node with an administrator's code, and opens its line. */
export async function answeringNode(
  world: Pick<World, "urls">,
  admin: Api,
  { name = "line", capacity = 64, loaded = [], answer }: AnsweringOptions,
): Promise<AnsweringNode> {
  const capabilities = { ...CAPABILITIES, kinds: ["predict"] };
  const node = await lineNode(world, admin, { name, capabilities });
  const asked: AnsweringNode["asked"] = [];
  const work = async (end: LineEnd, { id, life }: Frame) => {
    const { head } = decodeAsk(end.bytesOf(id));
    if (head.kind !== "predict") throw new Error(`the node was asked for ${head.kind}`);
    asked.push(head);
    const { status: value = LINE_STATUS.done, body } = await answer(head);
    const payload = Buffer.from(JSON.stringify(body));
    end.send({ kind: "answer", last: true, life, id, value, payload });
  };
  const hear = (end: LineEnd, frame: Frame) => {
    if (frame.kind === "hello") end.send({ kind: "grant", value: capacity });
    if (frame.kind !== "ask") return;
    end.send({ kind: "read", value: frame.payload.length });
    if (frame.last) void work(end, frame);
  };
  const { socket } = await openLineEnd(world, node, { capacity, loaded, hear });
  return {
    ...node,
    asked,
    load: async (modelIds) => {
      await node.post("/node/heartbeat", { tasks: [], line: true, ...openModels(modelIds) });
    },
    cut: () => socket.terminate(),
  };
}

/** A node that only the line knows: it claims no task. */
export async function lineNode(
  world: Pick<World, "urls">,
  admin: Api,
  { name = "n", capabilities }: { name?: string | undefined; capabilities: Capabilities },
): Promise<TestNode> {
  const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
  const url = world.urls.vision;
  const { node_id, node_token } = await introduce(url, { code, name, capabilities });
  const { send } = apiAs(url, node_token);
  const headers = { Authorization: `Bearer ${node_token}` };
  return { nodeId: node_id, headers, post: (path, body) => send("POST", path, body) };
}
