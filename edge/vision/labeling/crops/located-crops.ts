// Where the crops of boxes lie: the packs over their frames, the packs' entries, and their bytes by
// a few reads of ranges.

import { type SQL, sql } from "drizzle-orm";
import {
  type CropEntry,
  type CropOf,
  cropEntries,
  cropIndexBytes,
  cropKey,
} from "../../../../shared/crop-pack.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";

/** Packs that one request looks into: those made last. */
const PACKS_MAX = 256;
/** Reads of the store at once; a Worker has six connections. */
const READS_AT_ONCE = 6;
/** A pack of so many bytes is read whole, with its index. */
const WHOLE_BYTES_MAX = 64 * 1024;
/** Bytes between two crops that are read rather than skipped by another request. */
const GAP_BYTES_MAX = 64 * 1024;

/** A box whose crop is wanted. */
export interface WantedBox extends CropOf {
  videoId: string;
}

/** A pack that may have crops of wanted boxes. */
interface Pack {
  key: string;
  videoId: string;
  entries: number;
  bytes: number;
}

/** The boxes of a query, and the packs over their frames. */
interface BoxesWithPacks<Box> {
  boxes: Box[];
  packs: Pack[];
}

/** Names a box across the videos of a job. */
export const boxKey = ({ videoId, ...of }: WantedBox): string => `${videoId} ${cropKey(of)}`;

/** The columns of a box of an annotation `a`. */
export const BOX = sql`a.video_id AS "videoId", a.frame_index AS frame,
  json_build_array(a.x1, a.y1, a.x2, a.y2) AS bbox`;

/** The boxes of a query with the columns `BOX`, and the newest packs over their frames. */
export async function boxesWithPacks<Box extends WantedBox>(
  database: Database,
  jobId: string,
  boxes: SQL,
): Promise<BoxesWithPacks<Box>> {
  const { rows } = await database.execute<Record<string, unknown> & BoxesWithPacks<Box>>(sql`
    WITH b AS MATERIALIZED (${boxes})
    SELECT (SELECT coalesce(json_agg(b), '[]') FROM b) AS boxes,
      (SELECT coalesce(json_agg(json_build_object('key', key, 'videoId', video_id,
          'entries', entries, 'bytes', bytes) ORDER BY created_at DESC), '[]')
        FROM (SELECT * FROM crop_pack p WHERE p.job_id = ${jobId}::uuid
           AND p.frames && (SELECT array_agg(b.frame) FROM b WHERE b."videoId" = p.video_id)
         ORDER BY created_at DESC LIMIT ${PACKS_MAX}::int) p) AS packs`);
  return rows[0] ?? { boxes: [], packs: [] };
}

/** A crop in a pack; `bytes` where the pack was read whole. */
interface LocatedCrop extends Pick<CropEntry, "offset" | "length"> {
  /** The `boxKey` of its box. */
  name: string;
  /** The key of its pack. */
  key: string;
  bytes: Uint8Array | null;
}

/** Where the crops of boxes are, by `boxKey`; of several packs in the first. */
export async function locate(
  bucket: Parts["bucket"],
  packs: readonly Pack[],
  boxes: readonly WantedBox[],
): Promise<Map<string, LocatedCrop>> {
  const wanted = new Set(boxes.map(boxKey));
  const frames = new Set(boxes.map(({ frame }) => frame));
  const located = new Map<string, LocatedCrop>();
  const indexes = await eachOf(packs, (pack) => readIndex(bucket, pack, frames));
  for (const [position, { key, videoId }] of packs.entries()) {
    const { entries = [], bytes = null } = indexes[position] ?? {};
    for (const { offset, length, ...of } of entries) {
      const name = boxKey({ videoId, ...of });
      if (!wanted.has(name) || located.has(name)) continue;
      located.set(name, { name, key, offset, length, bytes });
    }
  }
  return located;
}

/** The entries of some frames in a pack; none where it is not in the store any more. */
async function readIndex(
  bucket: Parts["bucket"],
  { key, entries, bytes }: Pack,
  frames: ReadonlySet<number>,
) {
  const whole = bytes <= WHOLE_BYTES_MAX;
  const length = whole ? bytes : cropIndexBytes(entries);
  const read = await readRange(bucket, key, { offset: 0, length });
  const listed = read && cropEntries(read, bytes);
  if (!listed) return undefined;
  const own = listed.filter(({ frame }) => frames.has(frame));
  return { entries: own, bytes: whole ? read : null };
}

async function readRange(
  bucket: Parts["bucket"],
  key: string,
  range: { offset: number; length: number },
): Promise<Uint8Array | null> {
  const object = await bucket.get(key, { range });
  return object && new Uint8Array(await object.arrayBuffer());
}

/** The JPEGs of located crops, by `boxKey`; those that lie near each other come by one read. */
export async function readCrops(
  bucket: Parts["bucket"],
  located: readonly LocatedCrop[],
): Promise<Map<string, Uint8Array>> {
  const jpegs = new Map<string, Uint8Array>();
  const stretches: LocatedCrop[][] = [];
  for (const pack of Map.groupBy(located, ({ key }) => key).values()) {
    for (const crop of pack.toSorted((one, other) => one.offset - other.offset)) {
      const { bytes, offset, length } = crop;
      if (bytes) {
        jpegs.set(crop.name, bytes.subarray(offset, offset + length));
        continue;
      }
      const last = stretches.at(-1)?.at(-1);
      const isNear = last?.key === crop.key && offset - endOf(last) <= GAP_BYTES_MAX;
      if (isNear) stretches.at(-1)?.push(crop);
      else stretches.push([crop]);
    }
  }
  await eachOf(stretches, async (stretch) => {
    const [first, last] = [stretch[0], stretch.at(-1)];
    if (!first || !last) return;
    const { key, offset } = first;
    const bytes = await readRange(bucket, key, { offset, length: endOf(last) - offset });
    if (!bytes) return;
    for (const { name, offset: from, length } of stretch) {
      jpegs.set(name, bytes.subarray(from - offset, from - offset + length));
    }
  });
  return jpegs;
}

const endOf = ({ offset, length }: LocatedCrop) => offset + length;

/** Does the same for all, a few at once; the results keep their order. */
async function eachOf<Item, Result>(
  items: readonly Item[],
  work: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  let next = 0;
  const worker = async () => {
    for (let at = next++; at < items.length; at = next++) {
      const item = items[at];
      if (item !== undefined) results[at] = await work(item);
    }
  };
  await Promise.all(Array.from({ length: READS_AT_ONCE }, worker));
  return results;
}
