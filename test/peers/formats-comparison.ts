// Two models compared by a real node on what people reviewed, beside everything that each of them
// finds on the same images and the truth as the API tells it.

import sharp from "sharp";
import { ComparisonResult } from "../../edge/vision/experiments/comparisons/records.ts";
import { Prediction } from "../../shared/tasks/tasks.ts";
import { AnnotationPage, Job } from "../../shared/wire/labeling.ts";
import { type User, type Video, VideoBatch } from "../../shared/wire/vision.ts";
import { form } from "../support/media.ts";
import { registerModel } from "../support/registered-model.ts";
import type { Person } from "../support/vision.ts";
import { seeded } from "../support/weights.ts";
import type { Services } from "./services.ts";

/** Asks the API; the JSON of a good answer. */
export type Ask = (
  person: Person,
  method: string,
  path: string,
  body?: unknown,
) => Promise<Record<string, unknown>>;

interface ImageBox {
  image: string;
  class: string;
  bbox: number[];
}

/** What the Python reader is told. */
export interface ModelComparison {
  classes: string[];
  /** In the order in which they are compared: equal confidences count in it. */
  images: string[];
  truths: ImageBox[];
  detections: Record<"a" | "b", (ImageBox & { confidence: number })[]>;
  confidences: Record<"a" | "b", number>;
  /** The summary of the comparison. */
  answer: unknown;
}

const IMAGES = 6;
/** COCO's evaluators look at detections from here. */
const RANKED_CONFIDENCE_MIN = 0.001;
const CONFIDENCES = { a: 0.3, b: 0.4 };

/** Compares two models with generated weights; what one finds, moved a little, is the truth. */
export async function compareModels(
  services: Services,
  admin: Person,
  { ask, ready }: { ask: Ask; ready: (videoId: string) => Promise<Video> },
): Promise<ModelComparison> {
  const { workspaces } = (await ask(admin, "GET", "/auth/me")) as unknown as User; // Its own shape.
  const workspaceId = workspaces[0]?.workspace_id ?? "";
  const [a, b] = await Promise.all(
    [1, 2].map((seed) => registerModel(services, workspaceId, { seed })),
  );
  if (!a || !b) throw new Error("no model was registered");
  const files = Array.from({ length: IMAGES }, (_, at) => ({ name: `noise-${at}.png`, at }));
  const contents = await Promise.all(files.map(({ at }) => noise(120 + 20 * at)));
  const { project_id } = await ask(admin, "POST", "/projects", { name: "compared" });
  const sent = contents.map((content, at) => ({
    field: "files",
    filename: files[at]?.name ?? "",
    content,
  }));
  const uploaded = form(["project_id", String(project_id)], ...sent);
  const { videos } = VideoBatch.parse(await ask(admin, "POST", "/upload/images", uploaded));
  const nameOf = new Map(videos.map((one) => [one.video_id, one.filename]));
  await Promise.all(videos.map(({ video_id }) => ready(video_id)));
  const found = async (modelId: string) => {
    const query = `?model_id=${modelId}&confidence=${RANKED_CONFIDENCE_MIN}`;
    const all: (ImageBox & { confidence: number })[] = [];
    for (const [at, content] of contents.entries()) {
      const reply = await ask(admin, "POST", `/predict/image${query}`, form({ content }));
      const image = files[at]?.name ?? "";
      for (const one of Prediction.array().parse(reply)) all.push({ image, ...one });
    }
    return all;
  };
  const detections = { a: await found(a.model_id), b: await found(b.model_id) };
  const coco = truthOf(detections.a, { files, classes: a.classes });
  const { job } = await ask(admin, "POST", "/import", { project_id, coco });
  const { job_id, video_ids } = Job.parse(job);
  await ask(admin, "POST", `/jobs/${job_id}/annotations/review`, { accepted: true });
  const side = (which: "a" | "b") => ({
    model_id: (which === "a" ? a : b).model_id,
    confidence: CONFIDENCES[which],
  });
  const configuration = { model_a: side("a"), model_b: side("b") };
  const run = { configuration, job_id };
  const { summary } = ComparisonResult.parse(await ask(admin, "POST", "/comparisons/run", run));
  const listed = await ask(admin, "GET", `/jobs/${job_id}/annotations?limit=1000`);
  return {
    classes: a.classes,
    images: video_ids.map((id) => nameOf.get(id) ?? ""),
    truths: AnnotationPage.parse(listed).items.map((one) => ({
      image: nameOf.get(one.frame_id.split(".")[0] ?? "") ?? "",
      class: one.class,
      bbox: one.bbox,
    })),
    detections,
    confidences: CONFIDENCES,
    answer: summary,
  };
}

async function noise(width: number): Promise<Uint8Array<ArrayBuffer>> {
  const create = {
    width,
    height: 120,
    channels: 3,
    background: "#777",
    noise: { type: "gaussian", mean: 128, sigma: 60 },
  } as const;
  return new Uint8Array(await sharp({ create }).png().toBuffer());
}

/** COCO's labels of some of what was found, each a little elsewhere, some under another class. */
function truthOf(
  found: readonly (ImageBox & { confidence: number })[],
  { files, classes }: { files: readonly { name: string; at: number }[]; classes: string[] },
) {
  const random = seeded(9);
  const kept = found.filter(({ confidence }) => confidence >= 0.2 && random() < 0.7);
  return {
    images: files.map(({ name, at }) => ({ id: at, file_name: name })),
    categories: classes.map((name, id) => ({ id, name })),
    annotations: kept.map(({ image, class: name, bbox: [x1 = 0, y1 = 0, x2 = 0, y2 = 0] }) => {
      const [width, height] = [x2 - x1, y2 - y1];
      const shrunk = (length: number) => length * (0.75 + 0.25 * random());
      const index = classes.indexOf(name);
      return {
        image_id: files.find((file) => file.name === image)?.at ?? 0,
        category_id: random() < 0.85 ? index : (index + 1) % classes.length,
        bbox: [x1, y1, shrunk(width), shrunk(height)],
      };
    }),
  };
}
