// Tags of frames: words that people put on a frame of a video, whichever jobs label it. Tags that
// differ only in case are one tag. Its spelling is the one of the first frame that got it in the
// workspace, as long as a frame has it.

import { z } from "@hono/zod-openapi";
import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { ProjectTagPage } from "../../../../shared/wire/frame-search.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { batch, type Database } from "../../../http/database.ts";
import { jsonb } from "../../../http/storable.ts";
import { name } from "../../../http/texts.ts";
import type { Page } from "../../base/api.ts";
import { foldedName } from "../../base/lists.ts";
import { breaksReference, idList, textList } from "../../base/sql.ts";

const CHARACTERS_MAX = 64;
/** A letter with its marks composes of so many characters at most in what people write. */
const DECOMPOSED_MAX = 4 * CHARACTERS_MAX;
/** Tags that a frame has, and that one request adds, removes or filters by. */
export const FRAME_TAGS_MAX = 50;

/** Control characters, line separators, and the comma, which separates tags in queries. */
const REFUSED = /[\p{Cc}\p{Zl}\p{Zp},]/u;
const CONTROLS = "\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029";
const PATTERN = `^[^${CONTROLS},]*[^\\s${CONTROLS},][^${CONTROLS},]*$`;

/** A tag as a request gives it: without blanks around it, its letters composed (NFC). */
const Tag = z
  .string()
  .trim()
  // Composing takes the square of a text's length where it is made for that.
  .max(DECOMPOSED_MAX, { abort: true, error: `must have at most ${CHARACTERS_MAX} characters` })
  .normalize("NFC")
  .pipe(
    name()
      .max(CHARACTERS_MAX)
      .refine((given) => !REFUSED.test(given), "must hold no comma and no control character"),
  )
  .meta({ minLength: 1, maxLength: CHARACTERS_MAX, pattern: PATTERN });

/** Tags in a body. */
export const Tags = z.array(Tag).max(FRAME_TAGS_MAX);

/** Tags in a query. */
export const TagList = name()
  .max(FRAME_TAGS_MAX * DECOMPOSED_MAX)
  .meta({ description: "only frames that have this tag, or all of several with commas between" });

/** Keys of the tags of a filter, which a query gives as one text; undefined where it has none. */
export function tagKeys(given: string | readonly string[] | undefined): string[] | undefined {
  if (given === undefined) return undefined;
  const { data, error } = Tags.safeParse(typeof given === "string" ? given.split(",") : given);
  if (data) return [...new Set(data.map(foldedName))];
  throw new Failure("invalid_request", `tag: ${error.issues[0]?.message}`);
}

/** Frames of a workspace that have all tags of these keys: rows of `video_id`, `frame_index`. */
export const framesTagged = (workspaceId: string, keys: readonly string[]): SQL => sql`
  SELECT video_id, frame_index FROM frame_tag
   WHERE workspace_id = ${workspaceId}::uuid AND key IN ${textList(keys)}
   GROUP BY video_id, frame_index HAVING count(*) = ${keys.length}::int`;

/** The tags of a frame in the order of their letters, as a JSON list, for a SELECT. */
export const tagsOf = (videoId: SQL, frame: SQL): SQL => sql`(
  SELECT coalesce(json_agg(t.tag ORDER BY t.key), '[]') FROM frame_tag t
   WHERE t.video_id = ${videoId} AND t.frame_index = ${frame})`;

/** A frame of a workspace. */
export interface TaggedFrame {
  workspaceId: string;
  videoId: string;
  index: number;
}

/**
 * Adds tags to frames and removes others; returns the number of frames that changed. Fails with
 * `invalid_request`, and changes nothing, where a frame would have too many tags, and with
 * `not_found` where a video was deleted meanwhile.
 */
export async function changeTags(
  database: Database,
  frames: readonly TaggedFrame[],
  { add, remove, actorId }: { add: readonly string[]; remove: readonly string[]; actorId: string },
): Promise<number> {
  const added = new Map(add.toReversed().map((tag) => [foldedName(tag), tag]));
  const given = [...added].map(([key, tag]) => ({ key, tag }));
  const removed = textList(remove.map(foldedName));
  const workspaces = [...new Set(frames.map(({ workspaceId }) => workspaceId))];
  // Requests that tag frames of a workspace take turns: each sees the spelling of the one before.
  const lock = sql`SELECT FROM workspace WHERE id IN ${idList(workspaces)}
    ORDER BY id FOR NO KEY UPDATE`;
  const statement = sql`
    WITH f AS MATERIALIZED (
      SELECT DISTINCT "workspaceId" AS workspace_id, "videoId" AS video_id, index AS frame
        FROM jsonb_to_recordset(${jsonb(frames)})
          g("workspaceId" uuid, "videoId" uuid, index int)
    ), given AS MATERIALIZED (
      SELECT key, tag FROM jsonb_to_recordset(${jsonb(given)}) g(key text, tag text)
    ), spelled AS MATERIALIZED (
      SELECT w.workspace_id, g.key, coalesce((
          SELECT t.tag FROM frame_tag t WHERE t.workspace_id = w.workspace_id AND t.key = g.key
           LIMIT 1), g.tag) AS tag
        FROM (SELECT DISTINCT workspace_id FROM f) w, given g
    ), crowded AS MATERIALIZED (
      SELECT f.video_id, f.frame FROM f WHERE EXISTS (SELECT FROM given) AND (
          SELECT count(*) FROM (
            SELECT t.key FROM frame_tag t WHERE t.video_id = f.video_id
               AND t.frame_index = f.frame AND t.key NOT IN ${removed}
            UNION SELECT key FROM given) k) > ${FRAME_TAGS_MAX}::int
       ORDER BY f.video_id, f.frame LIMIT 1
    ), added AS (
      INSERT INTO frame_tag (workspace_id, video_id, frame_index, key, tag, created_by)
      SELECT f.workspace_id, f.video_id, f.frame, s.key, s.tag, ${actorId}::uuid
        FROM f JOIN spelled s ON s.workspace_id = f.workspace_id
       WHERE NOT EXISTS (SELECT FROM crowded)
      ON CONFLICT DO NOTHING RETURNING video_id, frame_index
    ), removed AS (
      DELETE FROM frame_tag t USING f WHERE t.video_id = f.video_id AND t.frame_index = f.frame
         AND t.key IN ${removed} AND NOT EXISTS (SELECT FROM crowded)
      RETURNING t.video_id, t.frame_index)
    SELECT (SELECT count(*)::int FROM (SELECT * FROM added UNION SELECT * FROM removed) c)
        AS changed,
      (SELECT video_id::text FROM crowded) AS video_id, (SELECT frame FROM crowded) AS frame`;
  type Row = { changed: number; video_id: string | null; frame: number | null };
  const [, rows] = await batch<[unknown, Row]>(database, [lock, statement]).catch(refuseDeleted);
  const { changed = 0, video_id = null, frame = null } = rows[0] ?? {};
  if (video_id === null || frame === null) return changed;
  const id = frameId(video_id, frame);
  const detail = `frame ${id} would have more than ${FRAME_TAGS_MAX} tags; remove some first`;
  throw new Failure("invalid_request", `add: ${detail}`);
}

function refuseDeleted(thrown: unknown): never {
  if (!breaksReference(thrown)) throw thrown;
  throw new Failure("not_found", "a video was deleted meanwhile", { cause: thrown });
}

/** A page of the tags of a project's frames in the order of their letters. */
export async function listTags(
  database: Database,
  { projectId, workspaceId }: { projectId: string; workspaceId: string },
  { offset, limit }: Page,
): Promise<ProjectTagPage> {
  const { rows } = await database.execute<Pick<ProjectTagPage, "items" | "total">>(sql`
    WITH tags AS MATERIALIZED (
      SELECT t.key, min(t.tag) AS tag, count(*)::int AS frames
        FROM frame_tag t JOIN video v ON v.id = t.video_id
       WHERE t.workspace_id = ${workspaceId}::uuid AND v.project_id = ${projectId}::uuid
       GROUP BY t.key)
    SELECT (SELECT count(*)::int FROM tags) AS total, (
      SELECT coalesce(json_agg(json_build_object('tag', tag, 'frames', frames) ORDER BY key), '[]')
        FROM (SELECT * FROM tags ORDER BY key LIMIT ${limit}::int OFFSET ${offset}::int) p) AS items`);
  const { items = [], total = 0 } = rows[0] ?? {};
  return { items, total, offset, limit };
}
