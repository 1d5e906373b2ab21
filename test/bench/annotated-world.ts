// A vision service with one job of very many annotations, stored just now, for benchmarks.

import { sql } from "drizzle-orm";
import { API } from "../../edge/vision/base/api.ts";
import type { TokenPair } from "../../shared/wire/vision.ts";
import { startVision } from "./vision-world.ts";

export const PER_FRAME = 10;
const VIDEOS = 10;
/** Rows of one statement of an import. */
const CHUNK = 10_000;

/** Starts it and stores so many; nothing analyzes the tables. `headers` are an administrator's. */
export async function startAnnotated(annotations: number) {
  const frames = annotations / PER_FRAME / VIDEOS;
  const world = await startVision();
  const { workers, database } = world;
  const base = workers.urls.vision + API;
  const json = { "Content-Type": "application/json" };
  const account = { email: "bench@example.com", password: "a password of the bench" };
  const registered = await fetch(`${base}/auth/register`, {
    method: "POST",
    headers: json,
    body: JSON.stringify({ ...account, display_name: "bench" }),
  });
  const { access_token: token } = (await registered.json()) as TokenPair;
  const headers = { ...json, Authorization: `Bearer ${token}` };
  const { rows: ids } = await database.execute<{ job: string; videos: string[] }>(sql`
    WITH w AS (SELECT id FROM workspace WHERE is_default),
    p AS (INSERT INTO project (id, workspace_id, name)
      SELECT gen_random_uuid(), id, 'bench' FROM w RETURNING id, workspace_id),
    v AS (INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, state, bytes,
        content_type, width, height, frame_count, time_base, pts_key)
      SELECT gen_random_uuid(), workspace_id, id, 'v.mp4', 'ws/x', 'upload', 'ready', 1, 'video/mp4',
        1920, 1080, ${frames}::int, '{1, 30}', 'pts' FROM p, generate_series(1, ${VIDEOS}::int)
        RETURNING id),
    j AS (INSERT INTO job (id, workspace_id, project_id, name, kind, state, threshold, settings,
        frames_total)
      SELECT gen_random_uuid(), workspace_id, id, 'bench', 'import', 'completed', 0.5,
        '{"passes": [[0]], "round": 1, "planned": 1, "segmenter": null}',
        ${frames * VIDEOS}::int FROM p RETURNING id)
    SELECT j.id::text AS job, (SELECT json_agg(v.id::text) FROM v) AS videos FROM j`);
  const { job = "", videos = [] } = ids[0] ?? {};
  const pts = Int32Array.from({ length: frames }, (_, index) => index);
  // The bucket of the runtime takes Node's bytes too, which its types do not cover.
  await (await workers.media()).put("pts", new Uint8Array(pts.buffer) as never);
  await database.execute(sql`
    WITH c AS (INSERT INTO job_class (job_id, number, name)
      SELECT ${job}::uuid, n, 'class ' || n FROM generate_series(0, 5) n)
    INSERT INTO job_video (job_id, video_id, position, frames)
    SELECT ${job}::uuid, v::uuid, position, (SELECT array_agg(n) FROM generate_series(0,
        ${frames - 1}::int) n)
      FROM jsonb_array_elements_text(${JSON.stringify(videos)}::jsonb) WITH ORDINALITY x(v, position)`);
  const began = performance.now();
  for (let from = 0; from < annotations; from += CHUNK) {
    // Class 5 is rare. Each fifth annotation repeats the one before it; a sixth is hidden.
    await database.execute(sql`
      INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number, x1, y1,
        x2, y2, confidence, source, track_id, duplicate_of, polygon)
      SELECT md5(n::text)::uuid, (SELECT id FROM workspace WHERE is_default), ${job}::uuid,
        (${JSON.stringify(videos)}::jsonb->>(n / ${PER_FRAME * frames}::int))::uuid,
        n / ${PER_FRAME}::int % ${frames}::int, CASE WHEN n % 20000 = 7 THEN 5 ELSE n % 5 END,
        10, 10, 50 + n % 100, 90, 0.4 + (n % 61) / 102.0, 'model',
        1 + n % ${PER_FRAME}::int + ${PER_FRAME}::int * (n / 2000),
        CASE WHEN n % 5 = 4 THEN md5((n - 1)::text)::uuid END, '[10, 10, 50, 10, 50, 90, 10, 90]'
        FROM generate_series(${from}::int, ${Math.min(from + CHUNK, annotations) - 1}::int) n`);
  }
  const seconds = (performance.now() - began) / 1_000;
  return { ...world, base, headers, job, videos, frames, seconds };
}
