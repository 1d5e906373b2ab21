// A real node is asked by the real service about uploaded files: by its line, by the queue where
// the file is too large for that, again after its process was killed, and about a clip.

import { readFileSync } from "node:fs";
import sharp from "sharp";
import { beforeAll, expect, it } from "vitest";
import { decodeRle } from "../../../../gpu-node/segmenters/masks.ts";
import { SamPrediction, SamVideoPrediction } from "../../../../shared/wire/serving.ts";
import { rectangles, toolsOrSay } from "../../../support/clips.ts";
import { type NodeProcess, startNode } from "../../../support/gpu-node.ts";
import { form } from "../../../support/media.ts";
import { json, MIB, type Part } from "../../../support/sam-world.ts";
import { type Person, register } from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

const found = toolsOrSay();
let world: World;
let admin: Person;
let file: Uint8Array<ArrayBuffer>;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  const svg =
    '<svg width="160" height="120"><rect width="100%" height="100%"/>' +
    '<path fill="#f00" fill-rule="evenodd" d="M10 10h40v40h-40z M20 20h10v10h-10z"/>' +
    '<circle cx="110" cy="70" r="30" fill="#0f0"/></svg>';
  file = new Uint8Array(await sharp(Buffer.from(svg)).png().toBuffer());
});

/** What is found on the image, and whether it came by the line. */
async function ask(...parts: Part[]) {
  const answer = await admin.send("POST", "/predict/sam", form(...parts, { content: file }));
  const text = await answer.text();
  expect([answer.status, text]).toEqual([200, text]);
  const direct = /^node\/./.test(answer.headers.get("X-Served-By") ?? "");
  return { direct, ...SamPrediction.parse(JSON.parse(text)) };
}

async function begun(): Promise<NodeProcess> {
  const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
  const node = startNode({ VANTAGE_URL: world.urls.vision, VANTAGE_NODE_CODE: code });
  const lines = async () => {
    const nodes = await admin.ok<{ capabilities: { line?: boolean } }[]>("GET", "/admin/nodes");
    return nodes.filter(({ capabilities }) => capabilities.line).length;
  };
  await expect.poll(lines).toBe(1);
  return node;
}

/** Square pixels of a ring, by the shoelace formula. */
const areaOf = (ring: readonly number[]) => {
  const at = (index: number) => ring[index % ring.length] ?? 0;
  let twice = 0;
  for (let i = 0; i < ring.length; i += 2) twice += at(i) * at(i + 3) - at(i + 2) * at(i + 1);
  return Math.abs(twice) / 2;
};

it.skipIf(!found)(
  "finds by every prompt, by the line and by the queue, and after a crash",
  async () => {
    const node = await begun();
    const byWords = await ask(["prompts", "red"], ["prompts", "green"]);
    expect(byWords).toMatchObject({
      direct: true,
      width: 160,
      height: 120,
      segmenter: "rectangles",
      left_out: { objects: 0, masks: 0 },
    });
    expect(byWords.objects.map((one) => [one.class, one.bbox])).toEqual([
      ["red", [10, 10, 50, 50]],
      ["green", [80, 40, 140, 100]],
    ]);
    const rings = await ask(["prompts", "red"], ["prompts", "green"], ["mask", "polygon"]);
    for (const [index, { mask }] of byWords.objects.entries()) {
      const pixels = mask && "rle" in mask ? decodeRle(mask.rle) : [];
      const ring = rings.objects[index]?.mask;
      const area = ring && "polygon" in ring ? areaOf(ring.polygon) : -1;
      expect(area).toBe(pixels.filter((on) => on === 1).length);
    }
    const pointed = await ask(
      json("points", [{ x: 110, y: 70, label: 1 }]),
      json("boxes", [12, 34, 48, 48]),
      json("exemplars", { bbox: [12, 34, 48, 48] }),
      ["class", "thing"],
    );
    expect(new Set(pointed.objects.map(({ prompt, bbox }) => `${prompt.kind} ${bbox}`))).toEqual(
      new Set(["points 80,40,140,100", "box 10,10,50,50", "exemplar 10,10,50,50"]),
    );
    const outside = form(json("points", { x: 500, y: 7, label: 1 }), { content: file });
    expect(await admin.refused("POST", "/predict/sam", outside)).toEqual([422, "invalid_request"]);
    const unknown = form(["prompts", "reed"], { content: file });
    const refused = await admin.send("POST", "/predict/sam", unknown);
    expect(await refused.json()).toMatchObject({ code: "prompt_unknown", nearest: ["red"] });

    for (const pid of node.below()) process.kill(pid, "SIGKILL");
    // Before the node sees that its process is gone, it has no answer, and no other node is there.
    const status = async () => {
      const body = form(["prompts", "red"], { content: file });
      return (await admin.send("POST", "/predict/sam", body)).status;
    };
    await expect.poll(status).toBe(200);
    const again = await ask(["prompts", "red"], ["prompts", "green"]);
    expect([again.direct, again.objects]).toEqual([true, byWords.objects]);
    const small = file;
    // What follows the image's end is of no meaning to its readers.
    file = new Uint8Array(9 * MIB);
    file.set(small);
    const queued = await ask(["prompts", "red"], ["prompts", "green"]);
    expect([queued.direct, queued.objects]).toEqual([false, byWords.objects]);

    const clip = form(["prompts", "red"], { content: new Uint8Array(readFileSync(rectangles())) });
    const path = "/predict/sam/video?fps=5&frames_max=4&wait_seconds=90";
    const video = SamVideoPrediction.parse(await admin.ok("POST", path, clip));
    expect(video).toMatchObject({
      status: "completed",
      left_out: { frames: 6, objects: 0, masks: 0 },
    });
    expect(video.frames?.map(({ time, objects }) => [time, objects.length])).toEqual([
      [0, 1],
      [0.2, 1],
      [0.4, 1],
      [0.6, 1],
    ]);
    const left = await world.media.list();
    expect(left.objects.filter(({ key }) => key.includes("/predictions/"))).toEqual([]);
  },
);
