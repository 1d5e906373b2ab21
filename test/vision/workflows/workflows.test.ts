// Saved workflows over HTTP. Goal: a version is never changed, what is served is what the newest
// move says to the last step of its sub-workflows, every move is in the log and can be taken back,
// and of two changes at once one is told of the other.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { findDeployed } from "../../../edge/vision/workflows/definitions/versions.ts";
import {
  Workflow,
  WorkflowCheck,
  WorkflowDetail,
  WorkflowMove,
  WorkflowVersion,
} from "../../../shared/wire/workflows.ts";
import { createWorkflowWorld, sending, type WorkflowWorld } from "../../support/workflow-world.ts";

const ABSENT = "00000000-0000-4000-8000-000000000000";

let w: WorkflowWorld;
beforeAll(async () => {
  w = await createWorkflowWorld();
});

const at = (slug: string, more = "") => `/workflows/saved/${slug}${more}`;
const read = async (slug: string) => WorkflowDetail.parse(await w.viewer.ok("GET", at(slug)));
const save = async (slug: string, body: object) =>
  WorkflowDetail.parse(await w.engineer.ok("PUT", at(slug), body));
const deploy = async (slug: string, body?: object) =>
  Workflow.parse(await w.engineer.ok("POST", at(slug, "/deploy"), body));
const rollBack = (slug: string) =>
  w.engineer.ok<{ workflow: Workflow; move: WorkflowMove }>("POST", at(slug, "/rollback"));
const moves = async (slug: string) =>
  WorkflowMove.array().parse(await w.viewer.ok("GET", at(slug, "/moves")));
const served = (slug: string) => findDeployed(w.world.visionDatabase, [w.workspaceId], { slug });
/** A definition that is told from others by its address. */
const to = (path: string) => sending({ url: `https://example.com/${path}` });
const urlIn = ({ steps }: { steps: { parameters: Record<string, unknown> }[] }) =>
  steps[0]?.parameters.url;

/** Has workflows as steps, by the steps' ids, and an output of each: the first has its own name. */
const withSteps = (slugs: Record<string, string>, output: string) => ({
  version: "1.0",
  inputs: [{ name: "payload", kind: "json" }],
  steps: Object.entries(slugs).map(([id, slug]) => ({
    id,
    type: "workflow@1",
    parameters: { slug, ...(output === "sent" && { payload: "$inputs.payload" }) },
  })),
  outputs: Object.keys(slugs).map((id, index) => ({
    name: index === 0 ? output : id,
    value: `$steps.${id}.${output}`,
  })),
});
/** What is wrong with a definition, as its refusal lists it. */
const problemsOf = async (method: "POST" | "PUT", path: string, body?: object) => {
  const response = await w.engineer.send(method, path, body);
  const { code, problems } = (await response.json()) as { code: string; problems: object[] };
  expect([response.status, code]).toEqual([422, "invalid_workflow"]);
  return problems;
};

describe("a workflow", () => {
  it("is saved, listed, read with what it takes and gives, and deleted", async () => {
    const made = await w.make(to("first"), { description: "north" });
    expect(made).toMatchObject({
      workspace_id: w.workspaceId,
      name: "A flow",
      description: "north",
      version: 1,
      shown_version: 1,
      deployed_version: null,
      revision: 1,
      problems: [],
      inputs: [{ name: "payload", kind: "json", required: true }],
      outputs: [{ name: "sent", kind: "boolean", depth: 0 }],
      runs_on: "anywhere",
    });
    expect(made.definition).toEqual(to("first"));
    const { slug } = made;
    expect(await read(slug)).toEqual(made);
    const listed = Workflow.array().parse(await w.viewer.ok("GET", "/workflows/saved"));
    expect(listed.find((one) => one.slug === slug)).toEqual(Workflow.parse(made));
    expect((await w.engineer.send("DELETE", at(slug))).status).toBe(204);
    expect(await w.viewer.refused("GET", at(slug))).toEqual([404, "not_found"]);
    expect(await w.engineer.refused("DELETE", at(slug))).toEqual([404, "not_found"]);
  });

  it("has a slug of its own: made of its name where none is given, and of one kind", async () => {
    const body = { name: "Café: Tor 7 — Nord!", definition: to("a") };
    const made = await w.engineer.ok<Workflow>("POST", "/workflows", body);
    expect(made.slug).toBe("cafe-tor-7-nord");
    expect(await w.engineer.refused("POST", "/workflows", body)).toEqual([409, "state_conflict"]);
    const nameless = { name: "門", definition: to("a") };
    expect(await w.engineer.refused("POST", "/workflows", nameless)).toEqual([
      422,
      "invalid_request",
    ]);
  });

  it("that cannot be run is refused, with every problem at its step, saved nowhere", async () => {
    const wrong = to("a");
    wrong.steps.push({ id: "other", type: "nothing@1", parameters: {} });
    const body = { slug: "wrong", name: "Wrong", definition: wrong };
    const response = await w.engineer.send("POST", "/workflows", body);
    const refusal = (await response.json()) as { code: string; problems: object[] };
    expect([response.status, refusal.code]).toEqual([422, "invalid_workflow"]);
    expect(refusal.problems).toContainEqual(
      expect.objectContaining({ code: "unknown_block", step: "other", fix: expect.any(String) }),
    );
    const checked = await w.viewer.ok("POST", "/workflows/check", {
      definition: wrong,
      workspace_id: w.workspaceId,
    });
    const check = WorkflowCheck.parse(checked);
    expect([check.ok, check.problems, check.runs_on]).toEqual([false, refusal.problems, null]);
    expect(await w.viewer.refused("GET", at("wrong"))).toEqual([404, "not_found"]);
    const { slug } = await w.make();
    const edit = { definition: wrong };
    expect(await w.engineer.refused("PUT", at(slug), edit)).toEqual([422, "invalid_workflow"]);
    expect((await read(slug)).version).toBe(1);
  });

  it("that was another service's is read as ours, and saved once its problems are put right", async () => {
    const theirs = (url: string) => ({
      version: "1.0",
      inputs: [{ type: "WorkflowParameter", name: "count" }],
      steps: [
        {
          type: "roboflow_core/webhook_sink@v1",
          name: "tell",
          url,
          method: "POST",
          json_payload: { count: "$inputs.count" },
        },
        { type: "roboflow_core/clip_model@v1", name: "clip" },
      ],
      outputs: [{ type: "JsonField", name: "told", selector: "$steps.tell.message" }],
    });
    type Import = { definition: object; unsupported: object[]; problems: object[] };
    const importing = (url: string, who = w.viewer) =>
      who.ok<Import>("POST", "/workflows/import/roboflow", { definition: theirs(url) });
    const { definition, unsupported, problems } = await importing("https://example.com/hook");
    expect(unsupported).toEqual([expect.objectContaining({ step: "clip" })]);
    expect(problems).toEqual([]);
    const body = { slug: "theirs", name: "Theirs", workspace_id: w.workspaceId, definition };
    await w.engineer.ok("POST", "/workflows", body);
    const wrong = await importing(`https://example.com/${"a".repeat(3_000)}`);
    expect(wrong.problems).toContainEqual(expect.objectContaining({ step: "tell" }));
    const saving = { ...body, slug: "wrong-theirs", definition: wrong.definition };
    expect(await w.engineer.refused("POST", "/workflows", saving)).toEqual([
      422,
      "invalid_workflow",
    ]);
  });

  it("that names a secret or a sub-workflow which is not there is refused", async () => {
    const secretive = sending({ signing_secret: "nowhere" });
    const sub = to("a");
    sub.steps = [{ id: "inner", type: "workflow@1", parameters: { slug: "nowhere" } }];
    sub.outputs = [{ name: "sent", value: "$steps.inner.sent" }];
    for (const [definition, step] of [
      [secretive, "send"],
      [sub, "inner"],
    ] as const) {
      const body = { definition, workspace_id: w.workspaceId };
      const { ok, problems } = WorkflowCheck.parse(
        await w.viewer.ok("POST", "/workflows/check", body),
      );
      expect([ok, problems[0]?.step]).toEqual([false, step]);
    }
  });

  it("whose sub-workflows together are too long to be served is refused as it is saved", async () => {
    const big = await w.make({
      version: "1.0",
      inputs: [],
      steps: [{ id: "text", type: "constant@1", parameters: { value: "x".repeat(300_000) } }],
      outputs: [{ name: "text", value: "$steps.text.value" }],
    });
    const limit = [expect.objectContaining({ code: "limit", fix: expect.any(String) })];
    const twice = withSteps({ one: big.slug, two: big.slug }, "text");
    const made = { slug: "twice", name: "Twice", definition: twice };
    expect(await problemsOf("POST", "/workflows", made)).toEqual(limit);
    // What was small when it was saved is looked at again as it is deployed.
    const inner = await w.make(to("small"));
    const outer = await w.make(withSteps({ one: inner.slug, two: inner.slug }, "sent"));
    await save(inner.slug, { definition: sending({ payload: "x".repeat(300_000) }) });
    expect(await problemsOf("POST", at(outer.slug, "/deploy"))).toEqual(limit);
  });

  it("is not saved as a version that would have itself among its steps, or among theirs", async () => {
    const [one, other] = [await w.make(to("one")), await w.make(to("other"))];
    const cycle = (step: string) => [
      expect.objectContaining({ code: "cycle", step, port: "slug" }),
    ];
    const itself = { definition: withSteps({ again: one.slug }, "sent") };
    expect(await problemsOf("PUT", at(one.slug), itself)).toEqual(cycle("again"));
    await save(other.slug, { definition: withSteps({ inner: one.slug }, "sent") });
    const circle = { definition: withSteps({ outer: other.slug }, "sent") };
    expect(await problemsOf("PUT", at(one.slug), circle)).toEqual(cycle("outer.inner"));
    expect((await read(one.slug)).version).toBe(1);
  });

  it("that would send where nothing is ever sent is refused, dry runs as well", async () => {
    for (const url of [
      "http://example.com/hook",
      "https://169.254.169.254/latest",
      "https://[::1]/",
    ]) {
      const definition = sending({ url });
      const bad = [expect.objectContaining({ code: "bad_value", step: "send", port: "url" })];
      const made = { slug: "inward", name: "Inward", definition };
      expect(await problemsOf("POST", "/workflows", made)).toEqual(bad);
      const run = { definition, inputs: { payload: 1 } };
      expect(await problemsOf("POST", "/workflows/run?dry_run=true", run)).toEqual(bad);
      const { slug } = await w.make();
      const outer = withSteps({ sub: slug }, "sent");
      expect(await problemsOf("PUT", at(slug), { definition })).toEqual(bad);
      expect((await w.make(outer)).problems).toEqual([]);
    }
    // Where the operator allows it, it is sent.
    expect((await w.make(sending({ url: "http://127.0.0.1/hook" }))).problems).toEqual([]);
  });

  it("becomes another version by another definition alone, and keeps all versions", async () => {
    const { slug, definition } = await w.make(to("one"));
    const renamed = await save(slug, { definition, name: "Another name" });
    expect([renamed.version, renamed.revision, renamed.name]).toEqual([1, 2, "Another name"]);
    const same = await save(slug, { definition });
    expect([same.version, same.revision]).toEqual([1, 2]);
    const second = await save(slug, { definition: to("two") });
    expect([second.version, second.revision, second.name]).toEqual([2, 3, "Another name"]);
    const first = WorkflowDetail.parse(await w.viewer.ok("GET", at(slug, "?version=1")));
    expect([urlIn(first.definition), first.shown_version, first.version]).toEqual([
      "https://example.com/one",
      1,
      2,
    ]);
    expect(await w.viewer.refused("GET", at(slug, "?version=3"))).toEqual([404, "not_found"]);
    const versions = await w.viewer.ok("GET", at(slug, "/versions"));
    expect(WorkflowVersion.array().parse(versions)).toMatchObject([
      { version: 2, steps: 1, deployed: false },
      { version: 1, steps: 1, deployed: false },
    ]);
  });

  it("is changed by one of two who saw the same revision; the other is told", async () => {
    const { slug } = await w.make(to("one"));
    const answers = await Promise.all(
      ["two", "three"].map((path) =>
        w.engineer.send("PUT", at(slug), { revision: 1, definition: to(path) }),
      ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    const refused = answers.find(({ status }) => status === 409);
    expect(await refused?.json()).toMatchObject({ code: "revision_conflict", revision: 2 });
    expect((await read(slug)).version).toBe(2);
  });

  it("takes every change of many who name no revision", async () => {
    const { slug } = await w.make(to("zero"));
    await Promise.all(["a", "b", "c"].map((path) => save(slug, { definition: to(path) })));
    expect(await read(slug)).toMatchObject({ version: 4, revision: 4 });
  });
});

describe("a deployment", () => {
  it("serves the version that it named, whatever is saved or deleted afterwards", async () => {
    const inner = await w.make(to("inner-one"));
    const outer = await w.make({
      version: "1.0",
      inputs: [{ name: "given", kind: "json" }],
      steps: [
        {
          id: "sub",
          type: "workflow@1",
          parameters: { slug: inner.slug, payload: "$inputs.given" },
        },
      ],
      outputs: [{ name: "sent", value: "$steps.sub.sent" }],
    });
    await expect(served(outer.slug)).rejects.toMatchObject({ code: "state_conflict" });
    const deployed = await deploy(outer.slug);
    expect(deployed).toMatchObject({ deployed_version: 1, revision: 2 });
    const before = await served(outer.slug);
    expect(before.definition.steps[0]?.id).toBe("sub.send");
    expect(urlIn(before.definition)).toBe("https://example.com/inner-one");
    await save(inner.slug, { definition: to("inner-two") });
    await save(outer.slug, { definition: to("outer-two") });
    await w.engineer.ok("DELETE", at(inner.slug));
    expect(await served(outer.slug)).toEqual(before);
    // Its newest version is another one, and the deployed one could not be deployed again.
    const again = await w.engineer.refused("POST", at(outer.slug, "/deploy"), { version: 1 });
    expect(again).toEqual([422, "invalid_workflow"]);
  });

  it("of what is served already is no move; of sub-workflows that changed it is one", async () => {
    const { slug } = await w.make(to("one"));
    await deploy(slug);
    expect((await deploy(slug)).revision).toBe(2);
    await deploy(slug, { version: 1 });
    expect(await moves(slug)).toMatchObject([{ kind: "deploy", before: null, after: 1 }]);
    expect(await w.engineer.refused("POST", at(slug, "/deploy"), { version: 9 })).toEqual([
      404,
      "not_found",
    ]);
    expect(await w.engineer.refused("POST", at(slug, "/deploy"), { revision: 1 })).toEqual([
      409,
      "revision_conflict",
    ]);
  });

  it("cannot be changed, nor a version, by any statement", async () => {
    const { slug, workflow_id } = await w.make(to("one"));
    await deploy(slug);
    for (const table of [sql`workflow_version`, sql`workflow_deployment`]) {
      const own = sql`workflow_id = ${workflow_id}::uuid`;
      const change = sql`UPDATE ${table} SET definition = '{}' WHERE ${own}`;
      await expect(w.world.visionDatabase.execute(change)).rejects.toThrow();
    }
  });

  it("is taken back move by move, and each move is in the log", async () => {
    const { slug } = await w.make(to("one"));
    await deploy(slug);
    for (const path of ["two", "three"]) {
      await save(slug, { definition: to(path) });
      await deploy(slug);
    }
    expect((await rollBack(slug)).workflow.deployed_version).toBe(2);
    const { workflow, move } = await rollBack(slug);
    expect(workflow.deployed_version).toBe(1);
    expect(urlIn((await served(slug)).definition)).toBe("https://example.com/one");
    expect(move).toMatchObject({ kind: "rollback", before: 2, after: 1 });
    expect(await w.engineer.refused("POST", at(slug, "/rollback"))).toEqual([
      409,
      "state_conflict",
    ]);
    const log = await moves(slug);
    expect(log.map(({ kind, before, after }) => [kind, before, after])).toEqual([
      ["rollback", 2, 1],
      ["rollback", 3, 2],
      ["deploy", 2, 3],
      ["deploy", 1, 2],
      ["deploy", null, 1],
    ]);
    expect(log[1]?.rollback_of).toBe(log[2]?.move_id);
    // A deployment after a rollback can be taken back to what the rollback left.
    await deploy(slug, { version: 3 });
    expect((await rollBack(slug)).workflow.deployed_version).toBe(1);
  });

  it("comes back with its workflow after a deletion, unless the slug is another's", async () => {
    const { slug, workflow_id } = await w.make(to("one"));
    await deploy(slug);
    await w.engineer.ok("DELETE", at(slug));
    await expect(served(slug)).rejects.toMatchObject({ code: "not_found" });
    const back = await rollBack(slug);
    expect(back.workflow).toMatchObject({ workflow_id, deployed_version: 1 });
    expect(back.move).toMatchObject({ kind: "rollback", before: null, after: 1 });
    expect((await served(slug)).version).toBe(1);
    const unserved = await w.make(to("two"));
    await w.engineer.ok("DELETE", at(unserved.slug));
    expect((await rollBack(unserved.slug)).workflow.deployed_version).toBeNull();
    await w.engineer.ok("DELETE", at(slug));
    await w.make(to("other"), { slug });
    expect(await w.engineer.refused("POST", at(slug, "/rollback"))).toEqual([
      409,
      "state_conflict",
    ]);
    expect((await moves(slug))[0]).toMatchObject({ kind: "delete", workflow_id });
  });

  it("is one of two at once, or both in turn, and never a third state", async () => {
    const { slug } = await w.make(to("one"));
    await save(slug, { definition: to("two") });
    const answers = await Promise.all(
      [1, 2].map((version) =>
        w.engineer.send("POST", at(slug, "/deploy"), { version, revision: 2 }),
      ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    const [move, ...others] = await moves(slug);
    expect(others).toEqual([]);
    expect((await served(slug)).version).toBe(move?.after);
  });
});

describe("who may", () => {
  it("viewers read; engineers change", async () => {
    const { slug, definition } = await w.make();
    await deploy(slug);
    for (const path of ["", "/versions", "/moves", "/usage"])
      await w.viewer.ok("GET", at(slug, path));
    const blocks = await w.viewer.ok<{ type: string }[]>("GET", "/workflows/blocks");
    expect(blocks.map(({ type }) => type)).toContain("webhook@1");
    const annotator = await w.member("annotator");
    const refusals = [
      await annotator.refused("POST", "/workflows", { name: "x", definition }),
      await annotator.refused("PUT", at(slug), { definition }),
      await annotator.refused("POST", at(slug, "/deploy")),
      await annotator.refused("POST", at(slug, "/rollback")),
      await annotator.refused("DELETE", at(slug)),
      await annotator.refused("PUT", "/workflows/secrets/x", { value: "x" }),
      await annotator.refused("DELETE", "/workflows/secrets/x"),
    ];
    expect(new Set(refusals.map(String))).toEqual(new Set(["403,forbidden"]));
  });

  it("nobody sees another workspace's, nor names its workflows as steps", async () => {
    const { slug } = await w.make();
    const other = await w.stranger("admin");
    const { definition } = await read(slug);
    const answers = [
      await other.refused("GET", at(slug)),
      await other.refused("GET", at(slug, `?workspace_id=${w.workspaceId}`)),
      await other.refused("PUT", at(slug), { definition }),
      await other.refused("POST", at(slug, "/deploy")),
      await other.refused("DELETE", at(slug)),
      await other.refused("GET", `/workflows/saved?workspace_id=${ABSENT}`),
      await other.refused("POST", "/workflows", {
        name: "x",
        workspace_id: w.workspaceId,
        definition,
      }),
    ];
    expect(new Set(answers.map(String))).toEqual(new Set(["404,not_found"]));
    expect(await other.ok("GET", "/workflows/saved")).toEqual([]);
    const stolen = {
      ...definition,
      steps: [{ id: "a", type: "workflow@1", parameters: { slug } }],
    };
    const check = WorkflowCheck.parse(
      await other.ok("POST", "/workflows/check", { definition: stolen }),
    );
    expect(check.problems.map(({ code }) => code)).toContain("unknown_workflow");
  });
});
