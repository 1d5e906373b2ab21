// Weights that people bring along: told by their first bytes, streamed, counted, never opened.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { weightsFormat } from "../../../edge/vision/models/weights.ts";
import { WeightsFile } from "../../../shared/wire/training.ts";
import { colleague } from "../../support/scripted-node.ts";
import {
  createTrainingWorld,
  firstWeightsUrl,
  type TrainingWorld,
} from "../../support/training-world.ts";

/** What a run of det26n needs room for, so that one may begin here. */
const RUN_BYTES = 2_572_280 * 4;

let w: TrainingWorld;
beforeAll(async () => {
  const limits = { UPLOAD_BYTES_MAX: "20000", WORKSPACE_BYTES_MAX: String(RUN_BYTES + 50_000) };
  w = await createTrainingWorld(limits);
});

const header = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}';
function safetensors(bytes = 100) {
  const file = new Uint8Array(bytes);
  new DataView(file.buffer).setBigUint64(0, BigInt(header.length), true);
  file.set(new TextEncoder().encode(header), 8);
  return file;
}
const ONNX = Uint8Array.from([0x08, 8, 0x12, 7, ...new TextEncoder().encode("pytorch"), 0x3a, 0]);

/** A form of a file and fields, in the order in which they are named. */
function form(parts: Record<string, string | Uint8Array<ArrayBuffer>>): FormData {
  const made = new FormData();
  for (const [name, value] of Object.entries(parts)) {
    if (typeof value === "string") made.append(name, value);
    else made.append(name, new Blob([value]), "coco.safetensors");
  }
  return made;
}
const send = (parts: Parameters<typeof form>[0]) =>
  w.admin.send("POST", "/train/weights", form(parts));
const refused = async (parts: Parameters<typeof form>[0]) => {
  const response = await send(parts);
  return [response.status, ((await response.json()) as { code: string }).code];
};
const objects = async () =>
  (await w.world.media.list()).objects.filter(({ key }) => key.includes("/weights/")).length;

describe("weights", () => {
  it("are taken, listed, started from and deleted", async () => {
    const sent = await send({ name: "Mine", file: safetensors(), dataset: "Cells of 2025" });
    expect(sent.status).toBe(201);
    const weights = WeightsFile.parse(await sent.json());
    expect(weights).toMatchObject({
      name: "Mine",
      dataset: "Cells of 2025",
      format: "safetensors",
      bytes: 100,
    });
    const path = `/train/weights/${weights.weights_id}`;
    expect(await w.admin.ok("GET", path)).toEqual(weights);
    expect(await w.admin.ok("GET", "/train/weights")).toEqual([weights]);
    const { options } = await w.admin.ok<{ options: { pretrained: object } }>(
      ...(["GET", "/train/variants"] as const),
    );
    expect(options.pretrained).toMatchObject({ weights: [weights] });
    const pretrained = { weights_id: weights.weights_id };
    const runId = await w.train({ pretrained });
    const task = await w.claimed();
    expect(task.train.pretrained).toMatchObject({ format: "safetensors" });
    const read = await fetch(firstWeightsUrl(task));
    expect(new Uint8Array(await read.arrayBuffer())).toEqual(safetensors());
    expect(await w.admin.refused("DELETE", path)).toEqual([409, "state_conflict"]);
    await w.admin.ok("POST", `/train/${runId}/stop`);
    await w.finish(task, { outcome: "cancelled", result: null });
    expect((await w.admin.send("DELETE", path)).status).toBe(204);
    expect(await w.admin.refused("GET", path)).toEqual([404, "not_found"]);
    expect(await objects()).toBe(0);
  });

  it("are called as their file when nobody names them, and may be ONNX", async () => {
    const sent = await send({ file: ONNX });
    const weights = WeightsFile.parse(await sent.json());
    expect(weights).toMatchObject({ name: "coco.safetensors", format: "onnx", dataset: "" });
    await w.admin.send("DELETE", `/train/weights/${weights.weights_id}`);
  });

  it("leave nothing behind when they are refused", async () => {
    expect(await refused({ file: new TextEncoder().encode("PK\u0003\u0004 a pickle") })).toEqual([
      ...[415, "unsupported_media"],
    ]);
    expect(await refused({ file: safetensors(20_001) })).toEqual([413, "file_too_large"]);
    const late = await refused({ file: safetensors(), name: "n".repeat(201) });
    expect(late).toEqual([422, "invalid_request"]);
    expect(await refused({ name: "nothing" })).toEqual([422, "invalid_request"]);
    const two = form({ file: safetensors() });
    two.append("file", new Blob([safetensors()]), "b");
    const both = await w.admin.send("POST", "/train/weights", two);
    expect(both.status).toBe(422);
    const torn = await w.admin.send("POST", "/train/weights", new Uint8Array(3), {
      "Content-Type": "multipart/form-data; boundary=x",
    });
    expect(torn.status).toBe(400);
    expect(await objects()).toBe(0);
  });

  it("count for the workspace's storage", async () => {
    const large = crypto.randomUUID();
    const { visionDatabase } = w.world;
    await visionDatabase.execute(sql`
      INSERT INTO weights_file (id, workspace_id, name, format, storage_key, bytes)
      SELECT ${large}::uuid, workspace_id, 'large', 'onnx', 'none', ${RUN_BYTES}::bigint
        FROM project WHERE id = ${w.projectId}::uuid`);
    const files = [];
    for (let size = 0; size < 40_000; size += 20_000) {
      files.push(WeightsFile.parse(await (await send({ file: safetensors(20_000) })).json()));
    }
    expect(await refused({ file: safetensors(20_000) })).toEqual([413, "quota_exceeded"]);
    expect(await objects()).toBe(2);
    for (const { weights_id } of files) await w.admin.ok("DELETE", `/train/weights/${weights_id}`);
    await visionDatabase.execute(sql`DELETE FROM weights_file WHERE id = ${large}::uuid`);
  });

  it("are brought along by engineers of the workspace alone", async () => {
    const annotator = await colleague(w.world, w.admin, "annotator");
    const body = () => form({ file: safetensors() });
    expect(await annotator.refused("POST", "/train/weights", body())).toEqual([403, "forbidden"]);
    const elsewhere = `/train/weights?workspace_id=${crypto.randomUUID()}`;
    expect(await w.admin.refused("POST", elsewhere, body())).toEqual([404, "not_found"]);
  });
});

describe("a format", () => {
  const bytes = (...values: number[]) => Uint8Array.from([...values, ...new Array(40).fill(0)]);
  it.each([
    ["safetensors", safetensors()],
    ["onnx", ONNX],
    ["onnx", bytes(0x08, 0x0a, 0x42, 2, 0x10, 0x11)],
  ])("is %s", (format, head) => {
    expect(weightsFormat(head)).toBe(format);
  });

  it.each([
    ["nothing", new Uint8Array(0)],
    ["a pickle", bytes(0x80, 0x02)],
    ["a zip", bytes(0x50, 0x4b, 3, 4)],
    ["a header without end", bytes(...new Array(8).fill(0xff), 0x7b)],
    ["a protobuf of another kind", bytes(0x08, 8, 0xff)],
    ["a format of a version that is none", bytes(0x08, 0x7f, 0x12)],
  ])("is none of %s", (_, head) => {
    expect(() => weightsFormat(head)).toThrow("no safetensors or ONNX");
  });
});
