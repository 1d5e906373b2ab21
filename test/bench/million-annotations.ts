// What reading and reviewing cost in a job of a million annotations, in workerd, right after they
// were stored: numbers, pages by each filter and order, frames, edits of all and their undoing. A
// read is to take 300 ms of database time at most. Run: npm run bench -- million-annotations

import { cpus } from "node:os";
import { sql } from "drizzle-orm";
import { API } from "../../edge/vision/base/api.ts";
import type { TokenPair } from "../../shared/vision.ts";
import { startVision } from "./vision-world.ts";

const ANNOTATIONS = Number(process.env.ANNOTATIONS ?? 1_000_000);
const PER_FRAME = 10;
const ROUNDS = 10;

const { workers, database, stop } = await startVision();
const print = (line: string) => process.stdout.write(`${line}\n`);
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

const VIDEOS = 10;
const FRAMES = ANNOTATIONS / PER_FRAME / VIDEOS;
/** Rows of one statement of an import. */
const CHUNK = 10_000;
const { rows: ids } = await database.execute<{ job: string; videos: string[] }>(sql`
  WITH w AS (SELECT id FROM workspace WHERE is_default),
  p AS (INSERT INTO project (id, workspace_id, name)
    SELECT gen_random_uuid(), id, 'bench' FROM w RETURNING id, workspace_id),
  v AS (INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, state, bytes,
      content_type, width, height, frame_count, time_base, pts_key)
    SELECT gen_random_uuid(), workspace_id, id, 'v.mp4', 'ws/x', 'upload', 'ready', 1, 'video/mp4',
      1920, 1080, ${FRAMES}::int, '{1, 30}', 'pts' FROM p, generate_series(1, ${VIDEOS}::int)
      RETURNING id),
  j AS (INSERT INTO job (id, workspace_id, project_id, name, kind, state, threshold, settings,
      frames_total)
    SELECT gen_random_uuid(), workspace_id, id, 'bench', 'import', 'completed', 0.5,
      '{"passes": [[0]], "round": 1, "planned": 1, "segmenter": null}',
      ${FRAMES * VIDEOS}::int FROM p RETURNING id)
  SELECT j.id::text AS job, (SELECT json_agg(v.id::text) FROM v) AS videos FROM j`);
const { job = "", videos = [] } = ids[0] ?? {};
const [video = ""] = videos;
const pts = Int32Array.from({ length: FRAMES }, (_, index) => index);
// The bucket of the runtime takes Node's bytes too, which its types do not cover.
await (await workers.media()).put("pts", new Uint8Array(pts.buffer) as never);
await database.execute(sql`
  WITH c AS (INSERT INTO job_class (job_id, number, name)
    SELECT ${job}::uuid, n, 'class ' || n FROM generate_series(0, 5) n)
  INSERT INTO job_video (job_id, video_id, position, frames)
  SELECT ${job}::uuid, v::uuid, position, (SELECT array_agg(n) FROM generate_series(0,
      ${FRAMES - 1}::int) n)
    FROM jsonb_array_elements_text(${JSON.stringify(videos)}::jsonb) WITH ORDINALITY x(v, position)`);
const filled = performance.now();
for (let from = 0; from < ANNOTATIONS; from += CHUNK) {
  // Class 5 is rare. Each fifth annotation repeats the one before it; a sixth is hidden.
  await database.execute(sql`
    INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number, x1, y1,
      x2, y2, confidence, source, track_id, duplicate_of, polygon)
    SELECT md5(n::text)::uuid, (SELECT id FROM workspace WHERE is_default), ${job}::uuid,
      (${JSON.stringify(videos)}::jsonb->>(n / ${PER_FRAME * FRAMES}::int))::uuid,
      n / ${PER_FRAME}::int % ${FRAMES}::int, CASE WHEN n % 20000 = 7 THEN 5 ELSE n % 5 END,
      10, 10, 50 + n % 100, 90, 0.4 + (n % 61) / 102.0, 'model',
      1 + n % ${PER_FRAME}::int + ${PER_FRAME}::int * (n / 2000),
      CASE WHEN n % 5 = 4 THEN md5((n - 1)::text)::uuid END, '[10, 10, 50, 10, 50, 90, 10, 90]'
      FROM generate_series(${from}::int, ${Math.min(from + CHUNK, ANNOTATIONS) - 1}::int) n`);
}
print(`${cpus().length} × ${cpus()[0]?.model.trim()}, ${ANNOTATIONS} annotations in one job`);
print(
  `stored in ${((performance.now() - filled) / 1_000).toFixed(0)} s; nothing was analyzed since`,
);

async function timed(name: string, send: (round: number) => Promise<Response>, rounds = ROUNDS) {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const started = performance.now();
    const response = await send(round);
    await response.arrayBuffer();
    times.push(performance.now() - started);
    if (!response.ok) throw new Error(`${name}: ${response.status}`);
  }
  times.sort((left, right) => left - right);
  const at = (share: number) => (times[Math.floor(times.length * share)] ?? NaN).toFixed(1);
  print(`${name.padEnd(44)} p50 ${at(0.5).padStart(7)} ms  p95 ${at(0.95).padStart(7)} ms`);
}
const get = (path: string) => fetch(`${base}${path}`, { headers });
const page = (query: string) => get(`/jobs/${job}/annotations?${query}`);
const frame = (round: number) => `${video}.${(round * 137) % FRAMES}`;
const frames = (query: string) => get(`/jobs/${job}/frames?${query}`);
async function timeReads() {
  await timed("overview", () => get(`/jobs/${job}/overview`));
  await timed("stats", () => get(`/jobs/${job}/stats`));
  await timed("stats, with duplicates", () => get(`/jobs/${job}/stats?duplicates=true`));
  await timed("classes", () => get(`/jobs/${job}/classes`));
  await timed("status", () => get(`/status/${job}`));
  await timed("dataset stats", () => get(`/train/dataset-stats/${job}`));
  await timed("one frame's annotations", (round) => page(`frame_id=${frame(round)}`));
  await timed("the first page of 100", () => page("limit=100"));
  await timed("the last page of 100, by offset", () => page(`offset=${ANNOTATIONS * 0.8 - 100}`));
  for (const filter of [
    "class_name=class 3",
    "class_name=class 5",
    "accepted=null",
    "accepted=false",
    "source=person",
    "duplicates=true",
    "duplicates=false",
    "min_confidence=0.9",
    "max_confidence=0.5",
    `video_id=${video}`,
    `video_id=${video}&class_name=class 3&accepted=null`,
    `video_id=${video}&from_index=${FRAMES / 2}`,
  ]) {
    for (const sort of ["frame", "confidence", "-confidence"]) {
      const name = filter.replaceAll(/[0-9a-f-]{36}/g, "…");
      await timed(`${name}, sort=${sort}`, () => page(`${filter}&sort=${sort}`), 4);
    }
  }
  await timed("one track", (round) => page(`video_id=${video}&track_id=${1 + round}`));
  await timed("the first 100 frames", () => frames("limit=100"));
  await timed("the last 100 frames", () => frames(`offset=${ANNOTATIONS / PER_FRAME - 100}`));
  await timed("100 frames without annotations", () => frames("annotated=false"));
  await timed("100 frames not reviewed", () => frames("reviewed=false"));
}
await timeReads();
if (process.env.READS) process.exit(await stop().then(() => 0));
const posted = (path: string, body: object, method = "POST") =>
  fetch(`${base}${path}`, { method, headers, body: JSON.stringify(body) });
const edits: Record<string, () => Promise<Response>> = {
  "all accepted": () => posted(`/jobs/${job}/annotations/review`, { accepted: true }),
  "all of a class relabeled": () =>
    posted(`/jobs/${job}/annotations/relabel`, {
      class: "other",
      filter: { class_name: "class 3" },
    }),
  "all deleted": () => posted(`/jobs/${job}/annotations/delete`, { filter: {} }),
};
for (const [name, edit] of Object.entries(edits)) {
  await timed(name, edit, 1);
  const [made] = (await (await get(`/jobs/${job}/changes`)).json()) as { change_id: string }[];
  await timed("  that undone", () => posted(`/changes/${made?.change_id}/undo`, {}), 1);
}
const marked = { reviewed: true, filter: {} };
await timed("all frames marked", () => posted(`/jobs/${job}/frames/review`, marked), 1);
await timed("another threshold", () => posted(`/jobs/${job}`, { threshold: 0.7 }, "PATCH"), 1);
await stop();
