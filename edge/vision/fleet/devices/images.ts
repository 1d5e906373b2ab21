// Images that devices send along, such as those of uncertain predictions: each becomes a video of
// one frame in the device's project, unless one that looks the same is there. What looks the same
// is told by a difference hash that the edge-inference service makes; where there is none, and for
// images that it does not read, only what is the same to the byte is.

import type { AbortSignal as AbortSignalOfWorkers } from "@cloudflare/workers-types";
import { sql } from "drizzle-orm";
import { z } from "zod";
import { Failure } from "../../../../shared/errors.ts";
import { joined } from "../../../../shared/tasks/line.ts";
import { DAY } from "../../../../shared/time.ts";
import { EDGE_HASH_PATH } from "../../../../shared/wire/edge-inference.ts";
import { DEVICE_IMAGE_BYTES_MAX, type DeviceImage } from "../../../../shared/wire/fleet.ts";
import { batch } from "../../../http/database.ts";
import { toHex } from "../../auth/digest.ts";
import type { Parts } from "../../base/parts.ts";
import { instant } from "../../base/sql.ts";
import { addImage } from "../../media/uploads/images.ts";
import { IMAGE } from "../../media/uploads/media-types.ts";
import { checkQuota, lockRoom } from "../../media/videos/videos.ts";
import { withHeldFile } from "../../serving/predict/predictions.ts";
import type { DeviceIdentity } from "./access.ts";

/** Images look the same whose hashes differ in at most so many of 64 bits. */
const BITS_MAX = 6;
/** Images of a project that a new one is held against, the newest. */
const COMPARED_MAX = 10_000;
const HASH_MS = 5_000;
/** Images of a device that are stored within a day: an agent sends one in 300 seconds. */
export const DEVICE_IMAGES_DAILY_MAX = 300;

/** Which line of a device's log an image is of. */
export interface ImageLine {
  bootId: string;
  seq: number;
}

/** Whose an image is, and in which project it lands. */
interface ImageOwner {
  workspaceId: string;
  deviceId: string;
  projectId: string;
}

const Hash = z.object({ hash: z.string().regex(/^[0-9a-f]{16}$/) });

/**
 * What an image looks like; null where nobody here can tell. Fails with `overloaded` where who can
 * tell has no room for it now.
 */
export async function hashOf(
  { hasher, log }: Pick<Parts, "hasher" | "log">,
  file: Uint8Array<ArrayBuffer>,
): Promise<string | null> {
  if (!hasher) return null;
  try {
    // Types of Node, which tests are checked by, know another signal.
    const signal = AbortSignal.timeout(HASH_MS) as unknown as AbortSignalOfWorkers;
    const init = { method: "POST", body: file, signal };
    const response = await hasher.fetch(`https://infer${EDGE_HASH_PATH}`, init);
    const text = await response.text();
    if (response.status === 200) return Hash.parse(JSON.parse(text)).hash;
    // An image without a hash would be like none for good: the device comes again instead.
    if (response.status === 429) {
      throw new Failure("overloaded", "what compares images has as much as it takes", {
        data: { retry_after_seconds: 1 },
      });
    }
    log.info("image_not_hashed", { status: response.status });
  } catch (error) {
    if (error instanceof Failure) throw error;
    log.warning("image_not_hashed", { error });
  }
  return null;
}

async function projectOf({ database }: Parts, { deviceId }: DeviceIdentity): Promise<string> {
  const { rows } = await database.execute<{ projectId: string | null }>(
    sql`SELECT project_id::text AS "projectId" FROM device WHERE id = ${deviceId}::uuid`,
  );
  const projectId = rows[0]?.projectId;
  if (projectId) return projectId;
  const detail = "the device has no project to send images to: somebody sets its project_id first";
  throw new Failure("state_conflict", detail);
}

/** What is known of an image before it lands. */
interface Claim extends Record<string, unknown> {
  /** The video of the same line, or that of a landed image that looks the same; else null. */
  own: string | null;
  landed: boolean | null;
  alike: string | null;
  /** Whether the device has none left of the images that it may have stored within a day. */
  isSpent: boolean;
}

/**
 * Takes the image of a request's form. The same line again is the same video, also where the first
 * try broke off in the middle; until it landed, and once its video was deleted, it is no image that
 * others look the same as. Fails with `state_conflict` where the device has no project, with
 * `overloaded` where it cannot be compared now, with `quota_exceeded` where so many of the device's
 * were stored today, and as uploads do.
 */
export async function takeImage(
  parts: Parts,
  device: DeviceIdentity,
  line: ImageLine,
  request: Request,
): Promise<DeviceImage> {
  const { workspaceId, deviceId } = device;
  const projectId = await projectOf(parts, device);
  const bytesMax = Math.min(DEVICE_IMAGE_BYTES_MAX, parts.limits.uploadBytesMax);
  const rules = { workspaceId, kind: IMAGE, bytesMax };
  const owner = { workspaceId, deviceId, projectId };
  return withHeldFile(parts, request, rules, ({ pieces }) =>
    landImage(parts, owner, line, Uint8Array.from(joined(pieces))),
  );
}

/** Stores an image, unless one that looks the same is there. */
async function landImage(
  parts: Parts,
  { workspaceId, deviceId, projectId }: ImageOwner,
  { bootId, seq }: ImageLine,
  file: Uint8Array<ArrayBuffer>,
): Promise<DeviceImage> {
  await checkQuota(parts, workspaceId, file.length);
  const hash = await hashOf(parts, file);
  const sha256 = toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", file)));
  const videoId = crypto.randomUUID();
  const line = sql`device_id = ${deviceId}::uuid AND boot_id = ${bootId} AND seq = ${seq}::bigint`;
  const bits = hash === null ? sql`NULL::bit(64)` : sql`${`x${hash}`}::bit(64)`;
  const now = parts.clock();
  const isThere = sql`EXISTS (SELECT FROM video v WHERE v.id = i.video_id)`;
  const [, , [claim]] = await batch<[unknown, unknown, Claim]>(parts.database, [
    lockRoom(workspaceId),
    sql`DELETE FROM device_image i WHERE ${line} AND landed AND NOT ${isThere}`,
    sql`
      WITH own AS (SELECT video_id, landed FROM device_image WHERE ${line}),
      alike AS (
        SELECT video_id FROM (SELECT * FROM device_image WHERE project_id = ${projectId}::uuid
            AND landed ORDER BY created_at DESC LIMIT ${COMPARED_MAX}::int) i
         WHERE (i.sha256 = decode(${sha256}, 'hex')
             OR bit_count(i.hash # ${bits}) <= ${BITS_MAX}::int) AND ${isThere}
         ORDER BY created_at DESC LIMIT 1),
      budget AS (
        SELECT count(*) >= ${DEVICE_IMAGES_DAILY_MAX}::int AS is_spent FROM device_image
         WHERE device_id = ${deviceId}::uuid AND created_at > ${instant(now - DAY)}),
      made AS (
        INSERT INTO device_image (id, workspace_id, device_id, project_id, video_id, boot_id, seq,
          hash, sha256, created_at)
        SELECT gen_random_uuid(), ${workspaceId}::uuid, ${deviceId}::uuid, ${projectId}::uuid,
          ${videoId}::uuid, ${bootId}, ${seq}::bigint, ${bits}, decode(${sha256}, 'hex'),
          ${instant(now)} FROM budget
         WHERE NOT is_spent AND NOT EXISTS (SELECT FROM own) AND NOT EXISTS (SELECT FROM alike))
      SELECT (SELECT video_id::text FROM own) AS own, (SELECT landed FROM own) AS landed,
        (SELECT video_id::text FROM alike) AS alike, is_spent AS "isSpent" FROM budget`,
  ]);
  if (claim?.own && claim.landed) return { video_id: claim.own, duplicate: false };
  if (!claim?.own && claim?.alike) return { video_id: claim.alike, duplicate: true };
  if (!claim?.own && claim?.isSpent) {
    const detail = `${DEVICE_IMAGES_DAILY_MAX} images of the device were stored within a day`;
    throw new Failure("quota_exceeded", detail, { data: { images_max: DEVICE_IMAGES_DAILY_MAX } });
  }
  const landing = { workspaceId, projectId, videoId: claim?.own ?? videoId };
  const filename = `device-${deviceId}-${bootId}-${seq}`;
  await addImage(parts, { ...landing, filename, createdBy: null }, file);
  await parts.database.execute(sql`UPDATE device_image SET landed = true WHERE ${line}`);
  return { video_id: landing.videoId, duplicate: false };
}
