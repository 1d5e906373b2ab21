// Labeling jobs as they are asked for: which videos, which of their frames, what is looked for.

import type { z } from "@hono/zod-openapi";
import { sampleFrames } from "../../../../shared/detector/sampling.ts";
import { Failure } from "../../../../shared/errors.ts";
import { parseFrameId } from "../../../../shared/wire/vision.ts";
import { allow, type Caller, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { readPts } from "../../media/videos/frames.ts";
import { findVideos, type VideoRow } from "../../media/videos/videos.ts";
import type { ExemplarBody, FrameChoice, LabelBody, ManualBody, Stretch } from "./bodies.ts";
import { type Exemplars, readyVideos, unique } from "./frame-references.ts";
import { findJob, insertJob, type SampledVideo } from "./jobs.ts";
import { cutIntoChunks } from "./plan.ts";
import { planJob } from "./rounds.ts";

/** Frames of one job: as many as are planned within the memory of a Worker. */
export const FRAMES_MAX = 1_000_000;
/** Characters of crops in all tasks of a job together: they travel with every task. */
const CROPS_OF_TASKS_MAX = 256 * 1024 * 1024;

/** The videos of a new job, with whose it will be. */
export interface JobVideos {
  videos: readonly VideoRow[];
  workspaceId: string;
  createdBy: string;
}

/** The videos of a request, all ready, of one project, in which the caller may label. */
export async function videosOf(
  parts: Pick<Parts, "database" | "clock">,
  caller: Caller,
  { project_id: projectId, video_ids: ids }: { project_id: string; video_ids: readonly string[] },
): Promise<JobVideos> {
  const wanted = unique(ids);
  const found = await findVideos(parts.database, workspacesOf(caller), wanted);
  const [first] = found;
  const elsewhere = found.find((video) => video.projectId !== projectId);
  const unknown = () =>
    new Failure("not_found", "no such project with all of these videos in your workspaces");
  if (!first || elsewhere || found.length < wanted.length) throw unknown();
  allow(caller, first.workspaceId, "engineer");
  const ready = await readyVideos(parts, [first.workspaceId], wanted);
  const byId = new Map(ready.map((video) => [video.videoId, video]));
  const videos = wanted.flatMap((id) => byId.get(id) ?? []);
  // One may have been deleted while its probe was awaited.
  if (videos.length < wanted.length) throw unknown();
  return { videos, workspaceId: first.workspaceId, createdBy: caller.accountId };
}

/** Videos with their chosen frames, in which the caller may label, and whose they are. */
export async function chosenFrames(
  parts: Parts,
  caller: Caller,
  { project_id, frame_ids: frameIds, video_ids: videoIds, ...stretch }: FrameChoice & InProject,
): Promise<{ sampled: SampledVideo[]; workspaceId: string }> {
  const named = frameIds && framesByVideo(frameIds);
  const video_ids = named ? [...named.keys()] : (videoIds ?? []);
  const { videos, workspaceId } = await videosOf(parts, caller, { project_id, video_ids });
  if (!named) return { sampled: await sampleVideos(parts, videos, stretch), workspaceId };
  const sampled = videos.map(({ videoId, frameCount }) => {
    const frames = (named.get(videoId) ?? []).toSorted((one, other) => one - other);
    if ((frames.at(-1) ?? 0) < (frameCount ?? 0)) return { videoId, frames };
    throw new Failure("not_found", `video ${videoId} has ${frameCount} frames`);
  });
  return { sampled, workspaceId };
}

type InProject = { project_id: string };

/** Indexes of the named frames by video, each once. */
function framesByVideo(ids: readonly string[]): Map<string, number[]> {
  const frames = unique(ids).map((id) => {
    const frame = parseFrameId(id);
    if (frame) return frame;
    throw new Failure("invalid_request", `frame_ids: ${JSON.stringify(id.slice(0, 80))} is none`);
  });
  const byVideo = Map.groupBy(frames, ({ videoId }) => videoId);
  return new Map([...byVideo].map(([id, own]) => [id, own.map(({ index }) => index)]));
}

/** Stores a job in which people draw; returns its id. */
export async function startManualJob(
  parts: Parts,
  caller: Caller,
  body: z.output<typeof ManualBody>,
): Promise<string> {
  const { sampled, workspaceId } = await chosenFrames(parts, caller, body);
  return insertJob(parts.database, {
    workspaceId,
    projectId: body.project_id,
    name: body.name,
    words: body,
    kind: "manual",
    threshold: 0,
    resolution: null,
    fps: body.fps ?? null,
    settings: { segmenter: null, warnings: [] },
    videos: sampled,
    classes: body.classes.map((one) => ({ name: one, prompt: null })),
    createdBy: caller.accountId,
  });
}

/** What a new job is made of. */
export interface JobRequest extends JobVideos {
  body: z.output<typeof LabelBody> | z.output<typeof ExemplarBody>;
  classes: readonly { name: string; prompt: string | null }[];
  kind: "text" | "exemplar";
  exemplars?: Exemplars;
  /** The model that looks in a segmenter's place. */
  modelId?: string | undefined;
  /** What is known of what the prompts find. */
  warnings: string[];
}

/** Stores a job and enqueues its tasks; returns its id. */
export async function startJob(
  parts: Parts,
  { videos, body, ...job }: JobRequest,
): Promise<string> {
  const sampled = await sampleVideos(parts, videos, body);
  const { workspaceId, createdBy, classes, kind, exemplars, warnings, modelId } = job;
  const classNames = classes.map((one) => one.name).join(", ");
  assertCropsFit(exemplars ?? [], sampled);
  const jobId = await insertJob(parts.database, {
    workspaceId,
    createdBy,
    classes,
    kind,
    projectId: body.project_id,
    name: body.name ?? classNames.slice(0, 200),
    words: body,
    threshold: body.threshold,
    resolution: body.resolution ?? null,
    fps: body.fps ?? null,
    settings: {
      segmenter: body.segmenter ?? null,
      warnings,
      ...(exemplars && { exemplars }),
      ...(modelId && { models: { 0: modelId } }),
    },
    videos: sampled,
  });
  await planJob(parts, await findJob(parts.database, [workspaceId], jobId));
  return jobId;
}

/** The frames of a video that a request is for, by their true times. */
async function framesToLabel(
  parts: Parts,
  video: VideoRow,
  { fps: rate, from_seconds: from, to_seconds: to = Infinity }: Stretch,
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

/** The frames to label of each video; fails with `invalid_request` for too many, or none at all. */
export async function sampleVideos(
  parts: Parts,
  videos: readonly VideoRow[],
  stretch: Stretch,
): Promise<SampledVideo[]> {
  const sampled: SampledVideo[] = [];
  let framesTotal = 0;
  for (const video of videos) {
    const frames = await framesToLabel(parts, video, stretch);
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
  return sampled;
}

/** Fails with `invalid_request` when the crops are too large to travel with every task. */
export function assertCropsFit(exemplars: Exemplars, sampled: readonly SampledVideo[]): void {
  const characters = exemplars.reduce((sum, one) => sum + ("crop" in one ? one.crop.length : 0), 0);
  if (characters * cutIntoChunks(sampled).length <= CROPS_OF_TASKS_MAX) return;
  const framesTotal = sampled.reduce((sum, { frames }) => sum + frames.length, 0);
  const instead = "give smaller ones, or boxes on frames";
  throw new Failure(
    "invalid_request",
    `exemplars: crops too large for ${framesTotal} frames; ${instead}`,
  );
}
