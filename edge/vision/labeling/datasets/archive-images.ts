// The images of an import's archive on their way into the project: some hundred in one turn, each
// of which becomes a still, is found to be one that the project has, or is named as failed. A turn
// that is broken off is done again: an image keeps the id of its video, so none is stored twice.

import { sql } from "drizzle-orm";
import { assert, Failure } from "../../../../shared/errors.ts";
import { iso } from "../../../../shared/time.ts";
import { isSilent } from "../../../http/database.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Parts } from "../../base/parts.ts";
import { relativeName } from "../../media/uploads/form.ts";
import { IMAGE, IMAGE_BYTES_MAX } from "../../media/uploads/media-types.ts";
import { tooLarge } from "../../media/uploads/object-writer.ts";
import { addVideos, findVideos, type NewVideo, objectKeys } from "../../media/videos/videos.ts";
import { type ArchiveImage, readImages } from "./archive.ts";
import { type ImportRow, type NamedStill, stillsNamed } from "./image-imports.ts";

/**
 * Images of one turn: with what is read of the archive, within the requests to the store that an
 * invocation of a Worker may make.
 */
export const TURN_IMAGES_MAX = 800;
/** Images and bytes that one statement makes videos of; they are in memory at once. */
const SLICE_IMAGES_MAX = 50;
const SLICE_BYTES_MAX = 16 * 1024 * 1024;
/** How long a process has an import to itself after it last got on. */
export const LEASE_MS = 120_000;

interface PendingImage extends Record<string, unknown> {
  position: number;
  name: string;
  videoId: string;
}

/** What became of an image; `failed` says why. */
interface Outcome {
  position: number;
  state: "stored" | "existing" | "failed";
  videoId: string;
  code: string | null;
  detail: string | null;
}

/** Images that are on their way into the store, and those that are not taken. */
interface Slice {
  bytes: number;
  writes: Promise<unknown>[];
  videos: NewVideo[];
  outcomes: Outcome[];
}

const emptySlice = (): Slice => ({ bytes: 0, writes: [], videos: [], outcomes: [] });

/** What a turn did. */
interface Turn {
  /** Images that it took, whatever became of each. */
  taken: number;
  /** There are no more. */
  isLast: boolean;
}

/**
 * Stores images of an import that are pending, until an instant (epoch milliseconds). Fails with
 * `quota_exceeded`, and with `not_found` when the project is gone.
 */
export async function storeImages(parts: Parts, row: ImportRow, until: number): Promise<Turn> {
  const pending = await pendingImages(parts, row);
  if (pending.length === 0) return { taken: 0, isLast: true };
  const byName = new Map(pending.map((image) => [image.name, image]));
  const paths = pending.map(({ name }) => relativeName(name));
  const stills = await stillsNamed(parts.database, row.projectId, paths);
  const known = Map.groupBy(stills, ({ filename }) => filename);
  const archive = { key: row.storageKey, bytes: row.bytes };
  let slice = emptySlice();
  const flush = async () => {
    const full = slice;
    slice = emptySlice();
    await keepSlice(parts, row, full);
  };
  await readImages(parts.bucket, archive, new Set(byName.keys()), async (image, chunks) => {
    const named = byName.get(image.name);
    if (!named) return true;
    byName.delete(image.name);
    if (slice.bytes > 0 && slice.bytes + image.bytes > SLICE_BYTES_MAX) await flush();
    await takeImage(parts, row, { image, chunks, named, known, slice });
    const isFull = slice.outcomes.length >= SLICE_IMAGES_MAX || slice.bytes >= SLICE_BYTES_MAX;
    if (isFull) await flush();
    return parts.clock() < until;
  });
  await flush();
  assert(byName.size < pending.length, "an import's archive holds the images that it began with");
  const taken = pending.length - byName.size;
  return { taken, isLast: byName.size === 0 && pending.length < TURN_IMAGES_MAX };
}

async function pendingImages({ database }: Parts, { id }: ImportRow): Promise<PendingImage[]> {
  const { rows } = await database.execute<PendingImage>(sql`
    SELECT position, name, video_id AS "videoId" FROM dataset_import_image
     WHERE import_id = ${id}::uuid AND state = 'pending'
     ORDER BY position LIMIT ${TURN_IMAGES_MAX}::int`);
  return rows;
}

interface TakenImage {
  image: ArchiveImage;
  chunks: AsyncIterable<Uint8Array>;
  named: PendingImage;
  /** The project's stills of the images' paths. */
  known: ReadonlyMap<string, readonly NamedStill[]>;
  slice: Slice;
}

/** Begins to store an image, unless the project has it or it is none that is taken. */
async function takeImage(
  parts: Parts,
  row: ImportRow,
  { image, chunks, named: { position, videoId }, known, slice }: TakenImage,
): Promise<void> {
  const filename = relativeName(image.name);
  try {
    const file = await wholeImage(image, chunks);
    const contentType = IMAGE.typeOf(file.subarray(0, IMAGE.headBytes));
    const others = (known.get(filename) ?? []).filter(({ id }) => id !== videoId);
    const same = await sameStill(parts, others, file);
    if (same) {
      slice.outcomes.push(outcome({ position, state: "existing", videoId: same.id }));
      return;
    }
    if (others.length > 0) {
      const detail = "the project has another image of this path";
      throw new Failure("state_conflict", detail);
    }
    const storageKey = objectKeys(row.workspaceId, videoId).source;
    const write = parts.bucket.put(storageKey, file, { httpMetadata: { contentType } });
    // A failure is that of the slice, which waits for all of its writes.
    write.catch(() => {});
    slice.writes.push(write);
    slice.bytes += file.length;
    slice.outcomes.push(outcome({ position, state: "stored", videoId }));
    const { workspaceId, projectId, createdBy } = row;
    const origin = { workspaceId, projectId, createdBy, source: IMAGE.source };
    slice.videos.push({
      ...origin,
      videoId,
      filename,
      storageKey,
      contentType,
      bytes: file.length,
    });
  } catch (thrown) {
    if (!(thrown instanceof Failure) || thrown.status >= 500) throw thrown;
    const { code, message: detail } = thrown;
    slice.outcomes.push({ position, state: "failed", videoId, code, detail });
  }
}

const outcome = (one: Pick<Outcome, "position" | "state" | "videoId">): Outcome => ({
  ...one,
  code: null,
  detail: null,
});

/** The bytes of an image; fails for one that is too large or of other bytes than were announced. */
async function wholeImage(
  { bytes }: ArchiveImage,
  chunks: AsyncIterable<Uint8Array>,
): Promise<Uint8Array<ArrayBuffer>> {
  if (bytes > IMAGE_BYTES_MAX) throw tooLarge(IMAGE_BYTES_MAX);
  const file = new Uint8Array(bytes);
  let filled = 0;
  for await (const chunk of chunks) {
    if (filled + chunk.length > bytes) break;
    file.set(chunk, filled);
    filled += chunk.length;
  }
  if (filled === bytes && bytes > 0) return file;
  throw new Failure("unsupported_media", "the archive holds other bytes than it announces");
}

/** The still among these that has the same bytes, or null. */
async function sameStill(
  { bucket }: Parts,
  stills: readonly NamedStill[],
  file: Uint8Array,
): Promise<NamedStill | null> {
  for (const still of stills) {
    if (still.bytes !== file.length) continue;
    const object = await bucket.get(still.storageKey);
    // The platform's type of streams does not say that they are iterable.
    if (object && (await isSame(object.body as unknown as AsyncIterable<Uint8Array>, file))) {
      return still;
    }
  }
  return null;
}

async function isSame(chunks: AsyncIterable<Uint8Array>, file: Uint8Array): Promise<boolean> {
  let from = 0;
  for await (const chunk of chunks) {
    if (Buffer.compare(chunk, file.subarray(from, from + chunk.length)) !== 0) return false;
    from += chunk.length;
  }
  return from === file.length;
}

/** Makes the videos of a slice and remembers its images' outcomes, in one transaction. */
async function keepSlice(parts: Parts, row: ImportRow, slice: Slice): Promise<void> {
  if (slice.outcomes.length === 0) return;
  const { writes, videos, outcomes } = slice;
  await Promise.all(writes);
  const lease = iso(parts.clock() + LEASE_MS);
  const after = sql`
    WITH going AS (
      UPDATE dataset_import SET attempts = 0, leased_until = ${lease}::timestamptz
       WHERE id = ${row.id}::uuid AND state = 'running')
    UPDATE dataset_import_image i SET state = o.state, video_id = o."videoId",
      failure_code = o.code, failure = o.detail
      FROM jsonb_to_recordset(${jsonb(outcomes)}) AS o(position int, state text, "videoId" uuid,
        code text, detail text)
     WHERE i.import_id = ${row.id}::uuid AND i.position = o.position AND i.state = 'pending'
       AND (o.state <> 'stored' OR EXISTS (SELECT FROM video WHERE id = o."videoId"))`;
  if (videos.length === 0) {
    await parts.database.execute(after);
    return;
  }
  try {
    await addVideos(parts, videos, after);
  } catch (thrown) {
    // Videos that may have been recorded keep their bytes.
    if (!isSilent(thrown)) await discard(parts, row, videos);
    throw thrown;
  }
}

/** Deletes the objects of images that did not become videos. */
async function discard(parts: Parts, { workspaceId }: ImportRow, videos: readonly NewVideo[]) {
  const ids = videos.map(({ videoId }) => videoId);
  const made = await findVideos(parts.database, [workspaceId], ids);
  const kept = new Set(made.map(({ videoId }) => videoId));
  const gone = videos.filter(({ videoId }) => !kept.has(videoId));
  await parts.bucket.delete(gone.map(({ storageKey }) => storageKey));
}
