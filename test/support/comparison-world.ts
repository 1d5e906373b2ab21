// A vision world with two models, a video and a node that compares as the test says.

import { sql } from "drizzle-orm";
import { expect } from "vitest";
import { Comparison, ComparisonResult } from "../../edge/vision/experiments/comparisons/records.ts";
import type { ClaimedTask } from "../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskPayload } from "../../shared/tasks/tasks.ts";
import { comparedBy } from "./model-comparisons.ts";
import { type RegisteredModel, registerModel } from "./registered-model.ts";
import {
  colleague,
  newProject,
  type Person,
  probeAs,
  register,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "./scripted-node.ts";
import { tensorFile } from "./weights.ts";
import { createWorld, type World } from "./world.ts";

export const CLASSES = ["person", "car"];
export const NOBODYS = "00000000-0000-4000-8000-000000000000";
export const RUN = "/comparisons/run";
/** The registry does not look into weights: a node would. */
const NO_WEIGHTS = tensorFile(new Map());

/** What a comparison's task carries. */
export const payloadOf = (task: ClaimedTask): TaskPayload<"comparison"> =>
  TASK_KINDS.comparison.payload.parse(task.payload);

export interface ComparisonWorld {
  world: World;
  engineer: Person;
  annotator: Person;
  viewer: Person;
  /** Its script compares; see `comparedBy`. */
  node: ScriptedNode;
  workspaceId: string;
  projectId: string;
  /** Of ten frames, `crossing.mp4`. */
  videoId: string;
  a: RegisteredModel;
  b: RegisteredModel;
  /** A configuration of the two models. */
  configurationOf(more?: object): Record<string, unknown>;
  /** A stored comparison of them. */
  made(more?: object): Promise<Comparison>;
  resultOf(id: string, query?: string): Promise<{ status: number; result: ComparisonResult }>;
  /** Begins a run without waiting for it. */
  begun(body: object): Promise<ComparisonResult>;
  /** Answers while the node works. */
  working<Reply>(ask: () => Promise<Reply>): Promise<Reply>;
  claimed(): Promise<ClaimedTask>;
  finished(task: ClaimedTask, result: object): Promise<Record<string, unknown>>;
  /** Keys of a folder of the workspace. */
  keysIn(folder: string): Promise<string[]>;
}

export async function createComparisonWorld(): Promise<ComparisonWorld> {
  const environment = { vision: { UPLOAD_BYTES_MAX: "40000" } };
  const world = await createWorld({ services: ["vision"], environment });
  const admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  const workspaceId = me.workspaces[0]?.workspace_id ?? "";
  const engineer = await colleague(world, admin, "engineer");
  const annotator = await colleague(world, admin, "annotator");
  const viewer = await colleague(world, admin, "viewer");
  const given = { classes: CLASSES, file: NO_WEIGHTS };
  const a = await registerModel(world, workspaceId, { ...given, name: "a" });
  const b = await registerModel(world, workspaceId, { ...given, name: "b", image_size: 160 });
  const configurationOf = (more: object = {}) => ({
    model_a: { model_id: a.model_id },
    model_b: { model_id: b.model_id, confidence: 0.4 },
    ...more,
  });
  const configuration = configurationOf();
  const refused = await annotator.refused("POST", RUN, { configuration, video_id: NOBODYS });
  expect(refused).toEqual([503, "no_node"]);
  const projectId = (await newProject(engineer)).project_id;
  const node = await scriptedNode(world, admin);
  const videoId = (await uploadVideo(engineer, projectId, "crossing.mp4")).video_id;
  node.script = { probe: probeAs({ frames: 10 }) };
  await node.work();
  node.script = { comparison: comparedBy };
  return {
    world,
    engineer,
    annotator,
    viewer,
    node,
    workspaceId,
    projectId,
    videoId,
    a,
    b,
    configurationOf,
    made: async (more = {}) => {
      const body = { name: "old and new", ...configurationOf(), ...more };
      return Comparison.parse(await engineer.ok("POST", "/comparisons", body));
    },
    resultOf: async (id, query = "") => {
      const response = await viewer.send("GET", `/comparisons/result/${id}${query}`);
      return { status: response.status, result: ComparisonResult.parse(await response.json()) };
    },
    begun: async (body) => {
      const response = await annotator.send("POST", `${RUN}?wait_seconds=0`, body);
      const reply = await response.json();
      expect([response.status, reply]).toEqual([202, reply]);
      const result = ComparisonResult.parse(reply);
      const address = `/api/v1/comparisons/result/${result.session_id}`;
      expect(response.headers.get("Location")).toBe(address);
      return result;
    },
    working: async (ask) => {
      const stop = node.start();
      try {
        return await ask();
      } finally {
        await stop();
      }
    },
    claimed: async () => {
      await world.visionDatabase.execute(
        sql`UPDATE task SET available_at = now() - interval '1 second'`,
      );
      const task = await node.claim(["comparison"]);
      expect(task).not.toBeNull();
      return task as ClaimedTask;
    },
    finished: async (task, result) => {
      const outcome = { outcome: "finished" as const, result: result as Record<string, unknown> };
      return (await (await node.finish(task, outcome)).json()) as Record<string, unknown>;
    },
    keysIn: async (folder) => {
      const { objects } = await world.media.list({ prefix: `ws/${workspaceId}/${folder}/` });
      return objects.map(({ key }) => key);
    },
  };
}
