// The search of a project's frames: what is searched, each filter, one annotation that meets all of
// class, review and confidence, and pages. Each search gives the same frames by look-up, and where
// annotations are too many for that.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import { type FoundFrame, FoundFramePage } from "../../../../shared/wire/frame-search.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { newProject, type Person } from "../../../support/scripted-node.ts";
import { addClip, createTeamWorld, type TeamWorld } from "../../../support/team-world.ts";

const invalid = [422, "invalid_request"];
const missing = [404, "not_found"];
const BOX: Bbox = [10, 10, 50, 50];

let team: TeamWorld;
let viewer: Person;
let projectId: string;
/** Ids of the project's videos, oldest first. */
let videos: string[];

const database = () => team.world.visionDatabase;

/** A project with these videos, each a day newer than the one before; an image has one frame. */
async function newVideos(...filenames: string[]) {
  ({ project_id: projectId } = await newProject(team.admin));
  videos = [];
  for (const [day, filename] of filenames.entries()) {
    const owner = { projectId, workspaceId: team.workspaceId };
    const id = await addClip(team.world, owner, filename);
    videos.push(id);
    await database().execute(sql`
      UPDATE video SET created_at = '2026-01-01'::timestamptz + ${day}::int * interval '1 day',
        frame_count = CASE WHEN filename LIKE '%.jpg' THEN 1 ELSE frame_count END
       WHERE id = ${id}::uuid`);
  }
}

const at = (video: number, index: number) => frameId(videos[video] as string, index);
/** A job of a person over frames of the videos. */
const newJob = async (...frames: [video: number, index: number][]) => {
  const frame_ids = frames.map(([video, index]) => at(video, index));
  const body = { project_id: projectId, frame_ids, classes: ["cat", "dog"] };
  return (await team.admin.ok<{ job_id: string }>("POST", "/jobs", body)).job_id;
};
const draw = async (jobId: string, [video, index]: [number, number], className = "cat") => {
  const body = { job_id: jobId, frame_id: at(video, index), class: className, bbox: BOX };
  return (await team.annotator.ok<{ annotation_id: string }>("POST", "/annotations", body))
    .annotation_id;
};
/** Detections of a model, of one frame and class, as many as wanted. */
const detect = (
  jobId: string,
  [video, index]: [number, number],
  { className = "cat", confidence = 0.9, review = "pending", number = 1 } = {},
) =>
  database().execute(sql`
    INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number, x1, y1,
      x2, y2, confidence, review, source)
    SELECT gen_random_uuid(), ${team.workspaceId}::uuid, ${jobId}::uuid, ${videos[video]}::uuid,
      ${index}::int, (SELECT number FROM job_class WHERE job_id = ${jobId}::uuid
        AND name = ${className}), 1, 1, 9, 9, ${confidence}::real, ${review}, 'model'
      FROM generate_series(1, ${number}::int)`);
const tag = (tags: string[], ...frames: [number, number][]) =>
  team.annotator.ok("POST", "/frames/tags", {
    frame_ids: frames.map(([video, index]) => at(video, index)),
    add: tags,
  });

const search = async (query = "", person = viewer) =>
  FoundFramePage.parse(await person.ok("GET", `/projects/${projectId}/frames${query}`));
/** Frames by video and index, as `0.3`. */
const named = ({ video_id, index }: FoundFrame) => `${videos.indexOf(video_id)}.${index}`;
const found = async (query = "") => (await search(query)).items.map(named);
const refusal = (query: string, person = viewer) =>
  person.refused("GET", `/projects/${projectId}/frames${query}`);

beforeAll(async () => {
  team = await createTeamWorld();
  ({ viewer } = team);
});

describe("a search", () => {
  it("finds frames of jobs, tagged ones and images, newest video first", async () => {
    await newVideos("a.mp4", "b.jpg", "c.mp4", "d.mp4");
    const [first, second] = [await newJob([0, 4], [0, 2]), await newJob([0, 2], [2, 0], [2, 5])];
    // People added frame 3 by a box, and frame 4 by a mark.
    const boxes = [await draw(second, [2, 3]), await draw(second, [2, 3], "dog")];
    await draw(first, [0, 2]);
    await team.annotator.ok("PATCH", `/annotations/${boxes[0]}`, { accepted: true });
    await team.annotator.ok("PATCH", `/annotations/${boxes[1]}`, { accepted: false });
    const marked = { reviewed: true, filter: { frame_ids: [at(2, 4)] } };
    await team.annotator.ok("POST", `/jobs/${second}/frames/review`, marked);
    await tag(["night"], [0, 9], [3, 1]);
    expect(await found()).toEqual([
      ...["3.1", "2.0", "2.3", "2.4", "2.5"],
      ...["1.0", "0.2", "0.4", "0.9"],
    ]);
    const { items, next } = await search();
    expect(next).toBeNull();
    const byName = new Map(items.map((item) => [named(item), item]));
    expect(byName.get("2.3")).toEqual({
      frame_id: at(2, 3),
      video_id: videos[2],
      index: 3,
      image_url: `/api/v1/videos/${videos[2]}/frames/3.jpg`,
      filename: "c.mp4",
      tags: [],
      job_ids: [second],
      annotations: { total: 2, pending: 0, accepted: 1, rejected: 1 },
    });
    expect(byName.get("0.2")?.job_ids).toEqual([first, second]);
    expect(byName.get("0.9")).toMatchObject({ tags: ["night"], job_ids: [] });
    expect(byName.get("1.0")?.annotations.total).toBe(0);
    expect(await found("?annotated=true")).toEqual(["2.3", "0.2"]);
    expect(await found("?annotated=false&tag=night")).toEqual(["3.1", "0.9"]);
    expect(await found(`?job_id=${first}`)).toEqual(["0.2", "0.4"]);
    expect(await found(`?job_id=${second}&annotated=false`)).toEqual(["2.0", "2.4", "2.5", "0.2"]);
    expect(await found(`?job_id=${second}&class_name=cat`)).toEqual(["2.3"]);
    await tag(["night"], [2, 5], [2, 3]);
    expect(await found(`?job_id=${second}&tag=night`)).toEqual(["2.3", "2.5"]);
    expect(await found(`?job_id=${second}&tag=night&accepted=true`)).toEqual(["2.3"]);
    // A video that is deleted takes its frames along.
    await team.admin.send("DELETE", `/videos/${videos[3]}`);
    expect(await found("?tag=night")).toEqual(["2.3", "2.5", "0.9"]);
  });

  it("finds a part of a file's name, in either case, whatever it holds", async () => {
    const names = ["Nord_1.jpg", "nordX1.jpg", "100%.jpg", "Ä'.jpg"];
    await newVideos(...names);
    expect(await found("?name=NORD")).toEqual(["1.0", "0.0"]);
    expect(await found("?name=d_1")).toEqual(["0.0"]);
    expect(await found("?name=0%25")).toEqual(["2.0"]);
    expect(await found("?name=%25")).toEqual(["2.0"]);
    // Names may come with their letters decomposed, as macOS has them.
    expect(await found(`?name=${encodeURIComponent("a\u0308'")}`)).toEqual(["3.0"]);
    expect(await found("?name=west")).toEqual([]);
    expect(await refusal("?name=%20")).toEqual(invalid);
  });

  // Above 5,000 annotations videos are read in order instead of looking annotations up.
  for (const number of [1, 5_001]) {
    it(`has class, review and confidence hold for one of ${number} annotations`, async () => {
      await newVideos("a.mp4", "b.mp4");
      const frames = [0, 1, 2, 3, 4].map((index): [number, number] => [0, index]);
      const jobId = await newJob(...frames, [1, 0]);
      const other = await newJob([0, 4], [1, 0]);
      await team.admin.ok("PATCH", `/jobs/${jobId}`, { threshold: 0.5 });
      await detect(jobId, [0, 0], { className: "cat", confidence: 0.9, number });
      await detect(jobId, [0, 1], { className: "cat", confidence: 0.6, review: "accepted" });
      await detect(jobId, [0, 1], { className: "dog", confidence: 0.9 });
      await detect(jobId, [0, 2], {
        className: "dog",
        confidence: 0.7,
        review: "rejected",
        number,
      });
      await draw(jobId, [0, 3]);
      // Below the job's threshold.
      await detect(jobId, [1, 0], { className: "cat", confidence: 0.4, number });
      await detect(other, [0, 4], { className: "cat", confidence: 0.95 });
      expect(await found("?class_name=cat")).toEqual(["0.0", "0.1", "0.3", "0.4"]);
      expect(await found("?class_name=DOG")).toEqual(["0.1", "0.2"]);
      expect(await found("?class_name=owl")).toEqual([]);
      expect(await found("?accepted=null")).toEqual(["0.0", "0.1", "0.4"]);
      expect(await found("?accepted=true")).toEqual(["0.1", "0.3"]);
      expect(await found("?accepted=false")).toEqual(["0.2"]);
      expect(await found("?class_name=cat&accepted=null")).toEqual(["0.0", "0.4"]);
      // What a person drew has no confidence, and is above all.
      expect(await found("?min_confidence=0.8")).toEqual(["0.0", "0.1", "0.3", "0.4"]);
      expect(await found("?class_name=cat&min_confidence=0.8")).toEqual(["0.0", "0.3", "0.4"]);
      expect(await found("?max_confidence=0.8")).toEqual(["0.1", "0.2"]);
      expect(await found("?min_confidence=0.1&max_confidence=0.5")).toEqual([]);
      expect(await found("?min_confidence=0.9&max_confidence=0.9")).toEqual(["0.0", "0.1"]);
      expect(await found("?accepted=null&max_confidence=0.9&class_name=dog")).toEqual(["0.1"]);
      expect(await found("?min_confidence=0.9&max_confidence=0.1")).toEqual([]);
      expect(await found("?annotated=false")).toEqual(["1.0"]);
      expect(await found("?annotated=false&class_name=cat")).toEqual([]);
      expect(await found(`?job_id=${other}&class_name=cat`)).toEqual(["0.4"]);
      expect(await found("?class_name=cat&name=b.mp")).toEqual([]);
      await tag(["night"], [0, 1], [0, 2], [1, 0]);
      expect(await found("?tag=night&class_name=dog&accepted=false")).toEqual(["0.2"]);
      expect(await found("?tag=night&class_name=cat")).toEqual(["0.1"]);
      await team.admin.ok("PATCH", `/jobs/${jobId}`, { threshold: 0.3 });
      expect(await found("?tag=night&class_name=cat")).toEqual(["1.0", "0.1"]);
      expect(await found("?max_confidence=0.5")).toEqual(["1.0"]);
    });
  }

  it("goes on where a page ended, also between videos of one instant", async () => {
    await newVideos("a.mp4", "b.jpg", "c.mp4", "d.jpg");
    const jobId = await newJob(
      ...[0, 2].flatMap((video) =>
        [0, 1, 2, 3, 4].map((index): [number, number] => [video, index]),
      ),
    );
    for (let index = 0; index < 5; index++) await draw(jobId, [2, index]);
    await tag(["night"], [0, 1], [0, 7], [2, 2], [3, 0]);
    await database().execute(sql`
      UPDATE video SET created_at = '2026-01-01' WHERE project_id = ${projectId}::uuid
        AND id <> ${videos[0]}::uuid`);
    for (const [query, number] of [
      ["?limit=", 13],
      ["?tag=night&limit=", 4],
      ["?class_name=cat&limit=", 5],
      [`?job_id=${jobId}&limit=`, 10],
    ] as const) {
      const whole = await found(`${query}500`);
      expect([query, whole.length]).toEqual([query, number]);
      for (const limit of [1, 3, number]) {
        const pages: string[] = [];
        for (let next: string | null = ""; next !== null; ) {
          const page: FoundFramePage = await search(
            `${query}${limit}${next && `&cursor=${encodeURIComponent(next)}`}`,
          );
          expect(page.items.length).toBeGreaterThan(0);
          pages.push(...page.items.map(named));
          next = page.next;
        }
        expect([query, limit, pages]).toEqual([query, limit, whole]);
      }
    }
  });

  it("is for whoever may see the project, and refuses what it does not understand", async () => {
    await newVideos("a.jpg");
    const [one] = (await search()).items;
    expect(one && named(one)).toBe("0.0");
    const jobId = await newJob([0, 0]);
    await newVideos("b.jpg");
    expect(await found()).toEqual(["0.0"]);
    expect(await refusal("", await team.stranger())).toEqual(missing);
    expect(await refusal(`?job_id=${jobId}`)).toEqual(missing);
    expect(await refusal(`?job_id=${randomUUID()}`)).toEqual(missing);
    for (const query of [
      ...["?accepted=maybe", "?min_confidence=2", "?annotated=1", "?limit=501", "?limit=0"],
      ...["?tag=", "?tag=a,,b", "?name=", "?class_name=", "?cursor=", "?cursor=x"],
      ...[["x"], [0, videos[0]], [1e300, videos[0], 0], [0, videos[0], -1]].map(
        (cursor) => `?cursor=${btoa(JSON.stringify(cursor))}`,
      ),
    ]) {
      expect([query, await refusal(query)]).toEqual([query, invalid]);
    }
  });
});
