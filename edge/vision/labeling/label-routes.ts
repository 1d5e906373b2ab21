// Asking a segmenter: a labeling job by text or by exemplar, a preview, a mask from clicks.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../../shared/errors.ts";
import { Annotation, THRESHOLD_DEFAULT } from "../../../shared/labeling.ts";
import { sampleFrames } from "../../../shared/sampling.ts";
import { Bbox, Mask, Point, type Prompt, TASK_KINDS } from "../../../shared/tasks.ts";
import { frameId, parseFrameId } from "../../../shared/vision.ts";
import { type App, errorResponses, json, jsonBody, name, text } from "../../http/app.ts";
import type { Database } from "../../http/database.ts";
import { answerOnce, IdempotencyKey } from "../auth/idempotency.ts";
import { allow, callerOf, workspacesOf } from "../auth/scope.ts";
import { API, bearer } from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import { readPts } from "../projects/frames.ts";
import { findVideos, type VideoRow } from "../projects/videos.ts";
import { insideFrame } from "../review/annotations.ts";
import { source } from "../tasks/objects.ts";
import { runNow } from "../tasks/wait.ts";
import { groundAll } from "./grounding.ts";
import { findJob, insertJob, planJob } from "./jobs.ts";
import { cutIntoChunks } from "./plan.ts";

/** Each may cost a read of the store, of which a request may make a thousand. */
const VIDEOS_MAX = 900;
/** Frames of one job: as many as are planned within the memory of a Worker. */
const FRAMES_MAX = 1_000_000;
const PROMPTS_MAX = 50;
const EXEMPLARS_MAX = 10;
const PREVIEW_FRAMES_MAX = 8;
const PREVIEW_MS = 120_000;
const SEGMENT_MS = 60_000;
/** Base64 of a crop of a megapixel or more. */
const CROP_CHARACTERS_MAX = 1024 * 1024;
/** Crops travel with every task: what they come to in all tasks of a job. */
const CROPS_OF_TASKS_MAX = 256 * 1024 * 1024;

const tags = ["Labeling"];
const threshold = z.number().min(0).max(1).default(THRESHOLD_DEFAULT).meta({
  description: "shown are annotations of at least this confidence; lower favours tiny objects",
});
const resolution = z.number().int().min(64).max(8_192).optional().meta({
  description: "longest side at which frames are looked at; the segmenter's own when omitted",
});
const label = {
  project_id: z.uuid(),
  video_ids: z.array(z.uuid()).min(1).max(VIDEOS_MAX),
  threshold,
  resolution,
  fps: z.number().positive().max(1_000).optional().meta({
    description: "frames a second to label, by the frames' true times; every frame when omitted",
  }),
  from_seconds: z
    .number()
    .min(0)
    .default(0)
    .meta({ description: "beyond the contract: frames of each video from here on, by true times" }),
  to_seconds: z
    .number()
    .positive()
    .optional()
    .meta({ description: "beyond the contract: and before here; to the end when omitted" }),
  name: name().max(200).optional(),
  description: text().max(10_000).default(""),
  segmenter: name()
    .max(200)
    .optional()
    .meta({ description: "of those a node offers; its default when omitted" }),
};
const prompt = z.string().trim().pipe(name().max(200));
const prompts = z.array(prompt).min(1).max(PROMPTS_MAX).meta({ description: "each is a class" });
const LabelBody = z.object({ ...label, prompts });
const exemplars = z
  .array(
    z.union([
      z.object({ frame_id: z.string(), bbox: Bbox }),
      z.object({ crop: z.base64().max(CROP_CHARACTERS_MAX) }),
    ]),
  )
  .min(1)
  .max(EXEMPLARS_MAX)
  .meta({ description: "boxes on frames, or crops as base64 images; two or three are best" });
const ExemplarBody = z.object({ ...label, exemplars, class: name().max(200).default("object") });
const PreviewBody = z.object({
  frame_ids: z.array(z.string()).min(1).max(PREVIEW_FRAMES_MAX),
  prompts: prompts.optional(),
  exemplars: exemplars.optional(),
  threshold,
  resolution,
  segmenter: label.segmenter,
});
const SegmentBody = z.object({
  frame_id: z.string(),
  points: z.array(Point).max(100).default([]),
  bbox: Bbox.optional(),
  segmenter: label.segmenter,
});

const accepted = json(
  "the job; it runs on GPU nodes",
  z.object({ job_id: z.uuid(), warnings: z.array(z.string()) }),
);
const labelErrors = errorResponses(
  "bad_body",
  "unauthorized",
  "forbidden",
  "not_found",
  "state_conflict",
  "idempotency_conflict",
  "prompt_unknown",
  "invalid_request",
  "store_unavailable",
);

/** Registers the routes that ask a segmenter. */
export function addLabel(app: App<Parts>) {
  const byText = createRoute({
    method: "post",
    path: `${API}/label`,
    tags,
    summary: "Label videos by text",
    description:
      "For engineers. Each prompt becomes a class. A prompt that the segmenter has no word for is " +
      "refused before anything starts. With an Idempotency-Key a repeated request starts one job.",
    security: bearer,
    request: { body: jsonBody(LabelBody).body, headers: IdempotencyKey },
    responses: { 202: accepted, ...labelErrors },
  });
  app.openapi(byText, async (context) => {
    const parts = context.var.service;
    const body = context.req.valid("json");
    const { database } = parts;
    const videos = await videosOf(database, callerOf(context), body);
    const key = context.req.valid("header")["idempotency-key"];
    const warnings: string[] = [];
    const answer = await answerOnce(
      parts,
      { workspaceId: videos.workspaceId, route: "label", key, body },
      async () => {
        const words = unique(body.prompts);
        warnings.push(...(await groundAll(database, words, body.segmenter)));
        const classes = words.map((prompt) => ({ name: prompt, prompt }));
        const jobId = await start(parts, { ...videos, body, classes, kind: "text" });
        return { status: 202 as const, body: { job_id: jobId, warnings } };
      },
    );
    return context.json(answer.body as never, 202);
  });

  const byExemplar = createRoute({
    method: "post",
    path: `${API}/label/exemplar`,
    tags,
    summary: "Label videos by examples of one class",
    description:
      "For engineers. The examples are boxes on frames of the workspace, or image crops.",
    security: bearer,
    request: { body: jsonBody(ExemplarBody).body, headers: IdempotencyKey },
    responses: { 202: accepted, ...labelErrors },
  });
  app.openapi(byExemplar, async (context) => {
    const parts = context.var.service;
    const body = context.req.valid("json");
    const caller = callerOf(context);
    const videos = await videosOf(parts.database, caller, body);
    const { workspaceId } = videos;
    const examples = await resolveExemplars(parts.database, workspaceId, body.exemplars);
    const key = context.req.valid("header")["idempotency-key"];
    const answer = await answerOnce(
      parts,
      { workspaceId: videos.workspaceId, route: "label/exemplar", key, body },
      async () => {
        const classes = [{ name: body.class, prompt: null }];
        const job = { ...videos, body, classes, kind: "exemplar" as const, exemplars: examples };
        return { status: 202 as const, body: { job_id: await start(parts, job), warnings: [] } };
      },
    );
    return context.json(answer.body as never, 202);
  });
  addInteractive(app);
}

const unique = (texts: readonly string[]) => [...new Set(texts)];

const Preview = z.object({
  previews: z.array(
    z.object({
      frame_id: z.string(),
      image: z.string().meta({ description: "base64 JPEG with what was found drawn on it" }),
      annotations: z.array(Annotation.pick({ class: true, bbox: true, confidence: true })),
    }),
  ),
  segmenter: z.string(),
  warnings: z.array(z.string()),
});

function addInteractive(app: App<Parts>) {
  const errors = errorResponses(
    "bad_body",
    "unauthorized",
    "forbidden",
    "not_found",
    "state_conflict",
    "prompt_unknown",
    "invalid_request",
    "task_failed",
    "no_node",
    "store_unavailable",
  );
  const preview = createRoute({
    method: "post",
    path: `${API}/label/preview`,
    tags,
    summary: "What a segmenter finds on a few frames, before a job",
    description: `For annotators. At most ${PREVIEW_FRAMES_MAX} frames of one video.`,
    security: bearer,
    request: jsonBody(PreviewBody),
    responses: { 200: json("frames with what was found", Preview), ...errors },
  });
  app.openapi(preview, async (context) => {
    const parts = context.var.service;
    const body = context.req.valid("json");
    const workspaces = workspacesOf(callerOf(context), "viewer");
    const { video, frames } = await framesOf(parts.database, workspaces, body.frame_ids);
    allow(callerOf(context), video.workspaceId, "annotator");
    const asked: Prompt[] = unique(body.prompts ?? []).map((prompt) => ({
      kind: "text",
      class_name: prompt,
      text: prompt,
    }));
    if (asked.length > 0) await groundAll(parts.database, body.prompts ?? [], body.segmenter);
    if (body.exemplars) {
      const { workspaceId } = video;
      const examples = await resolveExemplars(parts.database, workspaceId, body.exemplars);
      asked.push({ kind: "exemplar", class_name: "exemplar", exemplars: examples });
    }
    if (asked.length === 0) throw new Failure("invalid_request", "prompts or exemplars: required");
    const payload = {
      video_id: video.videoId,
      video: source(video.storageKey, video.bytes),
      prompts: asked,
      frames,
      threshold: body.threshold,
      resolution: body.resolution ?? null,
      segmenter: body.segmenter ?? null,
    };
    const task = { kind: "preview" as const, workspaceId: video.workspaceId, payload };
    const found = TASK_KINDS.preview.result.parse(
      await runNow(
        parts,
        { ...task, subject: `video:${video.videoId}` },
        { timeoutMs: PREVIEW_MS },
      ),
    );
    const previews = found.frames.map(({ frame_index, image, detections }) => ({
      frame_id: frameId(video.videoId, frame_index),
      image,
      annotations: detections.map(({ class_name, bbox, confidence }) => ({
        class: class_name,
        bbox,
        confidence,
      })),
    }));
    return context.json({ previews, segmenter: found.segmenter, warnings: found.warnings }, 200);
  });

  const segment = createRoute({
    method: "post",
    path: `${API}/label/segment-points`,
    tags,
    summary: "A mask from clicks on a frame",
    description:
      "For annotators. Points with label 1 are on the object, with 0 off it; a box may go with them " +
      "or stand alone. `alternatives` are other readings of an unclear click.",
    security: bearer,
    request: jsonBody(SegmentBody),
    responses: {
      200: json(
        "the best mask",
        z.object({ mask: Mask, alternatives: z.array(Mask), segmenter: z.string() }),
      ),
      ...errors,
    },
  });
  app.openapi(segment, async (context) => {
    const parts = context.var.service;
    const body = context.req.valid("json");
    if (body.points.length === 0 && !body.bbox) {
      throw new Failure("invalid_request", "points: at least one point, or a bbox");
    }
    const workspaces = workspacesOf(callerOf(context), "viewer");
    const { video, frames } = await framesOf(parts.database, workspaces, [body.frame_id]);
    allow(callerOf(context), video.workspaceId, "annotator");
    const { width, height } = sizeOf(video);
    const box = body.bbox ? insideFrame(body.bbox, { width, height }) : null;
    const outside = body.points.some(({ x, y }) => x < 0 || y < 0 || x > width || y > height);
    if (outside || (body.bbox && !box)) {
      const what = outside ? "points" : "bbox";
      throw new Failure("invalid_request", `${what}: the frame is ${width} × ${height} pixels`);
    }
    const payload = {
      video_id: video.videoId,
      video: source(video.storageKey, video.bytes),
      frame_index: frames[0] as number,
      points: body.points,
      box,
      segmenter: body.segmenter ?? null,
    };
    const task = { kind: "segment" as const, workspaceId: video.workspaceId, payload };
    const found = TASK_KINDS.segment.result.parse(
      await runNow(
        parts,
        { ...task, subject: `video:${video.videoId}` },
        { timeoutMs: SEGMENT_MS },
      ),
    );
    const [mask, ...alternatives] = found.masks;
    if (!mask) throw new Failure("task_failed", "the segmenter found no object there");
    return context.json({ mask, alternatives, segmenter: found.segmenter }, 200);
  });
}

/** The videos of a request, all ready, of one project, in which the caller may label. */
async function videosOf(
  database: Database,
  caller: ReturnType<typeof callerOf>,
  { project_id: projectId, video_ids: ids }: { project_id: string; video_ids: readonly string[] },
) {
  const asked = unique(ids);
  const found = await findVideos(database, workspacesOf(caller), asked);
  const byId = new Map(found.map((video) => [video.videoId, video]));
  const videos = asked.flatMap((id) => byId.get(id) ?? []);
  const [first] = videos;
  const elsewhere = videos.find((video) => video.projectId !== projectId);
  if (!first || elsewhere || videos.length < asked.length) {
    throw new Failure("not_found", "no such project with all of these videos in your workspaces");
  }
  allow(caller, first.workspaceId, "engineer");
  const unready = videos.find(({ state }) => state !== "ready");
  if (unready) {
    const why = unready.failure ? `: ${unready.failure}` : "; wait until it is ready";
    throw new Failure("state_conflict", `video ${unready.videoId} is ${unready.state}${why}`);
  }
  return { videos, workspaceId: first.workspaceId, createdBy: caller.accountId };
}

interface Start {
  videos: readonly VideoRow[];
  workspaceId: string;
  createdBy: string;
  body: z.output<typeof LabelBody> | z.output<typeof ExemplarBody>;
  classes: readonly { name: string; prompt: string | null }[];
  kind: "text" | "exemplar";
  exemplars?: Extract<Prompt, { kind: "exemplar" }>["exemplars"];
}

/** Stores a job and enqueues its tasks; returns its id. */
async function start(parts: Parts, { videos, body, ...job }: Start): Promise<string> {
  const sampled = [];
  let framesTotal = 0;
  for (const video of videos) {
    const frames = await framesToLabel(parts, video, body);
    sampled.push({ videoId: video.videoId, frames });
    framesTotal += frames.length;
    if (framesTotal > FRAMES_MAX) {
      const less = "give fewer videos, a lower fps or a shorter stretch";
      throw new Failure("invalid_request", `video_ids: over ${FRAMES_MAX} frames; ${less}`);
    }
  }
  if (sampled.every(({ frames }) => frames.length === 0)) {
    throw new Failure("invalid_request", "from_seconds: no video has a frame between these times");
  }
  const { workspaceId, createdBy, classes, kind, exemplars } = job;
  const crops = (exemplars ?? []).reduce(
    (sum, one) => sum + ("crop" in one ? one.crop.length : 0),
    0,
  );
  if (crops * cutIntoChunks(sampled).length > CROPS_OF_TASKS_MAX) {
    const instead = "give smaller ones, or boxes on frames";
    throw new Failure(
      "invalid_request",
      `exemplars: crops too large for ${framesTotal} frames; ${instead}`,
    );
  }
  const jobId = await insertJob(parts.database, {
    workspaceId,
    createdBy,
    classes,
    kind,
    projectId: body.project_id,
    name:
      body.name ??
      classes
        .map((one) => one.name)
        .join(", ")
        .slice(0, 200),
    description: body.description,
    threshold: body.threshold,
    resolution: body.resolution ?? null,
    fps: body.fps ?? null,
    settings: { segmenter: body.segmenter ?? null, ...(exemplars ? { exemplars } : {}) },
    videos: sampled,
  });
  await planJob(parts, await findJob(parts.database, [workspaceId], jobId));
  return jobId;
}

/** The frames of a video that a request is for, by their true times. */
async function framesToLabel(
  parts: Parts,
  video: VideoRow,
  { fps: rate, from_seconds: from, to_seconds: to = Infinity }: Start["body"],
): Promise<number[]> {
  const fps = rate ?? null;
  // All of them, or the one of a still: nobody needs their times.
  if (from === 0 && to === Infinity && (fps === null || video.frameCount === 1)) {
    return Array.from({ length: video.frameCount ?? 0 }, (_, frame) => frame);
  }
  const pts = await readPts(parts, video);
  const [numerator = 1, denominator = 1] = video.timeBase ?? [];
  const secondsAt = (frame: number) => ((pts[frame] ?? 0) * numerator) / denominator;
  return sampleFrames(pts, [numerator, denominator], fps).filter(
    (frame) => secondsAt(frame) >= from && secondsAt(frame) < to,
  );
}

const sizeOf = ({ width, height }: VideoRow) => ({ width: width ?? 0, height: height ?? 0 });

/** The video and the indexes of frames, all of one video that is ready. */
async function framesOf(database: Database, workspaces: readonly string[], ids: readonly string[]) {
  const frames = ids.map((id) => {
    const parsed = parseFrameId(id);
    if (parsed) return parsed;
    throw new Failure("invalid_request", `frame_id: ${JSON.stringify(id.slice(0, 80))} is none`);
  });
  const videoIds = unique(frames.map(({ videoId }) => videoId));
  if (videoIds.length > 1) throw new Failure("invalid_request", "frame_ids: of one video, please");
  const [video] = await findVideos(database, workspaces, videoIds);
  if (!video) throw new Failure("not_found", "no such video");
  const count = video.frameCount ?? 0;
  if (video.state !== "ready") throw new Failure("state_conflict", `the video is ${video.state}`);
  const indexes = [...new Set(frames.map(({ index }) => index))];
  if (indexes.some((index) => index >= count)) {
    throw new Failure("not_found", `the video has ${count} frames`);
  }
  return { video, frames: indexes };
}

/** Examples as tasks of the workspace may read them: its own frames, or crops. */
async function resolveExemplars(
  database: Database,
  workspaceId: string,
  given: z.output<typeof exemplars>,
): Promise<Extract<Prompt, { kind: "exemplar" }>["exemplars"]> {
  const resolved = [];
  for (const one of given) {
    if ("crop" in one) resolved.push(one);
    else {
      const { video, frames } = await framesOf(database, [workspaceId], [one.frame_id]);
      const bbox = insideFrame(one.bbox, sizeOf(video));
      if (!bbox) throw new Failure("invalid_request", "exemplars.bbox: lies outside of the frame");
      resolved.push({
        video: source(video.storageKey, video.bytes),
        frame_index: frames[0] as number,
        bbox,
      });
    }
  }
  return resolved;
}
