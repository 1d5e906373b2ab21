// GPU nodes of a vision world, for tests: registered over HTTP as real ones are.

import type { z } from "zod";
import type { Guest } from "../../edge/vision/auth/guests.ts";
import { API } from "../../edge/vision/base/api.ts";
import { Secret } from "../../shared/secret.ts";
import {
  type Capabilities,
  NODE_PROTOCOL,
  RegisteredNode,
} from "../../shared/tasks/node-protocol.ts";
import type { TaskKind } from "../../shared/tasks/tasks.ts";
import { systemClock } from "../../shared/time.ts";
import { ask, type Person } from "./vision.ts";
import { GENERATED_SIDE } from "./weights.ts";
import { VISION_TOKEN_SECRET } from "./world.ts";

export const CAPABILITIES: Capabilities = {
  version: "0.1.0",
  protocol: NODE_PROTOCOL,
  kinds: ["probe", "label", "preview", "segment", "frames", "export"],
  device: { kind: "cpu", name: "test", count: 1 },
  memory_bytes: 1,
  models_bytes_max: 1,
  cores: 1,
  ffmpeg: null,
  segmenters: [],
  weights: [],
  slots: 1,
  missing: [],
};

/** What a heartbeat says of open models, which are open for the size of generated ones. */
export const openModels = (modelIds: readonly string[], sides = [GENERATED_SIDE]) => ({
  loaded: modelIds,
  loaded_sizes: Object.fromEntries(modelIds.map((id) => [id, sides])),
});

/** Signs and checks what a test world's service does. */
export const tokenParts = { tokenSecret: new Secret(VISION_TOKEN_SECRET), clock: systemClock };

/**
 * Somebody to give a ticket to who is nobody, and so is sent away at the first review of the topic,
 * half a minute later.
 */
export const newGuest = (): Guest => ({
  accountId: crypto.randomUUID(),
  session: crypto.randomUUID(),
  workspaceId: crypto.randomUUID(),
});

export interface TestNode {
  nodeId: string;
  headers: Record<string, string>;
  /** Calls a node route with a JSON body. */
  post(path: string, body: unknown): Promise<Response>;
}

/** Trades a code for a node's identity. */
export async function introduce(
  url: string,
  body: { code: string; name: string; capabilities: Capabilities },
): Promise<z.infer<typeof RegisteredNode>> {
  const registered = await ask(url, "POST", "/node/register", { body });
  return RegisteredNode.parse(registered.body);
}

/** Registers a node with a code that an admin asked for. */
export async function registerTestNode(
  url: string,
  admin: Person,
  { name = "a node", kinds }: { name?: string; kinds?: TaskKind[] } = {},
): Promise<TestNode> {
  const { body: made } = await admin.ask("POST", "/admin/nodes/codes");
  const capabilities = { ...CAPABILITIES, ...(kinds ? { kinds } : {}) };
  const code = String(made.code);
  const { node_id, node_token } = await introduce(url, { code, name, capabilities });
  const headers = {
    Authorization: `Bearer ${node_token}`,
    "Content-Type": "application/json",
  };
  return {
    nodeId: node_id,
    headers,
    post: (path, body) =>
      fetch(url + API + path, { method: "POST", headers, body: JSON.stringify(body) }),
  };
}
