// A node's end of a direct line, whose frames the test reads and whose answers it gives.

import { expect } from "vitest";
import { WebSocket } from "ws";
import {
  decodeFrame,
  encodeFrame,
  type Frame,
  joined,
  LINE_KINDS,
  LINE_STATUS,
  type LineKind,
  lineKindOf,
} from "../../shared/line.ts";
import type { Capabilities } from "../../shared/node-protocol.ts";
import { introduce, type TestNode } from "./nodes.ts";
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
}

/** Opens the line of a node, grants it a capacity, and tells of it by a heartbeat. */
export async function openLineEnd(
  world: Pick<World, "urls">,
  node: TestNode,
  { kind = "predict", capacity = 8, loaded = [] }: LineEndOptions = {},
): Promise<LineEnd> {
  const address = `${world.urls.vision}/api/v1/node/line`.replace(/^http/, "ws");
  const socket = new WebSocket(address, { headers: node.headers, perMessageDeflate: false });
  const frames: Frame[] = [];
  socket.on("message", (data: Buffer) => {
    const frame = decodeFrame(data);
    if (frame) frames.push(frame);
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
      await expect.poll(() => whole().length, { timeout: 5_000 }).toBeGreaterThanOrEqual(count);
      return (whole()[count - 1] as Frame).id;
    },
    bytesOf: (wanted) => {
      const own = asks().filter(({ id }) => id === wanted);
      return joined(own.map(({ payload }) => payload));
    },
    answer: (id, body, status = LINE_STATUS.done) => {
      const payload = Buffer.from(JSON.stringify(body));
      end.send({ kind: "answer", last: true, life: end.life(), id, value: status, payload });
    },
  };
  await expect.poll(() => frames.some((frame) => frame.kind === "hello")).toBe(true);
  end.send({ kind: LINE_KINDS[kind].grant, value: capacity });
  await node.post("/node/heartbeat", { tasks: [], line: true, loaded });
  return end;
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
