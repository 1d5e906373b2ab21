// Whether anybody is held up while a later release's migrations change a table of a million rows: a
// column, its values, a check, an index. Run: npm run bench -- migrations

import { superuser } from "../../edge/local/postgres.ts";
import { frameId } from "../../shared/wire/vision.ts";
import { migrateBeside } from "../support/releases.ts";
import { startAnnotated } from "./annotated-world.ts";

const ANNOTATIONS = Number(process.env.ANNOTATIONS ?? 1_000_000);

const { base, headers, job, videos, frames, shared, stop } = await startAnnotated(ANNOTATIONS);
const [video = ""] = videos;
const send = (method: string, path: string, body?: object) =>
  fetch(base + path, { method, headers, ...(body && { body: JSON.stringify(body) }) });
const at = (turn: number) => ({ frame_id: frameId(video, (turn * 137) % frames) });
const drawn = { job_id: job, class: "class 3", bbox: [1, 1, 20, 20] };
const owner = superuser(shared.port, shared.credentials.superuser, "vision");
const outcome = await migrateBeside(owner, [
  () => send("GET", `/jobs/${job}/annotations?sort=confidence`),
  () => send("GET", `/jobs/${job}/stats`),
  (turn) => send("POST", "/annotations", { ...drawn, ...at(turn) }),
  (turn) =>
    send("POST", `/jobs/${job}/annotations/review`, {
      accepted: turn % 2 === 0,
      include_reviewed: true,
      filter: at(turn),
    }),
]);
await stop();
const { requests, failed, slowestMs, migrationMs } = outcome;
process.stdout.write(
  `${ANNOTATIONS} rows migrated in ${(migrationMs / 1_000).toFixed(0)} s beside ${requests} requests: ` +
    `${failed.length} failed, the slowest took ${slowestMs.toFixed(0)} ms\n`,
);
for (const failure of failed.slice(0, 5)) process.stdout.write(`${failure}\n`);
if (failed.length > 0) process.exitCode = 1;
