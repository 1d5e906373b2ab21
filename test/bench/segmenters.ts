// `node test/bench/segmenters.ts --segmenter NAME --threads N`: what a segmenter is worth on real
// images, and what it costs. Blood cells and animals by example against their boxes; the street
// by text, where nothing but agreement can be said; seconds and memory. The tables are for the
// README of gpu-node/segmenters. VANTAGE_MODELS names the models' folder.

import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { RgbImage } from "../../gpu-node/media/image.ts";
import { dropSpecks, tightBox, wholeWindow } from "../../gpu-node/segmenters/masks.ts";
import { openSegmenter } from "../../gpu-node/segmenters/registry.ts";
import type { Detection, Exemplar, Segmenter } from "../../gpu-node/segmenters/segmenter.ts";
import { iou, track } from "../../shared/detector/tracks.ts";
import type { Bbox } from "../../shared/tasks/tasks.ts";
import { type BloodImage, bloodImage, bloodSplit, videoFrames } from "../support/images.ts";
import { animalImages } from "./stamps.ts";

const { values } = parseArgs({
  // What npm would have taken away.
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  allowPositionals: true,
  options: {
    segmenter: { type: "string", default: "builtin" },
    threads: { type: "string", default: "2" },
    device: { type: "string", default: "cpu" },
    /** Every so-manyth image of BCCD's val split. */
    every: { type: "string", default: "4" },
    only: { type: "string" },
    /** Where tuxpaint's stamps lie, for the animals. */
    stamps: { type: "string", default: "/usr/share/tuxpaint/stamps" },
  },
});

const say = (line: string): void => {
  process.stdout.write(`${line}\n`);
};
const megabytes = (bytes: number) => `${Math.round(bytes / 1e6)} MB`;
const mean = (numbers: readonly number[]) =>
  numbers.reduce((sum, value) => sum + value, 0) / Math.max(1, numbers.length);

const segmenter = await openSegmenter(values.segmenter, {
  modelsDir: process.env.VANTAGE_MODELS ?? join(tmpdir(), "vantage-bench-models"),
  cpuThreads: Number(values.threads),
  device: values.device === "cuda" ? "cuda" : "cpu",
  log: (level, event) => level === "warning" && say(event),
});
say(`${segmenter.info.title} on ${segmenter.info.device}, ${values.threads} threads`);
const parts = { blood, animals, street, clicks };
for (const [name, part] of Object.entries(parts))
  if (!values.only || values.only === name) await part(segmenter);
say(`peak memory of the process ${megabytes(process.resourceUsage().maxRSS * 1024)}`);
await segmenter.dispose();

interface ScoredBox {
  image: number;
  bbox: Bbox;
  confidence: number;
}

/**
 * Average precision at IoU 0.5 (each truth once, by falling confidence, monotone envelope, area
 * under the curve), with the precision and recall of a cut.
 */
function score(found: readonly ScoredBox[], truth: readonly Bbox[][], cut: number) {
  const total = truth.reduce((sum, boxes) => sum + boxes.length, 0);
  const used = truth.map((boxes) => boxes.map(() => false));
  const curve: { recall: number; precision: number }[] = [];
  const atCut = { right: 0, all: 0 };
  let right = 0;
  for (const [index, one] of [...found].sort((a, b) => b.confidence - a.confidence).entries()) {
    let [best, at] = [0.5, -1];
    for (const [truthIndex, bbox] of (truth[one.image] ?? []).entries()) {
      const overlap = iou(bbox, one.bbox);
      if (overlap >= best && !used[one.image]?.[truthIndex]) [best, at] = [overlap, truthIndex];
    }
    const seen = used[one.image];
    if (at >= 0 && seen) seen[at] = true;
    right += Number(at >= 0);
    if (one.confidence >= cut) Object.assign(atCut, { right, all: index + 1 });
    curve.push({ recall: right / total, precision: right / (index + 1) });
  }
  let [area, envelope] = [0, 0];
  for (let at = curve.length - 1; at >= 0; at--) {
    const point = curve[at] as (typeof curve)[number];
    envelope = Math.max(envelope, point.precision);
    area += envelope * (point.recall - (curve[at - 1]?.recall ?? 0));
  }
  return {
    ap50: area,
    precision: atCut.right / Math.max(1, atCut.all),
    recall: atCut.right / total,
    total,
  };
}

/** Examples from the train split, never measured; images of the val split, never tuned on. */
async function blood({ info }: Segmenter): Promise<void> {
  if (info.exemplar === "none") return say("blood cells: it takes no examples");
  const whole = ({ image }: BloodImage, [x1, y1, x2, y2]: Bbox) =>
    x1 > 5 && y1 > 5 && x2 < image.width - 5 && y2 < image.height - 5;
  const sources: BloodImage[] = [];
  for (const id of bloodSplit("train")) {
    const one = await bloodImage(id);
    const has = (name: string) =>
      one?.truth.some((object) => object.name === name && whole(one, object.bbox));
    if (one && has("RBC") && has("WBC")) sources.push(one);
    if (sources.length === 3) break;
  }
  const every = Number(values.every);
  const targets: BloodImage[] = [];
  for (const id of bloodSplit("val").filter((_, index) => index % every === 0)) {
    const one = await bloodImage(id);
    if (one) targets.push(one);
  }
  if (targets.length === 0) return;
  say(`\nblood cells, ${targets.length} images of 640 x 480, examples from other images`);
  say("| class | examples | objects | AP50 | precision at 0.5 | recall at 0.5 | s/image |");
  say("|---|---|---|---|---|---|---|");
  const exemplars: { name: string; from: string; exemplar: Exemplar }[] = [];
  for (const name of ["RBC", "WBC"])
    for (const picked of [[0], [1], [2], [0, 1, 2]]) {
      const examples = picked.flatMap((index) => {
        const one = sources[index];
        const object = one?.truth.find((each) => each.name === name && whole(one, each.bbox));
        return one && object ? [{ image: one.image, bbox: object.bbox }] : [];
      });
      const from = picked.length === 1 ? `1 (no. ${picked[0]})` : String(picked.length);
      exemplars.push({ name, from, exemplar: await segmenter.prepareExemplar(examples) });
    }
  const found: ScoredBox[][] = exemplars.map(() => []);
  const seconds: number[] = exemplars.map(() => 0);
  const encodeSeconds: number[] = [];
  for (const [index, { image }] of targets.entries()) {
    const encoded = await segmenter.encode(image);
    const ask = async (exemplar: Exemplar) => {
      const started = performance.now();
      const options = { confidenceMin: 0.05, masks: true };
      const [answer = []] = await segmenter.detect(encoded, [exemplar], options);
      return { answer, seconds: (performance.now() - started) / 1000 };
    };
    // The first prompt pays for the encoding, so it is asked twice.
    const first = await ask((exemplars[0] as (typeof exemplars)[number]).exemplar);
    for (const [which, { exemplar }] of exemplars.entries()) {
      const asked = await ask(exemplar);
      if (which === 0) encodeSeconds.push(first.seconds - asked.seconds);
      seconds[which] = (seconds[which] ?? 0) + asked.seconds;
      found[which]?.push(...asked.answer.map((one) => ({ ...one, image: index })));
    }
    encoded.dispose();
  }
  for (const [which, { name, from }] of exemplars.entries()) {
    const truth = targets.map((one) =>
      one.truth.filter((object) => object.name === name).map(({ bbox }) => bbox),
    );
    const { ap50, precision, recall, total } = score(found[which] ?? [], truth, 0.5);
    const cells = [ap50, precision, recall, (seconds[which] ?? 0) / targets.length];
    say(`| ${name} | ${from} | ${total} | ${cells.map((value) => value.toFixed(2)).join(" | ")} |`);
  }
  say(`looking at an image, before its first prompt: ${mean(encodeSeconds).toFixed(2)} s`);
}

/**
 * Images of single animals by the example of other images: among images of their own kind, and
 * among those of all kinds. Each kind's first stamp is the example, or its first two.
 */
async function animals({ info }: Segmenter): Promise<void> {
  if (info.exemplar === "none") return say("animals: it takes no examples");
  if (!existsSync(values.stamps)) return say(`animals: no stamps in ${values.stamps} (--stamps)`);
  const backgrounds = [
    ...((await videoFrames("video/car-detection.mp4", [1, 12])) ?? []),
    ...((await videoFrames("video/bottle-detection.mp4", [1, 25])) ?? []),
  ];
  if (backgrounds.length === 0) return;
  const images = await animalImages(values.stamps, backgrounds);
  const prompts: { kind: string; count: number; exemplar: Exemplar; found: ScoredBox[] }[] = [];
  const kinds = [...new Set(images.map(({ kind }) => kind))];
  for (const kind of kinds)
    for (const count of [1, 2]) {
      // A stamp has two images.
      const own = images.filter((one) => one.kind === kind);
      const examples = own.filter((_, index) => index === 0 || (count === 2 && index === 2));
      const exemplar = await segmenter.prepareExemplar(examples);
      prompts.push({ kind, count, exemplar, found: [] });
    }
  const examplesOf = new Map(kinds.map((kind) => [kind, 0]));
  const targets = images.filter(({ kind }) => {
    const seen = examplesOf.get(kind) ?? 0;
    examplesOf.set(kind, seen + 1);
    return seen >= 4;
  });
  const options = { confidenceMin: 0.05, masks: false };
  for (const [index, { image }] of targets.entries()) {
    const encoded = await segmenter.encode(image);
    const exemplars = prompts.map(({ exemplar }) => exemplar);
    const answers = await segmenter.detect(encoded, exemplars, options);
    for (const [which, answer] of answers.entries())
      prompts[which]?.found.push(...answer.map((one) => ({ ...one, image: index })));
    encoded.dispose();
  }
  say(`\nsingle animals, ${targets.length} images of 640 x 480, examples from other images`);
  say("| kind | examples | images | AP50 | precision at 0.5 | recall at 0.5 | AP50 among all |");
  say("|---|---|---|---|---|---|---|");
  for (const { kind, count, found } of prompts) {
    const truth = targets.map((one) => (one.kind === kind ? [one.bbox] : []));
    const own = found.filter(({ image }) => targets[image]?.kind === kind);
    const { ap50, precision, recall, total } = score(own, truth, 0.5);
    const cells = [ap50, precision, recall, score(found, truth, 0.5).ap50];
    say(`| ${kind} | ${count} | ${total} | ${cells.map((cell) => cell.toFixed(2)).join(" | ")} |`);
  }
}

/** There is no truth for these videos: counts, and how far frames agree with each other. */
async function street({ info }: Segmenter): Promise<void> {
  if (info.text === "none") return say("street: it reads no text");
  say("\nvideos by text, every second: no truth, so counts and agreement only");
  say(
    "| video | prompt | frames | ≥ 0.5 a frame | tracks | tracked on | boxes s/frame | masks s/frame | box and mask agree |",
  );
  say("|---|---|---|---|---|---|---|---|---|");
  for (const [path, text] of [
    ["car-detection", "car"],
    ["bottle-detection", "bottle"],
  ] as const) {
    const frames = await videoFrames(
      `video/${path}.mp4`,
      Array.from({ length: 24 }, (_, index) => 2 + index),
    );
    if (!frames) return;
    const prompt = segmenter.resolve(text);
    const plain: Detection[][] = [];
    const agreement: number[] = [];
    const seconds = { boxes: [] as number[], masks: [] as number[] };
    for (const image of frames) {
      const boxes = await timed(image, [prompt], false);
      const masks = await timed(image, [prompt], true);
      plain.push(boxes.found);
      seconds.boxes.push(boxes.seconds);
      seconds.masks.push(masks.seconds);
      masks.found.forEach((one, index) => {
        const other = boxes.found[index];
        if (one.polygon && other && one.confidence >= 0.5)
          agreement.push(iou(one.bbox, other.bbox));
      });
    }
    const shown = plain.map((found) => found.filter(({ confidence }) => confidence >= 0.5).length);
    const ids = track(plain.map((boxes, frameIndex) => ({ frameIndex, boxes }))).flat();
    const given = ids.filter((id) => id !== null);
    const tracks = new Set(given).size;
    const cells = [
      mean(shown).toFixed(2),
      tracks,
      given.length === 0 ? "–" : ((given.length - tracks) / given.length).toFixed(2),
      mean(seconds.boxes.slice(1)).toFixed(3),
      mean(seconds.masks.slice(1)).toFixed(2),
      agreement.length === 0 ? "–" : mean(agreement).toFixed(2),
    ];
    say(`| ${path} | ${text} | ${frames.length} | ${cells.join(" | ")} |`);
  }
}

async function timed(image: RgbImage, prompts: Parameters<Segmenter["detect"]>[1], masks: boolean) {
  const started = performance.now();
  const encoded = await segmenter.encode(image);
  const [found = []] = await segmenter.detect(encoded, prompts, { confidenceMin: 0.25, masks });
  encoded.dispose();
  return { found, seconds: (performance.now() - started) / 1000 };
}

/** White cells stand alone: a box's or a click's best mask should fit the cell's box. */
async function clicks({ info }: Segmenter): Promise<void> {
  if (!info.points) return say("clicks: it answers none");
  const fits: Record<string, number[]> = { box: [], click: [], "best of click": [] };
  const seconds: number[] = [];
  for (const id of bloodSplit("val").filter((_, index) => index % Number(values.every) === 0)) {
    const one = await bloodImage(id);
    if (!one) return;
    const { width, height } = one.image;
    const encoded = await segmenter.encode(one.image);
    // Pays for the encoding, which is no part of a prompt's time.
    await segmenter.segment(encoded, { points: [], box: [0, 0, width, height] });
    for (const { bbox } of one.truth.filter(({ name }) => name === "WBC")) {
      const click = { x: (bbox[0] + bbox[2]) / 2, y: (bbox[1] + bbox[3]) / 2, label: 1 as const };
      for (const [name, prompt] of [
        ["box", { points: [], box: bbox }],
        ["click", { points: [click], box: null }],
      ] as const) {
        const started = performance.now();
        const masks = await segmenter.segment(encoded, prompt);
        seconds.push((performance.now() - started) / 1000);
        const overlaps = masks.map(({ mask }) => {
          const tight = tightBox(dropSpecks(wholeWindow(mask, width, height)));
          return tight ? iou(tight, bbox) : 0;
        });
        fits[name]?.push(overlaps[0] ?? 0);
        if (name === "click") fits["best of click"]?.push(Math.max(0, ...overlaps));
      }
    }
    encoded.dispose();
  }
  say("\nwhite cells by a box and by one click: mean IoU of the mask's box with the cell's box");
  for (const [name, values] of Object.entries(fits))
    say(`${name}: ${mean(values).toFixed(2)} over ${values.length} cells`);
  say(`a prompt on an encoded image: ${median(seconds).toFixed(3)} s`);
}

function median(numbers: readonly number[]): number {
  return [...numbers].sort((a, b) => a - b)[numbers.length >> 1] ?? 0;
}
