// The whole path with nothing scripted: a clip goes up, a real GPU node labels it with the
// embedded models, a reviewer edits, a dataset comes out. Then whatever can die does, in the middle
// of a job, and the job ends with the annotations of an undisturbed one.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, openAsBlob, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type GpuNode, startGpuNode } from "../../edge/local/gpu-node.ts";
import { AnnotationPage, DatasetExport, JobProgress } from "../../shared/wire/labeling.ts";
import { ProgressEvent } from "../../shared/wire/progress.ts";
import { frameId, Video } from "../../shared/wire/vision.ts";
import { rectangles, toolsOrSay } from "../support/clips.ts";
import { workerdPid } from "../support/memory.ts";
import { hasProgram } from "../support/programs.ts";
import { newProject, type Person, register } from "../support/scripted-node.ts";
import { createWorld, type World } from "../support/world.ts";

/** Bottles on a belt, CC-BY 4.0. */
const BOTTLES = resolve(import.meta.dirname, "../../../shared/data/video/bottle-detection.mp4");
const READY_MS = 900_000;

const tools = toolsOrSay() && hasProgram("unzip");
const real = existsSync(BOTTLES);
if (!real) process.stderr.write(`SKIPPED: no ${BOTTLES}: text is not asked of a real clip\n`);

let world: World;
let admin: Person;
let node: GpuNode;
let folder: string;
let projectId: string;

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  folder = mkdtempSync(join(tmpdir(), "vantage-story-"));
  projectId = (await newProject(admin)).project_id;
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A real node, with the embedded models or with the tests' own quick segmenter. */
async function nodeOf(name: string, entry?: string) {
  const started = startGpuNode({
    url: world.urls.vision,
    dir: join(folder, name),
    modelsDir: join(folder, "models"),
    environment: process.env,
    onLine: () => {},
    ...(entry ? { entry } : {}),
    code: async () => (await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {})).code,
  });
  await started.ready;
  return started;
}

/** Asks until an answer is what is waited for; the world's own time passes meanwhile. */
async function until<Answer>(ask: () => Promise<Answer>, holds: (answer: Answer) => boolean) {
  for (const patience = performance.now() + READY_MS; ; ) {
    const answer = await ask();
    if (holds(answer)) return answer;
    if (performance.now() > patience) throw new Error(`still ${JSON.stringify(answer)}`);
    await new Promise((next) => setTimeout(next, 100));
  }
}

async function uploaded(path: string): Promise<Video> {
  const form = new FormData();
  form.append("project_id", projectId);
  form.append("file", await openAsBlob(path), basename(path));
  const { video_id: id } = await admin.ok<Video>("POST", "/upload", form);
  const ask = async () => Video.parse(await admin.ok("GET", `/videos/${id}`));
  const video = await until(ask, ({ status }) => status !== "probing");
  expect(video).toMatchObject({ status: "ready", failure: null });
  return video;
}

const start = async (path: string, body: object) =>
  (await admin.ok<{ job_id: string }>("POST", path, { project_id: projectId, ...body })).job_id;
const statusOf = async (id: string) => JobProgress.parse(await admin.ok("GET", `/status/${id}`));
const ended = (id: string) =>
  until(
    () => statusOf(id),
    ({ status }) => status !== "queued" && status !== "running",
  );
const annotationsOf = async (id: string) =>
  AnnotationPage.parse(await admin.ok("GET", `/jobs/${id}/annotations?limit=1000`)).items;

/** Everything that a job's topic says, to its end. */
async function heard(id: string): Promise<ProgressEvent[]> {
  const { url } = await admin.ok<{ url: string }>("POST", `/jobs/${id}/ticket`, {});
  const events: ProgressEvent[] = [];
  const socket = new WebSocket(new URL(url, world.urls.vision));
  await new Promise<void>((done, fail) => {
    socket.onerror = () => fail(new Error("the progress socket failed"));
    socket.onclose = () => done();
    socket.onmessage = ({ data }) => {
      const event = ProgressEvent.parse(JSON.parse(String(data)));
      events.push(event);
      if (event.type !== "end") return;
      socket.close();
      done();
    };
  });
  return events;
}

describe.skipIf(!tools)("from a clip to a dataset, with the embedded models", () => {
  let video: Video;
  beforeAll(async () => {
    node = await nodeOf("embedded");
    video = await uploaded(real ? BOTTLES : rectangles(4));
  }, READY_MS);
  afterAll(() => node.stop());

  it("knows every frame and shows any", async () => {
    expect(video.frame_count).toBeGreaterThan(30);
    const page = await admin.ok<{ items: { pts_seconds: number; image_url: string }[] }>(
      ...(["GET", `/videos/${video.video_id}/frames?offset=20&limit=2`] as const),
    );
    expect(page.items[1]?.pts_seconds).toBeGreaterThan(page.items[0]?.pts_seconds ?? 9);
    const image = await admin.send("GET", page.items[0]?.image_url.replace("/api/v1", "") ?? "");
    expect([image.status, image.headers.get("Content-Type")]).toEqual([200, "image/jpeg"]);
  });

  it.skipIf(!real)("finds by text what is there, with masks, live", async () => {
    const body = { video_ids: [video.video_id], prompts: ["bottles"], fps: 1, to_seconds: 4 };
    const id = await start("/label", { ...body, threshold: 0.3 });
    const events = await heard(id);
    expect(events.map(({ seq }) => seq)).toEqual(
      events.map((_, place) => (events[0]?.seq ?? 0) + place),
    );
    expect(events.at(-1)).toMatchObject({ type: "end", data: { status: "completed" } });
    const annotations = await annotationsOf(id);
    expect(annotations.length).toBeGreaterThan(2);
    expect(annotations.filter(({ polygon }) => polygon !== null).length).toBeGreaterThan(2);
    const unknown = { ...body, prompts: ["soldering defect"], project_id: projectId };
    expect(await admin.refused("POST", "/label", unknown)).toEqual([422, "prompt_unknown"]);
  });

  it("finds by example, masks a click, and previews", async () => {
    const first = frameId(video.video_id, 0);
    const [x, y] = real ? [(video.width ?? 0) / 2, (video.height ?? 0) / 2] : [25, 30];
    const clicked = await admin.ok<{ mask: { bbox: number[]; polygon: number[] } }>(
      ...(["POST", "/label/segment-points"] as const),
      { frame_id: first, points: [{ x, y, label: 1 }] },
    );
    expect(clicked.mask.polygon.length).toBeGreaterThanOrEqual(6);
    const exemplars = [{ frame_id: first, bbox: clicked.mask.bbox }];
    const preview = await admin.ok<{ previews: { image: string }[] }>("POST", "/label/preview", {
      frame_ids: [first],
      exemplars,
    });
    const jpeg = Buffer.from(preview.previews[0]?.image ?? "", "base64");
    expect(jpeg.subarray(0, 2)).toEqual(Buffer.from([0xff, 0xd8]));
    const id = await start("/label/exemplar", {
      video_ids: [video.video_id],
      exemplars,
      fps: 1,
      to_seconds: 2,
      class: "it",
    });
    expect(await ended(id)).toMatchObject({ status: "completed", frames_done: 2 });
    const edited = (await annotationsOf(id))[0];
    if (edited) {
      await admin.ok("PATCH", `/annotations/${edited.annotation_id}`, { accepted: true });
    }
    const drawn = { job_id: id, frame_id: first, class: "drawn", bbox: [1, 1, 30, 30] };
    await admin.ok("POST", "/annotations", drawn);
    const made = DatasetExport.parse(await admin.ok("POST", `/jobs/${id}/export`, {}));
    expect(made.status).toBe("completed");
    const path = join(folder, "dataset.zip");
    writeFileSync(path, await (await fetch(made.download_url)).bytes());
    const names = execFileSync("unzip", ["-Z1", path], { encoding: "utf8" }).trim().split("\n");
    expect(names).toContain("data.yaml");
    expect(names.filter((name) => /^images\/(train|val)\/.*\.jpg$/.test(name))).toHaveLength(2);
    expect(names.filter((name) => /^labels\/(train|val)\/.*\.txt$/.test(name))).toHaveLength(2);
  });
});

describe.skipIf(!tools)("a job in whose middle something dies", () => {
  let video: Video;
  let undisturbed: unknown[];
  const body = () => ({ video_ids: [video.video_id], prompts: ["red", "green"], threshold: 0 });
  /** What annotations say, without what differs from job to job. */
  const content = async (id: string) =>
    (await annotationsOf(id))
      .map((one) => String([one.frame_id, one.class, one.bbox, one.confidence, one.track_id]))
      .toSorted();

  beforeAll(async () => {
    node = await nodeOf("quick", resolve(import.meta.dirname, "../support/node-main.ts"));
    video = await uploaded(rectangles(16));
    const id = await start("/label", body());
    expect(await ended(id)).toMatchObject({ status: "completed", frames_done: 160 });
    undisturbed = await content(id);
    // The red one leaves the frame on its way.
    expect(undisturbed.length).toBeGreaterThan(200);
  }, READY_MS);
  afterAll(() => node.stop());

  /** A lease that nobody renews runs out, and a retry's pause is over: a minute, not waited for. */
  const passTime = async () => {
    await world.visionDatabase.execute(sql`
      UPDATE task SET lease_until = now() - interval '1 second'
       WHERE state = 'running' AND lease_until < now() + interval '57 seconds'`);
    await world.visionDatabase.execute(sql`
      UPDATE task SET available_at = now() - interval '1 second'
       WHERE state = 'queued' AND available_at > now()`);
    await world.tick(Date.now());
  };
  const children = () => {
    const pid = node.pid();
    const listed = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
    return listed.split(" ").filter(Boolean).map(Number);
  };
  const killAll = (pids: readonly number[]) => {
    expect(pids.length).toBeGreaterThan(0);
    for (const pid of pids) process.kill(pid, 9);
  };

  it.each([
    ["the child that labels", async () => killAll(children())],
    ["the node", async () => killAll([node.pid() ?? 0])],
    ["the services' process", async () => killAll([Number(workerdPid())])],
  ])("ends as if nothing had been: %s", async (_, kill) => {
    const id = await start("/label", body());
    await until(
      () => statusOf(id),
      ({ frames_done: done }) => done > 0,
    );
    await kill();
    const patient = async () => {
      await passTime().catch(() => {});
      return statusOf(id).catch(() => null);
    };
    const status = await until(patient, (now) => now?.status === "completed");
    expect(status).toMatchObject({ frames_done: 160, frames_total: 160, failure: null });
    expect(await content(id)).toEqual(undisturbed);
    const { rows } = await world.visionDatabase.execute(sql`
      SELECT count(*)::int AS open FROM task
       WHERE subject = ${`job:${id}`} AND ended_at IS NULL`);
    expect(rows).toEqual([{ open: 0 }]);
  });
});
