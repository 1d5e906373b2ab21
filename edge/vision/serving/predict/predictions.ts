// Predictions on files that a request brings. The file lies in the store only while a node needs
// it: it is deleted when the task ended, and what a crash left behind by the minute cron. The
// task's row is the record of a prediction on a video, and keeps its result for a day.

import { sql } from "drizzle-orm";
import { task } from "../../../../db/vision/schema.ts";
import { type ErrorCode, Failure } from "../../../../shared/errors.ts";
import { joined } from "../../../../shared/tasks/line.ts";
import { MaskedPrediction } from "../../../../shared/tasks/predict-task.ts";
import type { MaskForm } from "../../../../shared/tasks/sam.ts";
import type { TaskPayload, TaskResult } from "../../../../shared/tasks/tasks.ts";
import { HOUR, MINUTE } from "../../../../shared/time.ts";
import type { VideoPrediction } from "../../../../shared/wire/serving.ts";
import { wireTime } from "../../../http/database.ts";
import { pagesOf } from "../../../http/object-pages.ts";
import type { Parts } from "../../base/parts.ts";
import { keep } from "../../base/retention.ts";
import { idList } from "../../base/sql.ts";
import {
  type FormField,
  type FormFile,
  type FormLimits,
  formParts,
} from "../../media/uploads/form.ts";
import type { MediaKind } from "../../media/uploads/media-types.ts";
import { tooLarge, writeObject } from "../../media/uploads/object-writer.ts";
import {
  maybePlain,
  plainFile,
  readSmallBody,
  SMALL_FORM_BYTES_MAX,
} from "../../media/uploads/small-form.ts";
import { checkQuota, HAS_ANNOTATED } from "../../media/videos/videos.ts";
import { type ModelRow, modelSource } from "../../models/registry.ts";
import { type SigningParts, source } from "../../tasks/objects.ts";
import type { NewTask, Task } from "../../tasks/queue/queue.ts";
import { type FramesWish, framesOf } from "./clip-frames.ts";
import { type HeldShare, openShare } from "./held-bytes.ts";
import { subjectOf } from "./model-choice.ts";
import { annotatedTarget, annotatedUrl, folderOf } from "./task-files.ts";

/** Bytes of a form beyond its file. */
const ENVELOPE_BYTES = 1024 * 1024;

/** A file of a request, in the store. */
export interface StoredFile {
  key: string;
  bytes: number;
}

/** What a form has beside its file: hears of each part, and reads or skips a file. */
export type FormListener = (part: FormField | FormFile) => Promise<void> | void;

/** A file as it is taken: whose it is, of which kind, and how large it may be. */
export interface FileRules {
  workspaceId: string;
  kind: MediaKind;
  bytesMax: number;
  /** What else the form may have, and in how many bytes; without it that is passed over. */
  others?: { listen: FormListener; limits: FormLimits; bytesMax: number };
}

/** Stores the one file of a form. Whatever fails, no object is left behind. */
export function receiveFile(parts: Parts, request: Request, rules: FileRules): Promise<StoredFile> {
  return takeFile(parts, request, rules, (chunks) => storeFile(parts, chunks, rules));
}

/** Stores a file under a key of its own. */
export async function storeFile(
  parts: Parts,
  chunks: AsyncIterable<Uint8Array>,
  { workspaceId, kind: { headBytes, typeOf }, bytesMax }: FileRules,
): Promise<StoredFile> {
  await checkQuota(parts, workspaceId, 1);
  const key = `${folderOf(workspaceId)}${crypto.randomUUID()}`;
  const options = { key, bytesMax, headBytes, typeOf };
  const { bytes } = await writeObject(parts.bucket, chunks, options);
  try {
    await checkQuota(parts, workspaceId, bytes);
    return { key, bytes };
  } catch (thrown) {
    await parts.bucket.delete(key);
    throw thrown;
  }
}

/** A file in memory, in pieces. */
export interface HeldFile {
  pieces: Uint8Array[];
  /** Lets go of the room that it takes; nothing is done with its pieces from then on. */
  free(): void;
}

/**
 * The one file of a form: in memory where it has at most so many bytes, else stored. Fails with
 * `overloaded` where files of other requests fill the isolate's memory. A signal says that nobody
 * wants it any more: its room is free at once, and what is still to come passes.
 */
export async function holdFile(
  parts: Parts,
  request: Request,
  { heldMax, unwanted, ...rules }: FileRules & { heldMax: number; unwanted?: AbortSignal },
): Promise<HeldFile | StoredFile> {
  const announced = Number(request.headers.get("Content-Length") ?? 0);
  const share = openShare(parts.clock, Math.min(announced, heldMax));
  unwanted?.addEventListener("abort", share.free);
  try {
    const boundsMax = Math.min(heldMax, rules.bytesMax, SMALL_FORM_BYTES_MAX);
    const isSmall = announced > 0 && announced <= boundsMax && !rules.others;
    const taken = isSmall
      ? await takeSmall(parts, request, rules, { heldMax, share, unwanted })
      : await takeFile(parts, request, rules, holding(parts, rules, { heldMax, share, unwanted }));
    share.end();
    if ("key" in taken) share.free();
    return taken;
  } catch (thrown) {
    share.free();
    throw thrown;
  }
}

/** How a file is held: up to so many bytes, as a share, until nobody wants it. */
interface Holding {
  heldMax: number;
  share: HeldShare;
  unwanted?: AbortSignal | undefined;
}

/** Takes the one file of a form that fits into memory whole, the form's other bytes included. */
async function takeSmall(
  parts: Parts,
  request: Request,
  rules: FileRules,
  { heldMax, share, unwanted }: Holding,
): Promise<HeldFile | StoredFile> {
  const type = request.headers.get("Content-Type");
  const take = holding(parts, rules, { heldMax, share, unwanted });
  if (!request.body || !maybePlain(type)) return takeFile(parts, request, rules, take);
  const announced = Number(request.headers.get("Content-Length"));
  const whole = await readSmallBody(request.body, { announced, hold: share.grow, unwanted });
  const file = plainFile(whole, type);
  if (file) {
    const pieces = [file];
    unwanted?.addEventListener("abort", () => pieces.splice(0));
    rules.kind.typeOf(headOf(pieces, rules.kind.headBytes));
    return { pieces, free: share.free };
  }
  const { headers, url } = request;
  const again = new Request(url, { method: "POST", headers, body: whole });
  // All of the form is in the share already.
  const counted = { ...share, grow: () => {} };
  return takeFile(
    parts,
    again,
    rules,
    holding(parts, rules, { heldMax, share: counted, unwanted }),
  );
}

/**
 * Works on the one file of a form, which is in memory all the while and let go of whatever becomes
 * of the work. Fails as `holdFile` does, and as the work.
 */
export async function withHeldFile<Result>(
  parts: Parts,
  request: Request,
  rules: FileRules,
  work: (file: HeldFile) => Promise<Result>,
): Promise<Result> {
  const held = await holdFile(parts, request, { ...rules, heldMax: rules.bytesMax });
  // A file of more bytes than are held is refused before it is stored.
  if ("key" in held) throw new Error("a file was stored that had to be held");
  try {
    return await work(held);
  } finally {
    held.free();
  }
}

/** Takes a file into memory, as its share grows; or into the store, from where it is too large. */
export const holding =
  (parts: Parts, rules: FileRules, { heldMax, share, unwanted }: Holding) =>
  async (chunks: AsyncIterable<Uint8Array>): Promise<HeldFile | StoredFile> => {
    const iterator = chunks[Symbol.asyncIterator]();
    const pieces: Uint8Array[] = [];
    // The rest may be long in coming.
    unwanted?.addEventListener("abort", () => pieces.splice(0));
    for (let bytes = 0; bytes <= heldMax; ) {
      const { done, value } = await iterator.next();
      if (done) {
        if (bytes === 0) throw new Failure("invalid_request", "file: is empty");
        rules.kind.typeOf(headOf(pieces, rules.kind.headBytes));
        return { pieces, free: share.free };
      }
      share.grow(value.length);
      pieces.push(value);
      bytes += value.length;
    }
    const whole = async function* () {
      yield* pieces.splice(0);
      yield* { [Symbol.asyncIterator]: () => iterator };
    };
    return storeFile(parts, whole(), rules);
  };

/** The first bytes of a file in pieces, without a copy of all of it. */
export function headOf(pieces: readonly Uint8Array[], bytesMax: number): Uint8Array {
  const head: Uint8Array[] = [];
  for (let bytes = 0, index = 0; bytes < bytesMax && index < pieces.length; index++) {
    const piece = pieces[index] as Uint8Array;
    head.push(piece);
    bytes += piece.length;
  }
  return joined(head).subarray(0, bytesMax);
}

/** What `take` makes of the one file of a form. A stored file of a form that fails is deleted. */
async function takeFile<Received extends HeldFile | StoredFile>(
  { bucket }: Parts,
  request: Request,
  { bytesMax, others }: FileRules,
  take: (chunks: AsyncIterable<Uint8Array>) => Promise<Received>,
): Promise<Received> {
  const announced = Number(request.headers.get("Content-Length") ?? 0);
  if (announced > bytesMax + (others?.bytesMax ?? ENVELOPE_BYTES)) throw tooLarge(bytesMax);
  let received: Received | null = null;
  try {
    const contentType = request.headers.get("Content-Type") ?? undefined;
    for await (const part of formParts(request.body, contentType, others?.limits)) {
      if (part.kind === "field" || part.name !== "file") {
        if (others) await others.listen(part);
        else if (part.kind === "file") part.skip();
        continue;
      }
      if (received) throw new Failure("invalid_request", "file: only one is taken");
      received = await take(part.chunks);
    }
    if (!received) throw new Failure("invalid_request", "file: required");
    return received;
  } catch (thrown) {
    if (received && "key" in received) await bucket.delete(received.key);
    throw thrown;
  }
}

/** What is predicted on. */
export interface PredictOptions extends FramesWish {
  /** The lowest confidence of a detection that is told. */
  confidenceMin: number;
  /** The form of masks; `none` when omitted. */
  mask?: MaskForm;
  /** The clip is wanted with its boxes drawn, too. */
  annotated?: boolean;
}

/** The task of a prediction. */
export const predictTask = (
  model: ModelRow,
  { key, bytes }: StoredFile,
  { confidenceMin, mask = "none", annotated = false, ...frames }: PredictOptions,
) =>
  ({
    kind: "predict" as const,
    workspaceId: model.workspaceId,
    subject: subjectOf(model.modelId),
    payload: {
      model: modelSource(model),
      video: source(key, bytes),
      ...framesOf(frames),
      confidence: confidenceMin,
      ...(mask === "none" ? {} : { mask }),
      ...(annotated ? { annotated: annotatedTarget(model.workspaceId) } : {}),
    },
  }) satisfies NewTask;

/** A node's words on what it cannot do with any such request are not about the node. */
export function asRefusal(
  thrown: unknown,
  codes: readonly ErrorCode[] = ["unsupported_media", "too_many_frames"],
): unknown {
  const own = codes.find((code) => thrown instanceof Failure && thrown.data.node_code === code);
  return own ? new Failure(own, (thrown as Failure).message, { cause: thrown }) : thrown;
}

type ClipKind = "predict" | "sam_video";

/** The task of a prediction on a clip, of which its record is made. */
export interface ClipRow<Kind extends ClipKind> extends Record<string, unknown> {
  taskId: string;
  state: Task["state"];
  payload: TaskPayload<Kind>;
  progress: Task["progress"];
  failure: string | null;
  result: TaskResult<Kind> | null;
  createdAt: string;
}

/** What the wire calls the states of a prediction's task. */
const WIRE_STATES: Readonly<Record<Task["state"], VideoPrediction["status"]>> = {
  queued: "queued",
  running: "running",
  finished: "completed",
  failed: "failed",
  cancelled: "failed",
  revoked: "failed",
};

/** A clip's task of the workspaces; fails with `not_found`, also for one that is over for a day. */
export async function findClip<Kind extends ClipKind>(
  { database }: Pick<Parts, "database">,
  kind: Kind,
  { workspaces, predictionId }: { workspaces: readonly string[]; predictionId: string },
): Promise<ClipRow<Kind>> {
  const { rows } = await database.execute<ClipRow<Kind>>(sql`
    SELECT id::text AS "taskId", state, payload, progress, errors->-1->>'detail' AS failure, result,
        ${wireTime(sql`created_at`)} AS "createdAt"
      FROM task WHERE id = ${predictionId}::uuid AND kind = ${kind}
       AND workspace_id IN ${idList(workspaces)}`);
  const [row] = rows;
  if (row && (row.state !== "finished" || row.result)) return row;
  throw new Failure("not_found", "no such prediction in your workspaces; they are kept for a day");
}

/** What the records of both kinds tell, and the result where it is there. */
export function clipRecord<Kind extends ClipKind>(row: ClipRow<Kind>) {
  const status = WIRE_STATES[row.state];
  const result = row.state === "finished" ? row.result : null;
  const head = {
    prediction_id: row.taskId,
    status,
    failure: status === "failed" ? (row.failure ?? `the prediction was ${row.state}`) : null,
  };
  const progress = {
    frames_done: result?.frames.length ?? row.progress?.done ?? null,
    frames_total: result?.frames.length ?? row.progress?.total ?? null,
    width: result?.width ?? null,
    height: result?.height ?? null,
  };
  const tail = { seconds: result?.seconds ?? null, created_at: row.createdAt };
  return { head, progress, tail, result };
}

/** A prediction on a video, of the workspaces; fails as `findClip` does. */
export async function findPrediction(
  parts: Pick<Parts, "database"> & SigningParts,
  workspaces: readonly string[],
  predictionId: string,
): Promise<VideoPrediction> {
  const row = await findClip(parts, "predict", { workspaces, predictionId });
  const { head, progress, tail, result } = clipRecord(row);
  const url = await annotatedUrl(parts, result?.annotated);
  return {
    ...head,
    model_id: row.payload.model.model_id,
    ...progress,
    frames:
      result?.frames.map(({ frame_index, time, predictions }) => ({
        frame_index,
        time,
        detections: predictions.map((one) => MaskedPrediction.parse(one)),
      })) ?? null,
    left_out: result?.left_out ?? null,
    ...(row.payload.mask ? { masks_left_out: result?.masks_left_out ?? null } : {}),
    ...(row.payload.annotated ? { annotated_video_url: url } : {}),
    ...tail,
  };
}

/** Kinds of task that work on files of requests. */
const KINDS = sql.raw(
  "('predict', 'sam', 'sam_video', 'comparison', 'workflow', 'workflow_video')",
);
/** Predictions are kept for a day. */
export const KEPT_PREDICTIONS = keep(task, "settledAt", {
  days: 1,
  where: sql`kind IN ${KINDS}`,
});
/** A file that no task uses is this old: its request has ended, however it did. */
const ORPHAN_MS = HOUR;
const ROUNDS = 60;

/**
 * The minute's duty: deletes files that no task will use, as after a crash between storing and
 * enqueueing. Looking into a workspace costs a listing, so each has its minute of the hour.
 */
export async function deleteUnusedFiles(parts: Parts): Promise<number> {
  const { database, bucket, clock } = parts;
  const round = Math.floor(clock() / MINUTE) % ROUNDS;
  const { rows } = await database.execute<{ id: string; keys: string[] }>(sql`
    SELECT w.id::text, coalesce((SELECT jsonb_agg(key) FROM task,
        jsonb_path_query(payload, 'lax $.**.key') AS key
        WHERE kind IN ${KINDS} AND workspace_id = w.id AND state IN ('queued', 'running')), '[]')
      || coalesce((SELECT jsonb_agg(result->'annotated'->'key') FROM task
        WHERE workspace_id = w.id AND ${HAS_ANNOTATED}), '[]') AS keys
      FROM workspace w WHERE abs(hashtext(w.id::text)::bigint) % ${ROUNDS}::int = ${round}::int`);
  let deleted = 0;
  for (const { id, keys } of rows) {
    for await (const page of pagesOf(bucket, folderOf(id))) {
      const orphans = page
        .filter(({ uploaded }) => uploaded.getTime() < clock() - ORPHAN_MS)
        .map(({ key }) => key)
        .filter((key) => !keys.includes(key));
      if (orphans.length > 0) await bucket.delete(orphans);
      deleted += orphans.length;
    }
  }
  return deleted;
}
