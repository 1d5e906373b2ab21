// What reading and reviewing cost in a job of 100,000 annotations, in workerd: pages at both ends
// and by confidence, one frame, one track, the list of frames, statistics, edits of many and their
// undoing. Run: npm run bench -- vision-annotations

import { cpus } from "node:os";
import { sql } from "drizzle-orm";
import pg from "pg";
import { superuser } from "../../edge/local/postgres.ts";
import { API } from "../../edge/vision/base/api.ts";
import type { TokenPair } from "../../shared/vision.ts";
import { startVision } from "./vision-world.ts";

const ANNOTATIONS = Number(process.env.ANNOTATIONS ?? 100_000);
const PER_FRAME = 10;
const ROUNDS = 60;

const { shared, workers, database, stop } = await startVision();
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

const ids = await database.execute<{ job: string; video: string }>(sql`
  WITH w AS (SELECT id FROM workspace WHERE is_default),
  p AS (INSERT INTO project (id, workspace_id, name)
    SELECT gen_random_uuid(), id, 'bench' FROM w RETURNING id, workspace_id),
  v AS (INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, state, bytes,
      content_type, width, height, frame_count, time_base, pts_key)
    SELECT gen_random_uuid(), workspace_id, id, 'v.mp4', 'ws/x', 'upload', 'ready', 1, 'video/mp4',
      1920, 1080, ${ANNOTATIONS / PER_FRAME}::int, '{1, 30}', 'pts' FROM p RETURNING id),
  j AS (INSERT INTO job (id, workspace_id, project_id, name, kind, state, threshold, settings,
      frames_total)
    SELECT gen_random_uuid(), workspace_id, id, 'bench', 'import', 'completed', 0.5,
      '{"passes": [[0]], "round": 1, "planned": 1, "segmenter": null}',
      ${ANNOTATIONS / PER_FRAME}::int FROM p RETURNING id)
  SELECT j.id::text AS job, v.id::text AS video FROM j, v`);
const { job = "", video = "" } = ids.rows[0] ?? {};
const pts = Int32Array.from({ length: ANNOTATIONS / PER_FRAME }, (_, index) => index);
// The bucket of the runtime takes Node's bytes too, which its types do not cover.
await (await workers.media()).put("pts", new Uint8Array(pts.buffer) as never);
await database.execute(sql`
  WITH c AS (INSERT INTO job_class (job_id, number, name)
    SELECT ${job}::uuid, n, 'class ' || n FROM generate_series(0, 4) n)
  INSERT INTO job_video (job_id, video_id, position, frames)
  SELECT ${job}::uuid, ${video}::uuid, 0, array_agg(n)
    FROM generate_series(0, ${ANNOTATIONS / PER_FRAME - 1}::int) n`);
await database.execute(sql`
  INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number, x1, y1, x2,
    y2, confidence, source, track_id, polygon)
  SELECT gen_random_uuid(), (SELECT id FROM workspace WHERE is_default), ${job}::uuid,
    ${video}::uuid, n / ${PER_FRAME}::int, n % 5, 10, 10, 50 + n % 100, 90, 0.5 + (n % 50) / 100.0,
    'model', 1 + n % ${PER_FRAME}::int + ${PER_FRAME}::int * (n / 2000),
    '[10, 10, 50, 10, 50, 90, 10, 90]'
    FROM generate_series(0, ${ANNOTATIONS - 1}::int) n`);
// What autovacuum does within a minute.
const owner = new pg.Client(superuser(shared.port, shared.credentials.superuser, "vision"));
await owner.connect();
await owner.query("ANALYZE annotation");
await owner.end();
print(`${cpus().length} × ${cpus()[0]?.model.trim()}, ${ANNOTATIONS} annotations in one job`);

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
const frame = (round: number) => `${video}.${(round * 137) % (ANNOTATIONS / PER_FRAME)}`;
await timed("one frame's annotations", (round) => page(`frame_id=${frame(round)}`));
await timed("the first page of 100", () => page("limit=100"));
await timed("the last page of 100", () => page(`limit=100&offset=${ANNOTATIONS - 100}`));
await timed("a page of one class, in the middle", () => page("class_name=class 3&offset=5000"));
await timed("the least sure 100", () => page("sort=confidence"));
await timed("the surest 100 of those pending", () => page("sort=-confidence&accepted=null"));
await timed("one track", (round) => page(`video_id=${video}&track_id=${1 + round}`));
const frames = (query: string) => get(`/jobs/${job}/frames?${query}`);
await timed("the first 100 frames", () => frames("limit=100"));
await timed("the last 100 frames", () => frames(`offset=${ANNOTATIONS / PER_FRAME - 100}`));
await timed("100 frames without annotations", () => frames("annotated=false"));
await timed("100 frames not reviewed", () => frames("reviewed=false"));
await timed("overview", () => get(`/jobs/${job}/overview`), 10);
await timed("stats", () => get(`/jobs/${job}/stats`), 10);
let accepted = false;
await timed(
  "a bulk edit of all",
  () => {
    accepted = !accepted;
    const body = JSON.stringify({ accepted, include_reviewed: true });
    return fetch(`${base}/jobs/${job}/annotations/review`, { method: "POST", headers, body });
  },
  3,
);
const posted = (path: string, body: object) =>
  fetch(`${base}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
await timed(
  "all frames marked",
  () => posted(`/jobs/${job}/frames/review`, { reviewed: true, filter: {} }),
  1,
);
await timed(
  "all annotations of a class relabeled",
  () =>
    posted(`/jobs/${job}/annotations/relabel`, {
      class: "other",
      filter: { class_name: "class 3" },
    }),
  1,
);
await timed(
  "all annotations deleted",
  () => posted(`/jobs/${job}/annotations/delete`, { filter: {} }),
  1,
);
const changes = (await (await get(`/jobs/${job}/changes`)).json()) as { change_id: string }[];
await timed("that undone", () => posted(`/changes/${changes[0]?.change_id}/undo`, {}), 1);
await stop();
