// The refusals of runs, route by route: of what comes in their bodies, of nodes that fail, and of
// an isolate whose memory is full. Goal: each is the declared one, and no file of a request stays.

import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { API } from "../../../edge/vision/base/api.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { announce, fillMemory } from "../../support/full-memory.ts";
import { form, jpeg, mp4, png } from "../../support/media.ts";
import { type ScriptedNode, scriptedNode } from "../../support/scripted-node.ts";
import { alterTables } from "../../support/transactions.ts";
import { createWorkflowWorld, type WorkflowWorld } from "../../support/workflow-world.ts";

const MIB = 1024 * 1024;
const looking: WorkflowDefinition = {
  version: "1.0",
  inputs: [{ name: "image", kind: "image" }],
  steps: [{ id: "look", type: "image_properties@1", parameters: { image: "$inputs.image" } }],
  outputs: [{ name: "width", value: "$steps.look.width" }],
};
const definition = ["definition", JSON.stringify(looking)] as const;

let w: WorkflowWorld;
let slug: string;
let unserved: string;
let node: ScriptedNode;
let stop: () => Promise<void>;
beforeAll(async () => {
  w = await createWorkflowWorld();
  ({ slug } = await w.make(looking));
  await w.engineer.ok("POST", `/workflows/saved/${slug}/deploy`);
  ({ slug: unserved } = await w.make(looking));
  const failed = { outcome: "failed" as const, code: "internal", detail: "no", retryable: false };
  node = await scriptedNode(w.world, w.admin, {
    workflow: () => failed,
    workflow_video: () => failed,
  });
});
beforeEach(() => {
  stop = node.start();
});
afterEach(async () => {
  const files = async () =>
    (await w.world.media.list({ prefix: `ws/${w.workspaceId}/predictions/` })).objects;
  // A run that nobody waits for lets its file go when its task ends.
  await expect.poll(files).toEqual([]);
  await stop();
});

/** Routes that take images, and a form of each around a file. */
const images = () => ({
  "/workflows/run": (content: Uint8Array<ArrayBuffer>) =>
    form([...definition], { field: "image", content }),
  [`/workflows/run/image?slug=${slug}`]: (content: Uint8Array<ArrayBuffer>) => form({ content }),
  [`/workflows/serve/${slug}`]: (content: Uint8Array<ArrayBuffer>) =>
    form({ field: "image", content }),
});
/** Routes that take clips. */
const clips = () => ({
  "/workflows/run/video": (content: Uint8Array<ArrayBuffer>) => form([...definition], { content }),
  [`/workflows/serve/${slug}/video`]: (content: Uint8Array<ArrayBuffer>) => form({ content }),
});
const refused = async (path: string, body: unknown) => [
  path,
  ...(await w.engineer.refused("POST", path, body)),
];
const query = (path: string, more: string) => `${path}${path.includes("?") ? "&" : "?"}${more}`;

describe("a run on images", () => {
  it("is refused a file that is none, and told that its node failed", async () => {
    for (const [path, body] of Object.entries(images())) {
      const noise = body(new Uint8Array(1_000).fill(7));
      expect(await refused(path, noise)).toEqual([path, 415, "unsupported_media"]);
      const good = body(Uint8Array.from(png(64, 48)));
      expect(await refused(path, good)).toEqual([path, 502, "task_failed"]);
    }
  });

  it("is refused images, or outputs, that the service alone cannot hold", async () => {
    const steps = [
      { id: "go", type: "continue_if@1", parameters: { value: "$inputs.given", condition: true } },
    ];
    const passing = (kind: "image" | "string", outputs: number): WorkflowDefinition => ({
      version: "1.0",
      inputs: [{ name: "given", kind }],
      steps,
      outputs: Array.from({ length: outputs }, (_, index) => ({
        name: `o${index}`,
        value: "$steps.go.value",
      })),
    });
    const content = new Uint8Array(9 * MIB);
    content.set(png(64, 48));
    const imaging = ["definition", JSON.stringify(passing("image", 1))] as const;
    const large = form([...imaging], { field: "given", content });
    expect(await refused("/workflows/run", large)).toEqual([
      "/workflows/run",
      413,
      "file_too_large",
    ]);
    const inputs = { given: "x".repeat(MIB) };
    const few = { definition: passing("string", 4), inputs };
    expect((await w.engineer.send("POST", "/workflows/run", few)).status).toBe(200);
    // Each is 1 MiB of one text in memory, and all of it in the answer.
    const many = await w.engineer.send("POST", "/workflows/run", {
      definition: passing("string", 100),
      inputs,
    });
    const { code, problem } = (await many.json()) as Record<string, unknown>;
    expect([many.status, code, problem]).toEqual([422, "workflow_failed", "limit"]);
  });
});

describe("a run on a clip", () => {
  it("is refused what is no form, no clip, or asked for as nobody can", async () => {
    for (const [path, body] of Object.entries(clips())) {
      expect(await refused(path, { definition: looking })).toEqual([path, 400, "bad_body"]);
      const still = body(Uint8Array.from(jpeg()));
      expect(await refused(path, still)).toEqual([path, 415, "unsupported_media"]);
      const nonsense = query(path, "frames_maxx=3");
      expect(await refused(nonsense, body(mp4()))).toEqual([nonsense, 422, "invalid_request"]);
      const other = query(path, "frames_input=other");
      expect(await refused(other, body(mp4()))).toEqual([other, 422, "invalid_request"]);
    }
    const path = `/workflows/serve/${unserved}/video`;
    expect(await refused(path, form({ content: mp4() }))).toEqual([path, 409, "state_conflict"]);
    const { workspaceId } = await w.stranger();
    const foreign = `/workflows/run/video?workspace_id=${workspaceId}`;
    const body = form([...definition], { content: mp4() });
    expect(await refused(foreign, body)).toEqual([foreign, 404, "not_found"]);
  });

  it("is told that its node failed, at once or under its id", async () => {
    for (const [path, body] of Object.entries(clips())) {
      expect(await refused(path, body(mp4()))).toEqual([path, 502, "task_failed"]);
      const later = await w.engineer.send("POST", query(path, "wait_seconds=0"), body(mp4()));
      expect([path, later.status]).toEqual([path, 202]);
      const found = later.headers.get("Location")?.replace(API, "") ?? "";
      const read = async () => (await w.viewer.ok<{ status: string }>("GET", found)).status;
      await expect.poll(read).toBe("failed");
    }
  });
});

describe("every run", () => {
  it("is refused for the length that it announces", async () => {
    const headers = {
      Authorization: `Bearer ${w.engineer.token}`,
      "Content-Type": "multipart/form-data; boundary=x",
    };
    for (const [path, bytes] of [
      ...Object.keys(images()).map((each) => [each, 70 * MIB] as const),
      ...Object.keys(clips()).map((each) => [each, 3_000 * MIB] as const),
    ]) {
      const { sent, answer } = announce(w.world.urls.vision + API + path, headers, bytes);
      const { status, text } = await answer;
      sent.destroy();
      expect([path, status, JSON.parse(text).code]).toEqual([path, 413, "file_too_large"]);
    }
  });

  it("is told to come again where files of others fill the memory", async () => {
    const paths = Object.entries({ ...images(), ...clips() });
    const free = await fillMemory(w.world.urls.vision, w.engineer.token);
    try {
      for (const [path, body] of paths) {
        const file = path.includes("video") ? mp4() : Uint8Array.from(png(64, 48));
        expect(await refused(path, body(file))).toEqual([path, 429, "overloaded"]);
      }
    } finally {
      free();
    }
    for (const [path, body] of Object.entries(images())) {
      const again = async () =>
        (await w.engineer.send("POST", path, body(Uint8Array.from(png(64, 48))))).status;
      await expect.poll(again).toBe(502);
    }
  });
});

describe("a workflow's own routes", () => {
  it("refuse a parameter that they do not know, and one secret more than may be", async () => {
    expect(await w.viewer.refused("GET", "/workflows/blocks?section=models")).toEqual([
      422,
      "invalid_request",
    ]);
    const other = await w.stranger("admin");
    await w.world.visionDatabase.execute(sql`
      INSERT INTO workflow_secret (id, workspace_id, name, sealed, created_at, updated_at)
      SELECT gen_random_uuid(), ${other.workspaceId}::uuid, 's' || n, 'x', now(), now()
        FROM generate_series(1, 200) n`);
    const body = { value: "one more", workspace_id: other.workspaceId };
    expect(await other.refused("PUT", "/workflows/secrets/more", body)).toEqual([
      409,
      "state_conflict",
    ]);
  });

  it("give up a deletion that others come before, each time it is tried", async () => {
    const doomed = await w.make(looking);
    await alterTables(
      w.world.visionDatabase,
      `CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
         IF OLD.slug = '${doomed.slug}' THEN RETURN NULL; END IF; RETURN NEW; END $$`,
      "CREATE TRIGGER stays BEFORE UPDATE ON workflow FOR EACH ROW EXECUTE FUNCTION stays()",
    );
    expect(await w.engineer.refused("DELETE", `/workflows/saved/${doomed.slug}`)).toEqual([
      409,
      "revision_conflict",
    ]);
    await alterTables(w.world.visionDatabase, "DROP TRIGGER stays ON workflow");
    await w.engineer.ok("DELETE", `/workflows/saved/${doomed.slug}`);
  });
});
