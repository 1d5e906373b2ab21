// Runs of workflows over HTTP. Goal: a run answers what its graph makes of its inputs, or says at
// which step or port it does not; a stream goes on where it was; what is to be done outside is done
// once a whole run ended well, for who may; and no node is believed beyond its plan.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { RunAnswer } from "../../../edge/vision/workflows/runs/bodies.ts";
import { decodeAsk, type LineHeadOf } from "../../../shared/tasks/line.ts";
import type { WorkflowAnswer } from "../../../shared/tasks/workflow-task.ts";
import type { WorkflowUsage } from "../../../shared/wire/workflows.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { type LineEnd, lineNode, openLineEnd } from "../../support/line-end.ts";
import { form, png } from "../../support/media.ts";
import { CAPABILITIES } from "../../support/nodes.ts";
import { registerModel } from "../../support/registered-model.ts";
import type { Api } from "../../support/scripted-node.ts";
import { createWorkflowWorld, sending, type WorkflowWorld } from "../../support/workflow-world.ts";

let w: WorkflowWorld;
let annotator: Api;
beforeAll(async () => {
  w = await createWorkflowWorld();
  annotator = await w.member("annotator");
});

const definition = (
  steps: WorkflowDefinition["steps"],
  outputs: Record<string, string>,
  inputs: WorkflowDefinition["inputs"] = [],
): WorkflowDefinition => ({
  version: "1.0",
  inputs,
  steps,
  outputs: Object.entries(outputs).map(([name, value]) => ({ name, value })),
});
/** Whether a number is larger than a limit. */
const larger = definition(
  [
    {
      id: "ask",
      type: "condition@1",
      parameters: { left: "$inputs.number", right: "$inputs.limit", operator: "greater" },
    },
  ],
  { larger: "$steps.ask.result" },
  [
    { name: "number", kind: "number" },
    { name: "limit", kind: "number", default: 2 },
  ],
);
/** An image and a count of what a model sees on it. */
const seeing = (model = "active") =>
  definition(
    [{ id: "see", type: "detector@1", parameters: { image: "$inputs.image", model } }],
    { count: "$steps.see.count" },
    [{ name: "image", kind: "image" }],
  );
const counting = definition([{ id: "count", type: "counter@1", parameters: { key: "runs" } }], {
  count: "$steps.count.value",
});
const image = `data:image/png;base64,${Buffer.from(png(64, 48)).toString("base64")}`;

const run = async (body: object, query = "", who = annotator) =>
  RunAnswer.parse(await who.ok("POST", `/workflows/run${query}`, body));
const refused = async (path: string, body: object, who = annotator) => {
  const response = await who.send("POST", path, body);
  const said = (await response.json()) as { code?: string; problems?: unknown; step?: unknown };
  return { ...said, status: response.status };
};
const deployed = async (graph: WorkflowDefinition) => {
  const { slug } = await w.make(graph);
  await w.engineer.ok("POST", `/workflows/saved/${slug}/deploy`);
  return slug;
};
const serve = async (slug: string, body: object, query = "") =>
  RunAnswer.parse(await annotator.ok("POST", `/workflows/serve/${slug}${query}`, body));
const waiting = async () => {
  const { rows } = await w.world.visionDatabase.execute<{ count: number }>(
    sql`SELECT count(*)::int AS count FROM workflow_delivery`,
  );
  return rows[0]?.count;
};

/** A request that came to a node, and what follows its head. */
interface Request {
  head: LineHeadOf<"workflow">;
  file: Uint8Array;
}

/** Opens a node that answers runs by its line, with what the test decides. */
async function openNode(answer: (asked: Request) => WorkflowAnswer): Promise<LineEnd> {
  const capabilities = { ...CAPABILITIES, kinds: ["workflow", "workflow_video"] };
  const identity = await lineNode(w.world, w.admin, { capabilities });
  return openLineEnd(w.world, identity, {
    kind: "workflow",
    hear: (own, frame) => {
      if (frame.kind !== "workflow_ask") return;
      own.send({ kind: "read", value: frame.payload.length });
      if (!frame.last) return;
      const { head, image: file } = decodeAsk(own.bytesOf(frame.id));
      own.answer(frame.id, answer({ head: head as LineHeadOf<"workflow">, file }));
    },
  });
}

type DoneAnswer = Extract<WorkflowAnswer, { failure: null }>;
const done = (outputs: DoneAnswer["outputs"], more: Partial<DoneAnswer> = {}): DoneAnswer => ({
  failure: null,
  outputs,
  steps: [],
  effects: [],
  state: {},
  seconds: 0.1,
  ...more,
});

describe("a run without a node", () => {
  it("answers what the graph makes of its inputs and defaults, with its steps", async () => {
    const found = await run({ definition: larger, inputs: { number: 3 } });
    expect(found).toMatchObject({
      outputs: { larger: true },
      version: null,
      effects: [],
      served_by: "worker",
      steps: [{ step: "ask", type: "condition@1", elements: 1, masked: 0, models: [] }],
    });
    const other = await run({ definition: larger, inputs: { number: 3, limit: 4 } });
    expect(other.outputs).toEqual({ larger: false });
  });

  it("takes images as data addresses and as files, and answers them as they came", async () => {
    const passing = definition(
      [
        {
          id: "pass",
          type: "continue_if@1",
          parameters: { value: "$inputs.image", condition: true },
        },
      ],
      { image: "$steps.pass.value" },
      [{ name: "image", kind: "image" }],
    );
    const byJson = await run({ definition: passing, inputs: { image } });
    expect(byJson.outputs).toEqual({ image });
    const parts = form(["definition", JSON.stringify(passing)], {
      field: "image",
      content: png(64, 48),
    });
    const byForm = RunAnswer.parse(await annotator.ok("POST", "/workflows/run", parts));
    expect(byForm.outputs).toEqual({ image });
    const text = { definition: passing, inputs: { image: "hello" } };
    expect((await refused("/workflows/run", text)).status).toBe(422);
  });

  it("is refused where its images are more than an answer may have", async () => {
    const large = Buffer.alloc(900_000);
    large.set(png(64, 48));
    const outputs = { a: "$inputs.image", b: "$inputs.image", c: "$inputs.image" };
    const graph = definition(larger.steps, { ...outputs, larger: "$steps.ask.result" }, [
      ...larger.inputs,
      { name: "image", kind: "image" },
    ]);
    const inputs = { number: 1, image: `data:image/png;base64,${large.toString("base64")}` };
    const refusal = await refused("/workflows/run", { definition: graph, inputs });
    expect(refusal).toMatchObject({ code: "workflow_failed", problem: "limit" });
  });

  it("on an image alone is refused where it brings no form", async () => {
    const { slug } = await w.make(larger);
    const refusal = await refused(`/workflows/run/image?slug=${slug}`, {});
    expect([refusal.status, refusal.code]).toEqual([400, "bad_body"]);
  });

  it("names no workflow, secret or project that cannot be stored", async () => {
    const sub = { id: "sub", type: "workflow@1", parameters: { slug: "a\0" } };
    const named = definition([sub], { out: "$steps.sub.out" });
    const checked = await w.viewer.ok<{ ok: boolean }>("POST", "/workflows/check", {
      definition: named,
    });
    expect(checked.ok).toBe(false);
    const secret = sending({ signing_secret: "a\0" });
    expect((await refused("/workflows/run", { definition: secret })).code).toBe("invalid_workflow");
  });

  it("says every input that is missing, unknown or of another kind", async () => {
    const inputs = { number: "three", others: 1 };
    const refusal = await refused("/workflows/run", { definition: larger, inputs });
    expect([refusal.status, refusal.code]).toEqual([422, "invalid_workflow"]);
    const ports = (refusal.problems as { port: string; step: null }[]).map(({ port }) => port);
    expect(ports.toSorted()).toEqual(["number", "others"]);
  });

  it("names the step and port of a definition that cannot be run, and the step that fails", async () => {
    const wrong = structuredClone(larger);
    (wrong.steps[0] as { parameters: object }).parameters = { left: 1, operator: "nearly" };
    const refusal = await refused("/workflows/run", { definition: wrong, inputs: { number: 1 } });
    expect(refusal).toMatchObject({
      status: 422,
      code: "invalid_workflow",
      problems: expect.arrayContaining([expect.objectContaining({ step: "ask" })]),
    });
    const texts = structuredClone(larger);
    (texts.steps[0] as { parameters: object }).parameters = {
      left: "a",
      right: "$inputs.number",
      operator: "greater",
    };
    texts.inputs.pop();
    const failed = await refused("/workflows/run", { definition: texts, inputs: { number: 1 } });
    expect(failed).toMatchObject({
      status: 422,
      code: "workflow_failed",
      step: "ask",
      problem: "step_failed",
    });
  });

  it("is for annotators of the workspace", async () => {
    const body = { definition: larger, inputs: { number: 1 } };
    expect((await refused("/workflows/run", body, w.viewer)).code).toBe("forbidden");
    const stranger = await w.stranger();
    const theirs = `/workflows/run?workspace_id=${w.workspaceId}`;
    expect((await refused(theirs, body, stranger)).code).toBe("not_found");
    const slug = await deployed(larger);
    const serving = `/workflows/serve/${slug}`;
    expect((await refused(serving, { inputs: { number: 1 } }, stranger)).code).toBe("not_found");
    expect((await refused(serving, { inputs: { number: 1 } }, w.viewer)).code).toBe("forbidden");
  });
});

describe("what a run does outside", () => {
  it("is only told by a dry run, secrets by their names", async () => {
    const before = await waiting();
    const body = { definition: sending(), inputs: { payload: { count: 3 } } };
    const told = await run(body, "?dry_run=true");
    expect(told.effects).toEqual([
      {
        step: "send",
        element: [],
        kind: "webhook",
        status: "dry_run",
        detail: null,
        request: expect.objectContaining({ payload: { count: 3 } }),
      },
    ]);
    expect(await waiting()).toBe(before);
  });

  it("is for engineers to have done by a definition of their own, for annotators by a saved one", async () => {
    const body = { definition: sending(), inputs: { payload: 1 } };
    expect((await refused("/workflows/run", body)).code).toBe("forbidden");
    const own = await run(body, `?workspace_id=${w.workspaceId}`, w.engineer);
    expect(own.effects).toMatchObject([{ step: "send", status: "queued" }]);
    const slug = await deployed(sending());
    const served = await serve(slug, { inputs: { payload: 1 } });
    expect(served.effects).toMatchObject([{ step: "send", status: "queued" }]);
  });
});

describe("a deployed workflow", () => {
  it("answers with its version and counts its use", async () => {
    const slug = await deployed(larger);
    const answer = await serve(slug, { inputs: { number: 9 } });
    expect(answer).toMatchObject({ version: 1, outputs: { larger: true } });
    await refused(`/workflows/serve/${slug}`, { inputs: {} });
    const usage = () => w.viewer.ok<WorkflowUsage>("GET", `/workflows/saved/${slug}/usage`);
    await expect.poll(async () => (await usage()).runs).toBe(2);
    expect(await usage()).toMatchObject({ failures: 1, dry_runs: 0 });
  });

  it("that is only saved is not served, and runs on an image alone", async () => {
    const { slug } = await w.make(larger);
    expect((await refused(`/workflows/serve/${slug}`, { inputs: {} })).code).toBe("state_conflict");
    const path = `/workflows/run/image?slug=${slug}`;
    expect((await refused(path, form({ content: png(8, 8) }))).code).toBe("invalid_request");
  });

  it("goes on in each stream by itself, anew without one, and not for a dry run", async () => {
    const slug = await deployed(counting);
    const count = async (query: string) => (await serve(slug, { inputs: {} }, query)).outputs.count;
    expect([await count("?stream=north"), await count("?stream=north")]).toEqual([1, 2]);
    expect([await count("?stream=south"), await count("")]).toEqual([1, 1]);
    expect(await count("?stream=north&dry_run=true")).toBe(3);
    expect(await count("?stream=north")).toBe(3);
  });
});

describe("a run that needs a node", () => {
  let answering: (asked: Request) => WorkflowAnswer;
  let end: LineEnd | undefined;
  beforeAll(async () => {
    const { model_id } = await registerModel(w.world, w.workspaceId);
    await w.world.visionDatabase.execute(
      sql`UPDATE model SET active = true WHERE id = ${model_id}::uuid`,
    );
  });
  /** From now on a node answers so. */
  const answerBy = async (answer: typeof answering) => {
    answering = answer;
    end ??= await openNode((asked) => answering(asked));
  };

  it("goes there by the line with its images and models, which names resolve to", async () => {
    const came: Request[] = [];
    await answerBy((asked) => {
      came.push(asked);
      return done({ count: 2 });
    });
    const found = await run({ definition: seeing(), inputs: { image } });
    expect(found).toMatchObject({ outputs: { count: 2 }, served_by: "node/n" });
    expect(came[0]?.head).toMatchObject({
      models: { active: { version: 1, source: { weights: { url: /^http/ } } } },
      images: [{ name: "image", bytes: png(64, 48).length }],
      inputs: {},
      workspace: w.workspaceId,
    });
    expect(Buffer.from(came[0]?.file ?? []).equals(png(64, 48))).toBe(true);
  });

  it("goes there with the model that an id, an alias or an endpoint names, at its size", async () => {
    const { model_id } = await registerModel(w.world, w.workspaceId, { image_size: 320 });
    await w.engineer.ok("POST", `/models/${model_id}/promote`, { alias: "staging" });
    const told = { confidence: 0.6, classes: ["disc"] };
    const gate = { slug: "gate", models: [{ model_id }], image_size: 640, ...told };
    await w.engineer.ok("POST", "/endpoints", { ...gate, workspace_id: w.workspaceId });
    const came: Request[] = [];
    await answerBy((asked) => {
      came.push(asked);
      return done({ count: 1 });
    });
    const names = [model_id, "staging", "endpoint:gate"];
    for (const name of names) await run({ definition: seeing(name), inputs: { image } });
    const handed = came.map(({ head }) => Object.entries(head.models));
    const named = (name: string, size: number, of: object | null = null) => {
      const source = expect.objectContaining({ image_size: size });
      return [[name, expect.objectContaining({ model_id, source, told: of })]];
    };
    expect(handed).toEqual([
      named(model_id, 320),
      named("staging", 320),
      named("endpoint:gate", 640, told),
    ]);
  });

  it("is one of a saved workflow on an image alone, with the version that ran", async () => {
    await answerBy(() => done({ count: 3 }));
    const { slug } = await w.make(seeing());
    const path = `/workflows/run/image?slug=${slug}`;
    const answer = await annotator.ok("POST", path, form({ content: png(64, 48) }));
    expect(RunAnswer.parse(answer)).toMatchObject({ version: 1, outputs: { count: 3 } });
  });

  it("is refused at the step whose model the workspace has not", async () => {
    const stranger = await w.stranger();
    const foreign = await registerModel(w.world, stranger.workspaceId);
    for (const name of [foreign.model_id, "production", "endpoint:nowhere"]) {
      const refusal = await refused("/workflows/run", {
        definition: seeing(name),
        inputs: { image },
      });
      expect(refusal).toMatchObject({
        code: "invalid_workflow",
        problems: [{ code: "bad_value", step: "see", port: "model" }],
      });
    }
  });

  it("fails at the step that failed there", async () => {
    const failure = { code: "step_failed" as const, step: "see", element: [], detail: "no memory" };
    await answerBy(() => ({ failure }));
    const refusal = await refused("/workflows/run", { definition: seeing(), inputs: { image } });
    expect(refusal).toMatchObject({ status: 422, code: "workflow_failed", step: "see" });
  });

  /** Sees, and tells of it. */
  const telling = (url = "https://example.com/hook") => {
    const graph = seeing();
    const parameters = { payload: "$steps.see.count", url };
    graph.steps.push({ id: "send", type: "webhook@1", parameters });
    return graph;
  };
  const request = {
    url: "https://example.com/hook",
    url_secret: null,
    headers: {},
    secret_headers: {},
    signing_secret: null,
    payload: 2,
  };
  const effect = (more: object = {}, own: object = {}) => ({
    step: "send",
    element: [],
    kind: "webhook" as const,
    request: { ...request, ...more },
    image: null,
    ...own,
  });

  it("has done what a sink of its plan asks for", async () => {
    await answerBy(() => done({ count: 2 }, { effects: [effect()] }));
    const slug = await deployed(telling());
    const answer = await serve(slug, { inputs: { image } });
    expect(answer.effects).toMatchObject([{ step: "send", status: "queued" }]);
  });

  it("may tell headers in any order, and a secret that came through a step", async () => {
    const graph = telling();
    const send = graph.steps[1] as WorkflowDefinition["steps"][number];
    send.parameters.headers = { "X-Source": "a", Accept: "b" };
    send.parameters.signing_secret = "$steps.pass.value";
    graph.inputs.push({ name: "key", kind: "secret" });
    const parameters = { value: "$inputs.key", condition: true };
    graph.steps.push({ id: "pass", type: "continue_if@1", parameters });
    const headers = { Accept: "b", "X-Source": "a" };
    await answerBy(() =>
      done({ count: 2 }, { effects: [effect({ headers, signing_secret: "own" })] }),
    );
    const body = { definition: graph, inputs: { image, key: "own" } };
    const answer = await run(body, `?workspace_id=${w.workspaceId}`, w.engineer);
    expect(answer.effects).toMatchObject([{ status: "queued" }]);
  });

  it("is sent every image of a list as a file under the name of its input", async () => {
    const came: Request[] = [];
    await answerBy((asked) => {
      came.push(asked);
      return done({ count: 2 });
    });
    const graph = seeing();
    graph.inputs.push({ name: "more", kind: "list<image>" });
    await run({ definition: graph, inputs: { image, more: [image, image] } });
    expect(came[0]?.head.images.map(({ name }) => name)).toEqual(["image", "more", "more"]);
    expect(came[0]?.head.inputs).toEqual({});
  });

  it.each([
    ["another address", () => done({ count: 2 }, { effects: [effect({ url: "https://x.com" })] })],
    ["a secret", () => done({ count: 2 }, { effects: [effect({ signing_secret: "other" })] })],
    ["no sink", () => done({ count: 2 }, { effects: [effect({}, { step: "see" })] })],
    ["an upload", () => done({ count: 2 }, { effects: [effect({}, { kind: "dataset_upload" })] })],
    ["an output that is none", () => done({ count: 2, more: 1 })],
    ["no output", () => done({})],
    ["a state", () => done({ count: 2 }, { state: { see: 1 } })],
    ["an image", () => done({ count: 2 }, { effects: [effect({}, { image: "!!" })] })],
    ["a file", () => done({ count: 2 }, { effects: [effect({}, { image: "aGVsbG8=" })] })],
    ["an element", () => done({ count: 2 }, { effects: [effect({}, { element: [0] })] })],
    ["it twice", () => done({ count: 2 }, { effects: [effect(), effect()] })],
    [
      "a model",
      () => {
        const model = { asked: "made-up", model_id: "x", name: "x", version: 1 };
        const own = { step: "see", type: "detector@1", elements: 1, masked: 0, cache_hits: 0 };
        return done({ count: 2 }, { steps: [{ ...own, ms: 1, warnings: [], models: [model] }] });
      },
    ],
  ])("is not believed where it answers %s beyond the plan", async (_, said) => {
    await answerBy(said);
    const before = await waiting();
    const slug = await deployed(telling());
    const refusal = await refused(`/workflows/serve/${slug}`, { inputs: { image } });
    expect(refusal).toMatchObject({ status: 502, code: "task_failed" });
    expect(await waiting()).toBe(before);
  });

  it("lets one of two runs of a stream at once do what it would, and refuses the other", async () => {
    const graph = seeing();
    graph.steps.push(...counting.steps, ...sending().steps);
    graph.inputs.push(...sending().inputs);
    graph.outputs.push({ name: "runs", value: "$steps.count.value" });
    graph.outputs.push(...sending().outputs);
    const slug = await deployed(graph);
    const inputs = { image, payload: 1 };
    const before = await waiting();
    const state = { $values: { runs: 1 } };
    await answerBy(() => done({ count: 2, runs: 1, sent: null }, { state }));
    const statuses = await Promise.all(
      [1, 2, 3].map(async () => {
        const path = `/workflows/serve/${slug}?stream=gate`;
        return (await annotator.send("POST", path, { inputs })).status;
      }),
    );
    expect(statuses.toSorted().slice(0, 1)).toEqual([200]);
    expect(statuses.every((status) => status === 200 || status === 409)).toBe(true);
    expect(await waiting()).toBe(before);
  });

  it("is told that none is there", async () => {
    end?.socket.terminate();
    await w.world.visionDatabase.execute(sql`UPDATE node SET revoked_at = now()`);
    const refusal = await refused("/workflows/run", { definition: seeing(), inputs: { image } });
    expect(refusal).toMatchObject({ status: 503, code: "no_node" });
  });
});
