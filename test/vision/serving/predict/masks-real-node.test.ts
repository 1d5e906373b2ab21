// A real node draws the masks of a segmentation model with generated weights for the real service.
// Goal: they lie inside their boxes, both forms are the same mask, the queue says what the line
// says, a clip's frames have them, and whoever asks for none gets the answer of before.

import { readFileSync } from "node:fs";
import { beforeAll, expect, it } from "vitest";
import { MaskedPrediction } from "../../../../shared/tasks/predict-task.ts";
import type { ServeStatus, VideoPrediction } from "../../../../shared/wire/serving.ts";
import { rectangles, toolsOrSay } from "../../../support/clips.ts";
import { startNode } from "../../../support/gpu-node.ts";
import { form } from "../../../support/media.ts";
import { noiseImage } from "../../../support/noise.ts";
import { type RegisteredModel, registerModel } from "../../../support/registered-model.ts";
import { type Person, register } from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

const found = toolsOrSay();
const [WIDTH, HEIGHT] = [200, 120];
/** Larger files are stored, and claimed from the queue. */
const LINE_BYTES_MAX = 8 * 1024 * 1024;

let world: World;
let admin: Person;
let model: RegisteredModel;
let image: Uint8Array<ArrayBuffer>;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  const workspaceId = me.workspaces[0]?.workspace_id ?? "";
  model = await registerModel(world, workspaceId, { task: "segmentation", image_size: 96 });
  image = new Uint8Array(await noiseImage(WIDTH, HEIGHT).png().toBuffer());
});

const predicted = async (query: string, content = image) => {
  const path = `/predict/image?confidence=0.3&model_id=${model.model_id}${query}`;
  const response = await admin.send("POST", path, form({ content }));
  const text = await response.text();
  expect([response.status, text.slice(0, 1)]).toEqual([200, "["]);
  return { text, objects: MaskedPrediction.array().parse(JSON.parse(text)), response };
};

/** The box around the pixels of run lengths, and how many they are. */
function extent({ size: [height], counts }: { size: readonly number[]; counts: number[] }) {
  const box = [Infinity, Infinity, -Infinity, -Infinity] as [number, number, number, number];
  let [start, area] = [0, 0];
  for (const [index, count] of counts.entries()) {
    for (let at = start; index % 2 === 1 && at < start + count; at++) {
      const [x, y] = [Math.floor(at / (height as number)), at % (height as number)];
      box[0] = Math.min(box[0], x);
      box[1] = Math.min(box[1], y);
      box[2] = Math.max(box[2], x + 1);
      box[3] = Math.max(box[3], y + 1);
    }
    if (index % 2 === 1) area += count;
    start += count;
  }
  return { box, area };
}

/** Twice the area of a ring; its bridges of no width add nothing. */
function ringArea(ring: readonly number[]): number {
  let twice = 0;
  for (let at = 0; at < ring.length; at += 2) {
    const [x1 = 0, y1 = 0] = ring.slice(at, at + 2);
    const [x2 = 0, y2 = 0] = [ring[(at + 2) % ring.length], ring[(at + 3) % ring.length]];
    twice += x1 * y2 - x2 * y1;
  }
  return Math.abs(twice) / 2;
}

it.skipIf(!found)("draws masks of images and clips, by the line and by the queue", async () => {
  const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
  startNode({ VANTAGE_URL: world.urls.vision, VANTAGE_NODE_CODE: code });
  await expect
    .poll(async () => (await admin.ok<ServeStatus>("GET", "/serve/status")).nodes.able)
    .toBe(1);

  const boxes = await predicted("");
  expect(boxes.response.headers.has("X-Masks-Left-Out")).toBe(false);
  expect((await predicted("&mask=none")).text).toBe(boxes.text);
  const runs = await predicted("&mask=rle");
  expect(runs.response.headers.get("X-Served-By")).toMatch(/^node\/./);
  expect(runs.response.headers.get("X-Masks-Left-Out")).toBe("0");
  expect(JSON.stringify(runs.objects.map(({ mask: _, ...box }) => box))).toBe(boxes.text);
  const rings = await predicted("&mask=polygon");
  let drawn = 0;
  for (const [at, { bbox, mask }] of runs.objects.entries()) {
    const ring = rings.objects[at]?.mask;
    if (!mask) {
      expect(ring).toBeNull();
      continue;
    }
    if (!("rle" in mask && ring && "polygon" in ring)) throw new Error("a mask of another form");
    expect(mask.rle.size).toEqual([HEIGHT, WIDTH]);
    expect(mask.rle.counts.reduce((sum, count) => sum + count, 0)).toBe(WIDTH * HEIGHT);
    const { box, area } = extent(mask.rle);
    // The middles of all its pixels are inside.
    const [left, top, right, bottom] = bbox;
    const [x1, y1, x2, y2] = box;
    const isInside = x1 + 0.5 >= left && y1 + 0.5 >= top && x2 - 0.5 < right && y2 - 0.5 < bottom;
    expect([bbox, box, isInside]).toEqual([bbox, box, true]);
    expect(ringArea(ring.polygon)).toBe(area);
    drawn += 1;
  }
  expect(drawn).toBeGreaterThan(5);

  // Bytes after a PNG's end are nobody's.
  const large = new Uint8Array(LINE_BYTES_MAX + 1);
  large.set(image);
  const queued = await predicted("&mask=rle", large);
  expect(queued.response.headers.get("X-Served-By")).toBeNull();
  expect(queued.response.headers.get("X-Masks-Left-Out")).toBe("0");
  expect(queued.text).toBe(runs.text);

  const clip = form({ content: new Uint8Array(readFileSync(rectangles())) });
  const wanted = `fps=5&frames_max=4&confidence=0.3&model_id=${model.model_id}`;
  const video = await admin.ok<VideoPrediction>("POST", `/predict/video?mask=rle&${wanted}`, clip);
  expect(video).toMatchObject({ status: "completed", left_out: 6, masks_left_out: 0 });
  const masks = (video.frames ?? []).flatMap(({ detections }) => detections.map((one) => one.mask));
  expect(masks.filter((mask) => mask && "rle" in mask).length).toBeGreaterThan(5);
  for (const mask of masks) {
    if (mask) expect(mask).toMatchObject({ rle: { size: [video.height, video.width] } });
  }
});
