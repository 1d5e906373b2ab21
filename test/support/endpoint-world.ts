// A world with two models, nodes that answer by their lines, and named endpoints that tests make,
// ask and read.

import { sql } from "drizzle-orm";
import { expect } from "vitest";
import type { LineAnswer } from "../../shared/tasks/line.ts";
import { Endpoint, EndpointStatus } from "../../shared/wire/endpoints.ts";
import { type AnsweringNode, type AnsweringOptions, answeringNode } from "./line-end.ts";
import { form, png } from "./media.ts";
import { activeModel, type RegisteredModel, registerModel } from "./registered-model.ts";
import { type Api, apiAs, type Person, register } from "./scripted-node.ts";
import { createWorld, type World, type WorldOptions } from "./world.ts";

/** The largest file that the world takes, bytes. */
export const UPLOAD_BYTES_MAX = 20_000;

/** What nodes answer unless a test says otherwise. */
export const FOUND: LineAnswer = {
  predictions: [
    { class: "disc", confidence: 0.9, bbox: [1, 2, 30, 40] },
    { class: "star", confidence: 0.6, bbox: [40, 2, 60, 40] },
    { class: "disc", confidence: 0.3, bbox: [1, 42, 30, 47] },
  ],
  width: 64,
  height: 48,
  batch: 2,
  cold: false,
};
export const answering = () => ({ body: FOUND });

export const image = () => form({ content: png(64, 48), filename: "a.png" });

/** The status and code of a refusal. */
export const refusal = async (response: Response) => [
  response.status,
  ((await response.json()) as { code?: string }).code,
];

export interface EndpointWorld {
  world: World;
  admin: Person;
  workspaceId: string;
  /** The active model. */
  one: RegisteredModel;
  two: RegisteredModel;
  /** Before each test: two other models, and no nodes. */
  fresh(): Promise<{ one: RegisteredModel; two: RegisteredModel }>;
  /** Revokes all nodes. */
  forgetNodes(): Promise<void>;
  /** After each test. */
  cutNodes(): void;
  /** A node that has both models open. */
  opened(options?: Partial<AnsweringOptions>): Promise<AnsweringNode>;
  /** An endpoint of the first model. */
  make(more?: Record<string, unknown>): Promise<Endpoint>;
  predict(slug: string, query?: string, api?: Api, body?: FormData): Promise<Response>;
  status(slug: string, api?: Api): Promise<EndpointStatus>;
  /** The last hour of an endpoint, once it has so many requests: they count after the answer. */
  counted(slug: string, requests: number): Promise<EndpointStatus["windows"]["1h"]>;
  /** A key of an endpoint. */
  keyFor(slug: string, more?: Record<string, unknown>): Promise<{ api: Api; key_id: string }>;
}

export interface EndpointWorldOptions extends Pick<WorldOptions, "services"> {
  uploadBytesMax?: number;
  /** By when an image is answered: for tests that wait for it. */
  imageSecondsMax?: number;
  /** For how long it predicts by one list of the nodes. */
  nodeListSeconds?: number;
}

export async function createEndpointWorld({
  services = ["vision"],
  uploadBytesMax = UPLOAD_BYTES_MAX,
  imageSecondsMax = 60,
  nodeListSeconds = 0,
}: EndpointWorldOptions = {}): Promise<EndpointWorld> {
  const world = await createWorld({
    services,
    environment: {
      vision: {
        UPLOAD_BYTES_MAX: String(uploadBytesMax),
        IMAGE_SECONDS_MAX: String(imageSecondsMax),
        NODE_LIST_SECONDS: String(nodeListSeconds),
      },
    },
  });
  const admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  const workspaceId = me.workspaces[0]?.workspace_id ?? "";
  const twoModels = async (weightsOf?: RegisteredModel) => {
    const classes = ["disc", "star"];
    const one = await activeModel(world, workspaceId, { classes, weightsOf });
    return { one, two: await registerModel(world, workspaceId, { classes, weightsOf: one }) };
  };
  let nodes: AnsweringNode[] = [];
  let slugs = 0;
  const status: EndpointWorld["status"] = async (slug, api = admin) =>
    EndpointStatus.parse(await api.ok("GET", `/endpoints/${slug}/status`));
  const forgetNodes = async () => {
    nodes = [];
    await world.visionDatabase.execute(sql`UPDATE node SET revoked_at = now()`);
  };
  const made: EndpointWorld = {
    world,
    admin,
    workspaceId,
    ...(await twoModels()),
    fresh: async () => {
      await forgetNodes();
      return Object.assign(made, await twoModels(made.one));
    },
    forgetNodes,
    cutNodes: () => {
      for (const node of nodes) node.cut();
    },
    opened: async (options = {}) => {
      const loaded = [made.one.model_id, made.two.model_id];
      const node = await answeringNode(world, admin, { loaded, answer: answering, ...options });
      nodes.push(node);
      return node;
    },
    make: async (more = {}) => {
      const body = { slug: `gate-${++slugs}`, models: [{ model_id: made.one.model_id }], ...more };
      return Endpoint.parse(await admin.ok("POST", "/endpoints", body));
    },
    predict: (slug, query = "", api = admin, body = image()) =>
      api.send("POST", `/endpoints/${slug}/predict${query}`, body),
    status,
    counted: async (slug, requests) => {
      await expect.poll(async () => (await status(slug)).windows["1h"].requests).toBe(requests);
      return (await status(slug)).windows["1h"];
    },
    keyFor: async (slug, more = {}) => {
      const path = `/endpoints/${slug}/keys`;
      const given = await admin.ok<{ key: string; key_id: string }>("POST", path, {
        name: "k",
        ...more,
      });
      return { api: apiAs(world.urls.vision, given.key), key_id: given.key_id };
    },
  };
  return made;
}
