// What a run asked for outside of it, performed once it has ended well. Webhooks are written to the
// outbox, from which they are sent; images become videos of one frame in a project. Each is done
// once for its run, step and element, however often it is asked for.

import { sql } from "drizzle-orm";
import { base64url } from "jose";
import { Failure } from "../../../shared/errors.ts";
import { imageHeader } from "../../../shared/image-header.ts";
import type { Effect } from "../../../shared/workflow/block.ts";
import { DatasetUploadEffect, WebhookEffect } from "../../../shared/workflow/blocks/sinks.ts";
import { storable } from "../../http/storable.ts";
import type { Parts } from "../base/parts.ts";
import { textList } from "../base/sql.ts";
import { addImage } from "../media/uploads/images.ts";
import { IMAGE } from "../media/uploads/media-types.ts";
import { checkQuota, findVideos } from "../media/videos/videos.ts";
import { type EffectSource, enqueueDeliveries, type NewDelivery } from "./deliveries.ts";
import { overtaken, type StreamSave, savingStream } from "./runs/streams.ts";

/** Bytes of a webhook's body, its image as base64 in it. */
const BODY_BYTES_MAX = 1024 * 1024;

/** An effect as the Worker knows it. */
export interface EffectOfRun extends Pick<Effect, "kind" | "request"> {
  step: string;
  /** Index of the element at each level. */
  element: readonly number[];
  /** The file of the image that goes with it. */
  image: Uint8Array<ArrayBuffer> | null;
}

/** What became of an effect. */
export interface EffectOutcome {
  step: string;
  element: number[];
  kind: Effect["kind"];
  /** `queued`: in the outbox; `stored`: its video is there; `refused`: the detail says why. */
  status: "queued" | "stored" | "refused";
  detail: string | null;
}

/**
 * Performs effects of a run that ended well, in their order; none of them fails the others. What
 * its steps remember of a stream is saved together with its messages: a limiter never takes for
 * sent what was not written down. Fails with `revision_conflict` where another run of the stream
 * came before, and then does nothing.
 */
export async function performEffects(
  parts: Parts,
  source: EffectSource,
  effects: readonly EffectOfRun[],
  save: StreamSave | null = null,
): Promise<EffectOutcome[]> {
  const deliveries = effects.map((effect) =>
    effect.kind === "webhook" ? deliveryOf(effect) : null,
  );
  const queued = await enqueueDeliveries(parts, source, {
    deliveries: deliveries.filter((one) => one !== null && typeof one !== "string"),
    saving: save && savingStream(save, parts.clock()),
  });
  if (!queued) throw save ? overtaken(save) : new Error("messages were not written");
  const outcomes: EffectOutcome[] = [];
  for (const [index, effect] of effects.entries()) {
    const { step, element, kind } = effect;
    const delivery = deliveries[index];
    const became =
      delivery == null
        ? await uploadOf(parts, source, effect)
        : typeof delivery === "string"
          ? refused(delivery)
          : queued.has(delivery)
            ? { status: "queued" as const, detail: null }
            : refused("as many messages of the workspace wait as may");
    outcomes.push({ step, element: [...element], kind, ...became });
  }
  return outcomes;
}

type Outcome = Pick<EffectOutcome, "status" | "detail">;

const refused = (detail: string): Outcome => ({ status: "refused", detail });

/** The message of a webhook; or why there is none. */
function deliveryOf({ step, element, request, image }: EffectOfRun): NewDelivery | string {
  const parsed = WebhookEffect.safeParse(request);
  if (!parsed.success) return "the sink's request is not one of a webhook";
  const { payload, ...target } = parsed.data;
  const tooLong = (bytes: number) => `its body has ${bytes} bytes, and may have ${BODY_BYTES_MAX}`;
  // Before it is longer by a third, in memory that all requests share.
  if (image && image.length > BODY_BYTES_MAX) return tooLong(image.length);
  const address = image && dataAddress(image);
  if (image && !address) return "its image is no JPEG, PNG or WebP";
  const body = JSON.stringify(image ? { payload, image: address } : payload);
  const bytes = new TextEncoder().encode(body).length;
  return bytes > BODY_BYTES_MAX ? tooLong(bytes) : { step, element, target, body };
}

/** A file as a data address; null where it is no image. */
function dataAddress(file: Uint8Array): string | null {
  const header = imageHeader(file.subarray(0, IMAGE.headBytes));
  if (!header) return null;
  // Whole groups of three bytes, so that the parts' base64 joins.
  const pieces: string[] = [];
  for (let start = 0; start < file.length; start += 3 * 8_192) {
    pieces.push(btoa(String.fromCharCode(...file.subarray(start, start + 3 * 8_192))));
  }
  return `data:${header.type};base64,${pieces.join("")}`;
}

/** Stores an image of a run in a project, once: the same bytes are the same video. */
async function uploadOf(
  parts: Parts,
  { workspaceId, runId, actorId }: EffectSource,
  { request, image, step, element }: EffectOfRun,
): Promise<Outcome> {
  const parsed = DatasetUploadEffect.safeParse(request);
  if (!parsed.success || !image) return refused("the sink's request is not one of an image");
  const { project, tags } = parsed.data;
  try {
    await checkProject(parts, { workspaceId, project });
    const videoId = await videoIdOf(project, image);
    const [known] = await findVideos(parts.database, [workspaceId], [videoId]);
    if (!known) {
      await checkQuota(parts, workspaceId, image.length);
      const filename = storable([...tags, "workflow", runId, step, ...element].join("-"));
      const video = { workspaceId, projectId: project, videoId, filename, createdBy: actorId };
      await addImage(parts, video, image);
    }
    return { status: "stored", detail: `the image alone is the video ${videoId}` };
  } catch (thrown) {
    if (thrown instanceof Failure) return refused(thrown.message);
    // Webhooks of the run are on their way by now: a run that failed here would be asked for again.
    parts.log.error("workflow_upload", { run_id: runId, step, error: thrown });
    return refused("it could not be stored");
  }
}

async function checkProject(
  { database }: Parts,
  { workspaceId, project }: Record<"workspaceId" | "project", string>,
): Promise<void> {
  const { rows } = await database.execute(sql`
    SELECT FROM project
     WHERE id::text IN ${textList([project])} AND workspace_id = ${workspaceId}::uuid`);
  if (rows.length === 0) throw new Failure("not_found", "no such project in the workspace");
}

/** The id of the video that a project has of a file, by the file's bytes. */
async function videoIdOf(project: string, file: Uint8Array<ArrayBuffer>): Promise<string> {
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", file));
  const named = new TextEncoder().encode(`${project} ${base64url.encode(sum)}`);
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", named));
  // A UUID of version 8, of bits as its maker likes.
  const hex = [...hash.subarray(0, 16)].map((byte, index) =>
    (index === 6 ? (byte & 0x0f) | 0x80 : index === 8 ? (byte & 0x3f) | 0x80 : byte)
      .toString(16)
      .padStart(2, "0"),
  );
  return hex.join("").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
