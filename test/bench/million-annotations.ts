// What reading and reviewing cost in a job of a million annotations, in workerd, right after they
// were stored: numbers, pages by each filter and order, frames, edits of all and their undoing. A
// read is to take 300 ms of database time at most. Run: npm run bench -- million-annotations

import { cpus } from "node:os";
import { PER_FRAME, startAnnotated } from "./annotated-world.ts";

const ANNOTATIONS = Number(process.env.ANNOTATIONS ?? 1_000_000);
const ROUNDS = 10;

const {
  base,
  headers,
  job,
  videos,
  frames: FRAMES,
  seconds,
  stop,
} = await startAnnotated(ANNOTATIONS);
const [video = ""] = videos;
const print = (line: string) => process.stdout.write(`${line}\n`);
print(`${cpus().length} × ${cpus()[0]?.model.trim()}, ${ANNOTATIONS} annotations in one job`);
print(`stored in ${seconds.toFixed(0)} s; nothing was analyzed since`);

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
const posted = (path: string, body: object, method = "POST") =>
  fetch(`${base}${path}`, { method, headers, body: JSON.stringify(body) });
const page = (query: string) => get(`/jobs/${job}/annotations?${query}`);
const frame = (round: number) => `${video}.${(round * 137) % FRAMES}`;
const frames = (query: string) => get(`/jobs/${job}/frames?${query}`);
async function timeReads() {
  await timed("overview", () => get(`/jobs/${job}/overview`));
  await timed("stats", () => get(`/jobs/${job}/stats`));
  await timed("stats, with duplicates", () => get(`/jobs/${job}/stats?duplicates=true`));
  await timed("classes", () => get(`/jobs/${job}/classes`));
  await timed("status", () => get(`/status/${job}`));
  await timed("jobs with counts", () => get("/jobs?counts=true&limit=100"));
  await timed("all annotations as columns", () => get(`/jobs/${job}/annotations.columns`), 4);
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
    `video_id=${video}&class_name=class 5`,
    `video_id=${video}&from_index=${FRAMES / 2}`,
    `from_index=${FRAMES / 2}`,
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
  const projects = (await (await get("/projects")).json()) as { project_id: string }[];
  const ids = Array.from({ length: 1_000 }, (_, index) => `${video}.${index % FRAMES}`);
  const tags = { frame_ids: ids, add: ["night"] };
  await timed("1,000 frames tagged", () => posted("/frames/tags", tags), 1);
  for (const filter of [
    ...["", "class_name=class 3", "class_name=class 5", "accepted=null", "accepted=true"],
    ...["min_confidence=0.9", "max_confidence=0.51", "min_confidence=0.99", "annotated=false"],
    ...["class_name=class 3&accepted=null&min_confidence=0.9", "tag=night", "name=v.mp"],
    ...["tag=night&class_name=class 5", `job_id=${job}&tag=night`],
  ]) {
    const name = filter.replaceAll(/[0-9a-f-]{36}/g, "…");
    const path = `/projects/${projects[0]?.project_id}/frames?${filter}`;
    await timed(`search: ${name}`, () => get(path), 4);
  }
}
await timeReads();
if (process.env.READS) process.exit(await stop().then(() => 0));
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
