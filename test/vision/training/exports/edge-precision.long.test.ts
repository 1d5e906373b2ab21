// The int8 file of a model at the edge, in the real Workers. Goal: an active model has it made,
// whatever else happens; once it is offered the edge looks with it and says so; without it, or
// where it is gone, the edge looks in single precision.

import { sql } from "drizzle-orm";
import sharp from "sharp";
import { beforeAll, expect, it } from "vitest";
import { sampleImages } from "../../../../gpu-node/export/sample-images.ts";
import { iou } from "../../../../shared/detector/tracks.ts";
import { Prediction } from "../../../../shared/tasks/tasks.ts";
import type { ModelExport } from "../../../../shared/wire/exports.ts";
import { type EdgeFile, int8FileOf, offerEdgeFile } from "../../../support/edge-file.ts";
import { form } from "../../../support/media.ts";
import { giveDataset } from "../../../support/model-dataset.ts";
import { CAPABILITIES } from "../../../support/nodes.ts";
import { type RegisteredModel, registerModel } from "../../../support/registered-model.ts";
import { newProject, type Person, register, scriptedNode } from "../../../support/scripted-node.ts";
import { alterTables } from "../../../support/transactions.ts";
import { createWorld, type World } from "../../../support/world.ts";

const SIDE = 96;

let world: World;
let admin: Person;
let workspaceId: string;
let content: Uint8Array<ArrayBuffer>;

beforeAll(async () => {
  world = await createWorld({
    services: ["infer", "vision"],
    environment: { vision: { EDGE_IMAGE_SIZE: String(SIDE) } },
  });
  admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
  const [image] = sampleImages(1);
  const { data, width, height } = image ?? expect.fail();
  const raw = { width, height, channels: 3 } as const;
  content = new Uint8Array(await sharp(Buffer.from(data), { raw }).png().toBuffer());
});

/** What is found with a model, and in which precision. */
async function found(model: RegisteredModel) {
  const path = `/predict/image?confidence=0.3&model_id=${model.model_id}`;
  const response = await admin.send("POST", path, form({ content }));
  const body: unknown = await response.json();
  expect([response.status, response.headers.get("X-Served-By"), body]).toEqual([200, "edge", body]);
  const objects = Prediction.array().parse(body);
  return { precision: response.headers.get("X-Model-Precision"), objects };
}

const int8Of = (model: RegisteredModel) => int8FileOf(world.media, model, SIDE);

/** Offers a file as the edge's of a model. */
const offer = (
  model: RegisteredModel,
  file: Buffer<ArrayBuffer>,
  more: Pick<EdgeFile, "verification"> = {},
) =>
  offerEdgeFile(
    { database: world.visionDatabase, media: world.media },
    { workspaceId, model, file, side: SIDE, ...more },
  );

it("looks with the int8 file once it is offered, and finds the same objects", async () => {
  const model = await registerModel(world, workspaceId, { classes: ["disc", "plate"] });
  const single = await found(model);
  expect(single.precision).toBe("fp32");
  expect(single.objects.length).toBeGreaterThan(3);
  await offer(model, await int8Of(model));
  const integers = await found(model);
  expect(integers.precision).toBe("int8");
  expect(integers.objects).not.toEqual(single.objects);
  // Random weights: near-ties fall either way, so that most have to be there, not all.
  const alike = single.objects.filter((one) =>
    integers.objects.some((other) => other.class === one.class && iou(one.bbox, other.bbox) > 0.7),
  );
  expect(alike.length / single.objects.length).toBeGreaterThan(0.8);
});

it("looks in single precision where nobody measured what the file loses", async () => {
  for (const [seed, verification] of [[4, { accuracy: null }] as const, [5, null] as const]) {
    const model = await registerModel(world, workspaceId, { classes: ["disc", "plate"], seed });
    await offer(model, await int8Of(model), { verification });
    expect((await found(model)).precision).toBe("fp32");
  }
});

it("looks in single precision where the file is gone, or is not what it was", async () => {
  const gone = await registerModel(world, workspaceId, { classes: ["disc", "plate"], seed: 2 });
  await world.media.delete(await offer(gone, Buffer.from("a file")));
  expect((await found(gone)).precision).toBe("fp32");
  const other = await registerModel(world, workspaceId, { classes: ["disc", "plate"], seed: 3 });
  await world.media.put(await offer(other, Buffer.from("a file")), "a lile");
  expect((await found(other)).precision).toBe("fp32");
});

it("looks in single precision where the runtime cannot open the file, and logs it", async () => {
  const model = await registerModel(world, workspaceId, { classes: ["disc", "plate"], seed: 6 });
  const { length } = world.logs;
  const whole = await int8Of(model);
  // Whole by its size and hash, and no model all the same.
  await offer(model, whole.subarray(0, whole.length - 1_000));
  expect((await found(model)).precision).toBe("fp32");
  // It is open by now: nobody tries the file again.
  expect((await found(model)).precision).toBe("fp32");
  const said = world.logs.slice(length).filter((line) => line.includes("edge_file_not_opened"));
  expect(said).toHaveLength(1);
});

it("has the files made each minute of models that the edge may be asked for", async () => {
  const { project_id: projectId } = await newProject(admin);
  const trainedAs = async (more: object) => {
    const model = await registerModel(world, workspaceId, { variant: "det26n", ...more });
    await giveDataset(world, { workspaceId, projectId, modelId: model.model_id });
    return model.model_id;
  };
  const names = ["active", "by alias", "by id", "of no share", "without classes", "unnamed"];
  const [active, aliased, named, idle, empty, unnamed] = await Promise.all(
    names.map((name) => trainedAs({ name })),
  );
  const small = await trainedAs({ name: "small", image_size: 64 });
  // Moved by what warms no model: a rollback to one that is open does not.
  const { visionDatabase: database } = world;
  await database.execute(sql`UPDATE model SET classes = '{}' WHERE id = ${empty}::uuid`);
  await database.execute(sql`UPDATE model SET active = false`);
  await database.execute(sql`UPDATE model SET active = true WHERE id = ${active}::uuid`);
  await admin.ok("POST", `/models/${aliased}/promote`, { alias: "production" });
  const targets = [
    { alias: "production", weight: 1 },
    { model_id: named, weight: 1 },
    { model_id: small, weight: 1 },
    { model_id: empty, weight: 1 },
    { model_id: idle, weight: 0 },
  ];
  await database.execute(sql`
    INSERT INTO endpoint (id, workspace_id, slug, settings) VALUES (gen_random_uuid(),
      ${workspaceId}::uuid, 'gate', ${JSON.stringify({ models: targets })}::jsonb)`);
  const files = async (id: string | undefined) => {
    const made = await admin.ok<ModelExport[]>("GET", `/models/${id}/exports`);
    return made.map(({ precision, image_size: size, status }) => [precision, size[0], status]);
  };
  await world.tick(Date.now());
  for (const id of [active, aliased, named]) {
    expect(await files(id)).toEqual([["int8", SIDE, "queued"]]);
  }
  // No larger than what the model was trained at.
  expect(await files(small)).toEqual([["int8", 64, "queued"]]);
  for (const id of [idle, empty, unnamed]) expect(await files(id)).toEqual([]);
  // What is there already is not asked for again, nor what failed.
  await database.execute(sql`
    UPDATE model_export SET state = 'failed', failure = 'no', ended_at = now()
     WHERE model_id = ${named}::uuid`);
  await world.tick(Date.now());
  expect(await files(named)).toEqual([["int8", SIDE, "failed"]]);
  expect(await files(active)).toHaveLength(1);
});

it("has the file made of a model that becomes active, and says so with its exports", async () => {
  const node = await scriptedNode(
    world,
    admin,
    { warm: () => ({ seconds: 0.1 }) },
    { ...CAPABILITIES, kinds: ["warm", "device_export"] },
  );
  const { project_id: projectId } = await newProject(admin);
  const exportsOf = (model: RegisteredModel) =>
    admin.ok<ModelExport[]>("GET", `/models/${model.model_id}/exports`);
  const made = async (model: RegisteredModel) => {
    const stop = node.start();
    try {
      await admin.ok("POST", `/models/${model.model_id}/activate`, {});
    } finally {
      await stop();
    }
    return exportsOf(model);
  };
  const trained = await registerModel(world, workspaceId);
  await giveDataset(world, { workspaceId, projectId, modelId: trained.model_id });
  expect(await made(trained)).toMatchObject([
    { format: "onnx", precision: "int8", output: "end_to_end", image_size: [SIDE, SIDE], batch: 1 },
  ]);
  // One that was brought along has nothing to be calibrated on: it is active all the same.
  expect(await made(await registerModel(world, workspaceId))).toEqual([]);
  expect(world.logs.join("\n")).toMatch(/edge_file_not_made/);
  // A fault after the move is none of the move's; the minute asks for the file then.
  const late = await registerModel(world, workspaceId, { seed: 6 });
  await giveDataset(world, { workspaceId, projectId, modelId: late.model_id });
  await alterTables(
    world.visionDatabase,
    "ALTER TABLE model_export ADD CONSTRAINT faulty CHECK (false) NOT VALID",
  );
  expect(await made(late)).toEqual([]);
  await alterTables(world.visionDatabase, "ALTER TABLE model_export DROP CONSTRAINT faulty");
  await world.tick(Date.now());
  expect(await exportsOf(late)).toMatchObject([{ precision: "int8", image_size: [SIDE, SIDE] }]);
  expect(await admin.ok("GET", "/models?alias=active")).toMatchObject([
    { model_id: late.model_id },
  ]);
});
