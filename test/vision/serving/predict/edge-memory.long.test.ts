// What the edge keeps of what passed through it. Goal: hundreds of images, broken ones among them,
// leave no more memory taken than the first ones do; and the size that is looked at is configured.

import { cpSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import sharp from "sharp";
import { expect, inject, it, onTestFinished } from "vitest";
import { parseConfig } from "../../../../edge/vision/config.ts";
import type { Failure } from "../../../../shared/errors.ts";
import { ServeStatus } from "../../../../shared/wire/serving.ts";
import { form } from "../../../support/media.ts";
import { workerdBytes } from "../../../support/memory.ts";
import { registerModel } from "../../../support/registered-model.ts";
import { register } from "../../../support/scripted-node.ts";
import { createWorld } from "../../../support/world.ts";

const IMAGES = 240;
/**
 * Half of what the second half of the images would leave, if their pixels alone stayed. What
 * is used no more is collected late where memory is there: 137 MB were seen to come and go.
 */
const GROWTH_MAX = 450 * 1024 * 1024;

const photo = (width: number, height: number) =>
  sharp({
    create: {
      width,
      height,
      channels: 3,
      background: "#777",
      noise: { type: "gaussian", mean: 128, sigma: 50 },
    },
  }).blur(3);

it("keeps its memory over 240 images, broken ones among them", async () => {
  const world = await createWorld({
    services: ["infer", "vision"],
    environment: { vision: { EDGE_IMAGE_SIZE: "96" } },
  });
  const admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  const model = await registerModel(world, me.workspaces[0]?.workspace_id ?? "");
  await world.visionDatabase.execute(
    sql`UPDATE model SET active = true WHERE id = ${model.model_id}::uuid`,
  );
  const { edge } = ServeStatus.parse(await admin.ok("GET", "/serve/status"));
  expect(edge).toEqual({ able: true, image_size: 96, reason: null });

  const image = photo(1_600, 1_200);
  const files = [
    await image.clone().jpeg().toBuffer(),
    await image.clone().jpeg({ progressive: true }).toBuffer(),
    await image.clone().resize(800).png().toBuffer(),
    await image.clone().webp().toBuffer(),
  ];
  const [, , png = Buffer.alloc(0)] = files;
  const broken = Buffer.from(png);
  broken.fill(0x55, broken.length >> 1, (broken.length >> 1) + 2_000);
  const kinds = [...files, broken].map((file) => new Uint8Array(file));
  const send = async (index: number) => {
    const content = kinds[index % kinds.length] as Uint8Array<ArrayBuffer>;
    const response = await admin.send("POST", "/predict/image", form({ content }));
    expect([index, response.status]).toEqual([index, index % kinds.length === 4 ? 415 : 200]);
    await response.arrayBuffer();
  };
  // What is used no more is collected now and then: where nothing leaks, as much is left each time.
  const lowest = async (from: number, to: number) => {
    let bytes = Number.POSITIVE_INFINITY;
    for (let index = from; index < to; index++) {
      await send(index);
      bytes = Math.min(bytes, workerdBytes());
    }
    return bytes;
  };
  const before = await lowest(0, IMAGES / 2);
  const after = await lowest(IMAGES / 2, IMAGES);
  expect(after - before).toBeLessThan(GROWTH_MAX);
  // The runtime's own memory, as it tells with each image, has its end early.
  const told = world.logs.flatMap((line) => {
    const [, bytes] = /"runtime_bytes":(\d+)/.exec(line) ?? [];
    return bytes === undefined ? [] : [Number(bytes)];
  });
  expect(told.length).toBeGreaterThan(IMAGES / 2);
  expect(told.at(-1)).toBe(told[20]);
});

it("says for good that it cannot start, where its runtime is another", async () => {
  const folder = mkdtempSync(join(tmpdir(), "vantage-infer-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const bundles = inject("services").map((built) => {
    if (built.service !== "infer") return built;
    cpSync(built.folder, folder, { recursive: true });
    const [runtime = "", other = ""] = ["ort", "webp"].map((start) =>
      readdirSync(folder).find((file) => file.startsWith(start) && file.endsWith(".wasm")),
    );
    cpSync(join(folder, other), join(folder, runtime));
    return { ...built, folder };
  });
  const world = await createWorld({ services: ["infer", "vision"], bundles });
  const admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  const model = await registerModel(world, me.workspaces[0]?.workspace_id ?? "");
  const content = new Uint8Array(await photo(64, 64).png().toBuffer());
  for (let again = 0; again < 3; again++) {
    const path = `/predict/image?model_id=${model.model_id}`;
    const response = await admin.send("POST", path, form({ content }));
    expect([response.status, await response.json()]).toMatchObject([
      503,
      { code: "no_node", detail: "inference at the edge could not be started" },
    ]);
  }
});

it.each(["100", "672", "-32", "320.5", "wide"])("refuses a size of %s at the door", (size) => {
  try {
    parseConfig({ EDGE_IMAGE_SIZE: size });
    expect.unreachable();
  } catch (thrown) {
    expect((thrown as Failure).data.keys).toContain("EDGE_IMAGE_SIZE");
  }
});
