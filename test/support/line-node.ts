// A GPU node that answers by its direct line alone, with what the test decides.

import { WebSocket } from "ws";
import { API } from "../../edge/vision/base/api.ts";
import {
  decodeAsk,
  decodeFrame,
  encodeFrame,
  type Frame,
  joined,
  LINE_STATUS,
  type LineAnswer,
  type LineHeadOf,
  type LineProblem,
} from "../../shared/line.ts";
import { CAPABILITIES, introduce, type TestNode } from "./nodes.ts";
import { type Api, apiAs } from "./scripted-node.ts";
import type { World } from "./world.ts";

const PING_MS = 5_000;

/** What the node answers: a status of its own, or else `done`. */
export interface LineReply {
  status?: number;
  body: LineAnswer | LineProblem;
}

export interface LineNodeOptions {
  name?: string;
  /** Requests that it takes at once. */
  capacity?: number;
  /** Ids of the models that it has open. */
  loaded?: readonly string[];
  answer: (head: LineHeadOf<"predict">) => LineReply | Promise<LineReply>;
}

export interface LineNode extends TestNode {
  /** What was asked, in the order in which it came. */
  asked: LineHeadOf<"predict">[];
  /** Tells the service what it has open from now on. */
  load(modelIds: readonly string[]): Promise<void>;
  /** Cuts the line. */
  cut(): void;
}

/** Introduces a node with an administrator's code, and opens its line. */
export async function lineNode(
  world: Pick<World, "urls">,
  admin: Api,
  { name = "line", capacity = 64, loaded = [], answer }: LineNodeOptions,
): Promise<LineNode> {
  const url = world.urls.vision;
  const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
  const capabilities = { ...CAPABILITIES, kinds: ["predict"] };
  const { node_id, node_token } = await introduce(url, { code, name, capabilities });
  const headers = { Authorization: `Bearer ${node_token}` };
  const { send } = apiAs(url, node_token);
  const asked: LineHeadOf<"predict">[] = [];
  const socket = new WebSocket(`${url}${API}/node/line`.replace(/^http/, "ws"), {
    headers,
    perMessageDeflate: false,
  });
  const parts = new Map<number, Uint8Array[]>();
  let life = 0;
  const say = (frame: Parameters<typeof encodeFrame>[0]) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(encodeFrame(frame));
  };
  const work = async (id: number, bytes: Uint8Array, own: number) => {
    const { head } = decodeAsk(bytes);
    if (head.kind !== "predict") throw new Error(`the node was asked for ${head.kind}`);
    asked.push(head);
    const { status = LINE_STATUS.done, body } = await answer(head);
    const payload = Buffer.from(JSON.stringify(body));
    say({ kind: "answer", last: true, life: own, id, value: status, payload });
  };
  const hear = (frame: Frame) => {
    if (frame.kind === "hello") {
      life = frame.life;
      say({ kind: "grant", value: capacity });
    }
    if (frame.kind !== "ask") return;
    const { id } = frame;
    const all = [...(parts.get(id) ?? []), frame.payload];
    parts.set(id, all);
    say({ kind: "read", value: frame.payload.length });
    if (!frame.last) return;
    parts.delete(id);
    void work(id, joined(all), life);
  };
  const greeted = new Promise<void>((resolve) => {
    socket.on("message", (data: Buffer) => {
      const frame = decodeFrame(data);
      if (!frame) return;
      hear(frame);
      if (frame.kind === "hello") resolve();
    });
  });
  socket.on("error", () => {});
  const ping = setInterval(
    () => socket.readyState === WebSocket.OPEN && socket.send("ping"),
    PING_MS,
  );
  socket.on("close", () => clearInterval(ping));
  await greeted;
  const node: LineNode = {
    nodeId: node_id,
    headers,
    post: (path, body) => send("POST", path, body),
    asked,
    load: async (modelIds) => {
      await send("POST", "/node/heartbeat", { tasks: [], line: true, loaded: modelIds });
    },
    cut: () => socket.terminate(),
  };
  await node.load(loaded);
  return node;
}
