// Labeling with a model of the registry in a segmenter's place. Goal: a job, a class more and a
// preview look for the model's classes and for nothing else, and say which model it was.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { AnnotationPage, Job } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import {
  activeModel,
  type RegisteredModel,
  registerModel,
} from "../../../support/registered-model.ts";
import {
  labelAs,
  newProject,
  type Person,
  probeAs,
  register,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

const FRAMES = 3;
const NO_WEIGHTS = Buffer.alloc(8);

let world: World;
let admin: Person;
let node: ScriptedNode;
let own: RegisteredModel;
let other: RegisteredModel;
let workspaceId: string;
let videoId: string;
let body: { project_id: string; video_ids: string[] };
/** Tasks that the node was given. */
const given: TaskPayload<"label">[] = [];

const boxOf = (class_name: string) => ({
  class_name,
  bbox: [10, 10, 60, 60] as [number, number, number, number],
  confidence: 0.9,
  polygon: null,
  duplicate_of: null,
});
const labeled = labelAs((_, prompts) => prompts.slice(0, 1).map((one) => boxOf(one.class_name)));

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, {
    probe: probeAs({ frames: FRAMES }),
    label: (task: ClaimedTask) => {
      given.push(TASK_KINDS.label.payload.parse(task.payload));
      return labeled(task);
    },
  });
  const project = await newProject(admin);
  videoId = (await uploadVideo(admin, project.project_id)).video_id;
  await node.work();
  const [row] = (
    await world.visionDatabase.execute<{ id: string }>(
      sql`SELECT workspace_id AS id FROM video WHERE id = ${videoId}::uuid`,
    )
  ).rows;
  workspaceId = row?.id ?? "";
  const file = NO_WEIGHTS;
  own = await activeModel(world, workspaceId, { file, classes: ["car", "truck", "van"] });
  other = await registerModel(world, workspaceId, { file, classes: ["bus"] });
  body = { project_id: project.project_id, video_ids: [videoId] };
});

interface JobStart {
  job_id: string;
}
async function run(more: Record<string, unknown>): Promise<string> {
  given.length = 0;
  const { job_id: id } = await admin.ok<JobStart>("POST", "/label", { ...body, ...more });
  await node.work();
  return id;
}
const job = async (id: string) => Job.parse(await admin.ok("GET", `/jobs/${id}`));

it("looks for all classes of the model when no prompt is given, and says which model it was", async () => {
  const id = await run({ model: own.model_id });
  expect(await job(id)).toMatchObject({
    status: "completed",
    prompts: ["car", "truck", "van"],
    model_id: own.model_id,
  });
  expect(given.map(({ model, segmenter }) => [model?.model_id, segmenter])).toEqual([
    [own.model_id, null],
  ]);
  const path = `/jobs/${id}/annotations`;
  const { items } = AnnotationPage.parse(await admin.ok("GET", path));
  expect(items.map((one) => [one.class, one.source])).toEqual(
    Array.from({ length: FRAMES }, () => ["car", "model"]),
  );
});

it("takes the name of a model, and looks only for the classes that prompts name", async () => {
  const id = await run({ model: "active", prompts: ["truck", "truck"] });
  expect(await job(id)).toMatchObject({ prompts: ["truck"], model_id: own.model_id });
  expect(given[0]?.prompts).toEqual([{ kind: "text", class_name: "truck", text: "truck" }]);
});

it("looks for a class more with the job's model, or with the one that is given", async () => {
  const id = await run({ model: own.model_id, prompts: ["car"] });
  const add = (asked: Record<string, unknown>) => admin.ok("POST", `/jobs/${id}/add-class`, asked);
  await add({ class: "lorry", prompt: "truck" });
  await node.work();
  await add({ class: "bus", model: other.model_id });
  await node.work();
  await add({ class: "van" });
  await node.work();
  expect(given.map(({ model, prompts }) => [model?.model_id, prompts[0]?.class_name])).toEqual([
    [own.model_id, "car"],
    [own.model_id, "lorry"],
    [other.model_id, "bus"],
    [own.model_id, "van"],
  ]);
  expect(given[1]?.prompts).toEqual([{ kind: "text", class_name: "lorry", text: "truck" }]);
  expect((await job(id)).model_id).toBe(own.model_id);
});

it("refuses to go on with a job whose model was deleted, and leaves it as it is", async () => {
  const gone = await registerModel(world, workspaceId, { file: NO_WEIGHTS, classes: ["cat"] });
  const { job_id: id } = await admin.ok<JobStart>("POST", "/label", {
    ...body,
    model: gone.model_id,
  });
  await admin.ok("POST", `/jobs/${id}/stop`);
  await admin.ok("DELETE", `/models/${gone.model_id}`);
  expect(await admin.refused("POST", `/jobs/${id}/resume`)).toEqual([404, "not_found"]);
  expect((await job(id)).status).toBe("stopped");
});

it("refuses what the model has no class for, a segmenter beside it, and no prompts without it", async () => {
  const refused = async (path: string, asked: Record<string, unknown>) => {
    const response = await admin.send("POST", path, asked);
    const { code, detail } = (await response.json()) as { code: string; detail: string };
    return [response.status, code, detail];
  };
  const label = (more: Record<string, unknown>) => refused("/label", { ...body, ...more });
  expect(await label({ model: own.model_id, prompts: ["cars"] })).toEqual([
    422,
    "prompt_unknown",
    expect.stringContaining('has no class "cars"; nearest are car'),
  ]);
  expect(await label({ model: own.model_id, segmenter: "scripted" })).toEqual([
    422,
    "invalid_request",
    "model: not with a segmenter",
  ]);
  expect(await label({})).toEqual([422, "invalid_request", "prompts: required without a model"]);
  expect((await label({ model: crypto.randomUUID() }))[0]).toBe(404);
  expect((await label({ model: "canary" }))[1]).toBe("state_conflict");
  const frame_ids = [frameId(videoId, 0)];
  const preview = { frame_ids, model: own.model_id };
  expect((await refused("/label/preview", { ...preview, prompts: ["bus"] }))[1]).toBe(
    "prompt_unknown",
  );
  const crop = NO_WEIGHTS.toString("base64");
  expect((await refused("/label/preview", { ...preview, exemplars: [{ crop }] }))[2]).toMatch(
    /^exemplars: not with a model/,
  );
});
