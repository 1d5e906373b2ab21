// Experiments over an endpoint's requests, with nodes whose answers the test holds. Goal: each
// image counts once and only while the experiment runs; what the figures say is what happens to it;
// a promotion is one move, and can be taken back.

import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { Experiment } from "../../../edge/vision/experiments/campaigns/records.ts";
import { LINE_STATUS } from "../../../shared/tasks/line.ts";
import { Endpoint } from "../../../shared/wire/endpoints.ts";
import {
  answering,
  createEndpointWorld,
  type EndpointWorld,
  image,
  refusal,
} from "../../support/endpoint-world.ts";
import {
  askedExperiment,
  decideExperiment,
  shadowedEndpoint,
  splitEndpoint,
} from "../../support/experiments.ts";
import { registerModel } from "../../support/registered-model.ts";

const ABSENT = "00000000-0000-4000-8000-000000000000";

let w: EndpointWorld;
beforeAll(async () => {
  w = await createEndpointWorld();
});

/** Each test has nodes of its own. */
function withNodes() {
  beforeEach(() => w.fresh());
  afterEach(() => w.cutNodes());
}

const tick = () => w.world.tick(Date.now());
const read = async (id: string) => Experiment.parse(await w.admin.ok("GET", `/experiments/${id}`));
const act = async (id: string, verb: string, body?: object) =>
  Experiment.parse(await w.admin.ok("POST", `/experiments/${id}/${verb}`, body));
const refused = (id: string, verb: string, body?: object) =>
  w.admin.refused("POST", `/experiments/${id}/${verb}`, body);

const asked = (slug: string, more: object = {}) => askedExperiment(w, slug, more);
const begin = async (slug: string, more: object = {}) =>
  Experiment.parse(await w.admin.ok("POST", "/experiments", asked(slug, more)));

const shadowed = () => shadowedEndpoint(w);
const split = () => splitEndpoint(w);

/** Predicts so often, one after another. */
async function ask(slug: string, count: number) {
  for (let request = 0; request < count; request++) await (await w.predict(slug)).arrayBuffer();
}
/** Waits until the meter has heard of so many requests, and of as many looks of a shadow. */
async function heard(slug: string, requests: number, mirrored = 0) {
  await w.counted(slug, requests);
  await expect
    .poll(async () => (await w.status(slug)).windows["1h"].shadows[0]?.mirrored ?? 0)
    .toBe(mirrored);
}

/** Nodes at which one of the models takes its time. */
const slow = (modelId: string, ms = 100) => ({
  answer: async ({ model }: { model: { model_id: string } }) => {
    if (model.model_id === modelId) await new Promise((done) => setTimeout(done, ms));
    return answering();
  },
});
/** Nodes at which one of the models fails. */
const failing = (modelId: string) => ({
  answer: ({ model }: { model: { model_id: string } }) =>
    model.model_id === modelId
      ? { status: LINE_STATUS.refused, body: { code: "internal" as const, detail: "no" } }
      : answering(),
});

describe("over a shadow", () => {
  withNodes();
  it("finds the faster model, ends, promotes it, and takes that back", async () => {
    await w.opened(slow(w.one.model_id));
    const { slug, settings } = await shadowed();
    // What came before does not count.
    await ask(slug, 2);
    await heard(slug, 2, 2);
    const begun = await begin(slug, { hypothesis: "half the time" });
    expect(begun).toMatchObject({
      status: "running",
      reason: null,
      source: "shadow",
      slug,
      job_id: null,
      plan: { unit: "images", from: "assumption" },
      results: { samples: 0, verdict: "undecided", e_value: 1, effect: null },
      rules: { direction: "lower", alpha: 0.05, budget: { samples: null, days: 14 } },
    });
    await ask(slug, 30);
    await heard(slug, 32, 32);
    await tick();
    expect(await read(begun.experiment_id)).toMatchObject({
      status: "running",
      results: { samples: 30, verdict: "undecided" },
    });
    await ask(slug, 40);
    await heard(slug, 72, 72);
    // However many look at once, each image counts once.
    await Promise.all([tick(), tick(), tick()]);
    const ended = await read(begun.experiment_id);
    expect(ended).toMatchObject({
      status: "completed",
      reason: "decided",
      results: { samples: 70, verdict: "candidate_better", method: "normal_mixture" },
    });
    expect(ended.results.high).toBeLessThan(0);
    expect(ended.results.p_value).toBeLessThan(0.05);

    const promoted = await act(begun.experiment_id, "complete", { promote: true });
    expect(promoted.promotion).toMatchObject({
      winner_model_id: w.two.model_id,
      kind: "endpoint",
      slug,
      rolled_back_at: null,
    });
    const now = Endpoint.parse(await w.admin.ok("GET", `/endpoints/${slug}`));
    expect(now).toMatchObject({ serving: [w.two.model_id], shadowing: null, revision: 2 });
    expect(await refused(begun.experiment_id, "complete", { promote: true })).toEqual([
      409,
      "state_conflict",
    ]);

    const back = await act(begun.experiment_id, "rollback");
    expect(back.promotion?.rolled_back_at).not.toBeNull();
    const was = Endpoint.parse(await w.admin.ok("GET", `/endpoints/${slug}`));
    expect(was).toMatchObject({ settings, serving: [w.one.model_id], revision: 3 });
    expect(await refused(begun.experiment_id, "rollback")).toEqual([409, "state_conflict"]);
  });

  it("counts a shadow's failures, and breaks its guard rail by them", async () => {
    await w.opened(failing(w.two.model_id));
    const { slug } = await shadowed();
    const guarded = { guard_rails: { error_rate: 0.2 } };
    const flagged = { guard_rails: { error_rate: 0.2, action: "flag" } };
    const [one, other] = [await begin(slug, guarded), await begin(slug, flagged)];
    await ask(slug, 12);
    await heard(slug, 12, 12);
    await tick();
    expect(await read(one.experiment_id)).toMatchObject({
      status: "stopped",
      reason: "guard_rail",
      results: { candidate: { failures: 12 }, guard_rails: [{ value: 1, broken: true }] },
    });
    expect(await read(other.experiment_id)).toMatchObject({
      status: "running",
      results: { guard_rails: [{ broken: true }] },
    });
    // What was stopped has no winner.
    expect(await refused(one.experiment_id, "complete")).toEqual([409, "state_conflict"]);
  });
});

describe("over a split", () => {
  withNodes();
  it("holds both models' requests against each other, and leaves others' faults out", async () => {
    await w.opened(failing(w.two.model_id));
    const { slug } = await split();
    const { experiment_id: id, plan } = await begin(slug, {
      metric: "error_rate",
      minimum_effect: 0.05,
    });
    expect(plan).toMatchObject({ unit: "requests", spread: 0.01 });
    await ask(slug, 40);
    // A file that is no image is its sender's fault.
    const none = new FormData();
    none.append("file", new Blob(["no image"]), "a.png");
    for (let request = 0; request < 5; request++) {
      expect((await w.predict(slug, "", w.admin, none)).status).toBe(415);
    }
    await heard(slug, 45);
    await tick();
    const { results, status, reason } = await read(id);
    expect([results.samples, results.baseline.failures]).toEqual([40, 0]);
    expect(results.candidate).toMatchObject({ value: 1, failures: results.candidate.samples });
    expect([status, reason, results.verdict]).toEqual(["completed", "decided", "baseline_better"]);
    // The winner is who was there: the split goes.
    const done = await act(id, "complete", { promote: true });
    expect(done.promotion).toMatchObject({ winner_model_id: w.one.model_id, kind: "endpoint" });
    const now = Endpoint.parse(await w.admin.ok("GET", `/endpoints/${slug}`));
    expect(now.serving).toEqual([w.one.model_id]);
  });

  it("counts whom a model keeps waiting until they leave, and no outage", async () => {
    const node = await w.opened(slow(w.two.model_id, 6_000));
    const { slug } = await split();
    const { experiment_id: id } = await begin(slug, { metric: "error_rate" });
    const asked = async () => {
      const path = `${w.world.urls.vision}/api/v1/endpoints/${slug}/predict`;
      const headers = { Authorization: `Bearer ${w.admin.token}` };
      const init = { method: "POST", headers, body: image(), signal: AbortSignal.timeout(1_500) };
      return fetch(path, init).then(
        (reply) => reply.arrayBuffer().then(() => reply.status),
        () => "left",
      );
    };
    const ends: unknown[] = [];
    // Which model a request goes to is chance: on until the slow one had one.
    while (ends.length < 8 || !ends.includes("left")) ends.push(await asked());
    const left = node.asked.filter(({ model }) => model.model_id === w.two.model_id).length;
    const samples = ends.length;
    await heard(slug, samples);
    await tick();
    const { results } = await read(id);
    expect(results).toMatchObject({ samples, candidate: { samples: left, failures: 0 } });
    node.cut();
    await w.forgetNodes();
    for (let request = 0; request < 4; request++) {
      expect(await refusal(await w.predict(slug))).toEqual([503, "no_node"]);
    }
    await heard(slug, samples + 4);
    await tick();
    expect((await read(id)).results.samples).toBe(samples);
  });

  it("moves the alias that the endpoint follows, and takes that back", async () => {
    await w.opened();
    await w.admin.ok("POST", `/models/${w.one.model_id}/promote`, { alias: "production" });
    const models = [{ alias: "production" }, { model_id: w.two.model_id }];
    const { slug } = await w.make({ models });
    const { experiment_id: id } = await begin(slug, { baseline: { alias: "production" } });
    await decideExperiment(w.world, id, "split");
    const done = await act(id, "complete", { promote: true });
    expect(done).toMatchObject({
      status: "completed",
      reason: "by_person",
      promotion: {
        kind: "alias",
        alias: "production",
        from_model_id: w.one.model_id,
        winner_model_id: w.two.model_id,
      },
    });
    const named = () => w.admin.ok<{ model_id: string }[]>("GET", "/models?alias=production");
    expect((await named()).map(({ model_id }) => model_id)).toEqual([w.two.model_id]);
    await act(id, "rollback");
    expect((await named()).map(({ model_id }) => model_id)).toEqual([w.one.model_id]);
    const moves = await w.admin.ok<{ rollback_of: number | null }[]>(
      ...(["GET", "/models/moves?name=production"] as const),
    );
    expect(moves[0]?.rollback_of).toBe(done.promotion?.move_id);
    await w.admin.ok("DELETE", `/models/${w.one.model_id}/names/production`);
  });
});

describe("a life", () => {
  withNodes();
  it("counts nothing while it is paused", async () => {
    await w.opened();
    const { slug } = await shadowed();
    const { experiment_id: id } = await begin(slug);
    await ask(slug, 5);
    await heard(slug, 5, 5);
    expect(await act(id, "pause")).toMatchObject({
      status: "paused",
      reason: "by_person",
      results: { samples: 5 },
    });
    expect(await refused(id, "pause")).toEqual([409, "state_conflict"]);
    await ask(slug, 7);
    await heard(slug, 12, 12);
    await tick();
    expect(await read(id)).toMatchObject({ status: "paused", results: { samples: 5 } });
    expect(await act(id, "resume")).toMatchObject({ status: "running", reason: null });
    expect(await refused(id, "resume")).toEqual([409, "state_conflict"]);
    await ask(slug, 3);
    await heard(slug, 15, 15);
    expect(await act(id, "stop")).toMatchObject({
      status: "stopped",
      reason: "by_person",
      results: { samples: 8 },
    });
    for (const verb of ["pause", "resume", "stop", "complete"]) {
      expect([verb, await refused(id, verb)]).toEqual([verb, [409, "state_conflict"]]);
    }
  });

  it("pauses when the endpoint moves, and goes on when it serves both again", async () => {
    await w.opened();
    const { slug } = await split();
    const { experiment_id: id } = await begin(slug);
    await w.admin.ok("PATCH", `/endpoints/${slug}`, { models: [{ model_id: w.one.model_id }] });
    await tick();
    expect(await read(id)).toMatchObject({ status: "paused", reason: "endpoint_moved" });
    expect(await refused(id, "resume")).toEqual([409, "state_conflict"]);
    // As a shadow it would be another experiment.
    await w.admin.ok("PATCH", `/endpoints/${slug}`, { shadow: { model_id: w.two.model_id } });
    expect(await refused(id, "resume")).toEqual([409, "state_conflict"]);
    for (let back = 0; back < 2; back++) await w.admin.ok("POST", `/endpoints/${slug}/rollback`);
    expect(await act(id, "resume")).toMatchObject({ status: "running" });
  });

  it("pauses when the shares or what is told change, until they are as they were", async () => {
    await w.opened();
    const { slug } = await split();
    const { experiment_id: id, plan } = await begin(slug);
    expect(plan).not.toHaveProperty("terms");
    const pair = (weight: number) => [
      { model_id: w.one.model_id },
      { model_id: w.two.model_id, weight },
    ];
    const changes = [{ models: pair(3) }, { confidence: 0.77 }, { image_size: 96 }];
    for (const change of changes) {
      await w.admin.ok("PATCH", `/endpoints/${slug}`, change);
      await tick();
      expect(await read(id)).toMatchObject({ status: "paused", reason: "endpoint_moved" });
      expect(await refused(id, "resume")).toEqual([409, "state_conflict"]);
      await w.admin.ok("POST", `/endpoints/${slug}/rollback`);
      expect(await act(id, "resume")).toMatchObject({ status: "running" });
    }
    await w.admin.ok("PATCH", `/endpoints/${slug}`, { description: "the same" });
    // Twice the weight of each is the same share.
    const twice = pair(2).map(({ model_id }) => ({ model_id, weight: 2 }));
    await w.admin.ok("PATCH", `/endpoints/${slug}`, { models: twice });
    await tick();
    expect((await read(id)).status).toBe("running");
  });

  it("ends with its endpoint, and with its models", async () => {
    await w.opened();
    const gone = await shadowed();
    const spare = await registerModel(w.world, w.workspaceId, { classes: ["disc", "star"] });
    await w.admin.ok("POST", `/models/${spare.model_id}/promote`, { alias: "canary" });
    const follower = await w.make({ shadow: { alias: "canary" } });
    const one = await begin(gone.slug);
    const other = await begin(follower.slug, { candidate: { alias: "canary" } });
    expect(other.candidate_model_id).toBe(spare.model_id);
    await w.admin.ok("DELETE", `/endpoints/${gone.slug}`);
    await w.admin.ok("DELETE", `/models/${spare.model_id}/names/canary`);
    await w.admin.ok("DELETE", `/models/${spare.model_id}`);
    await tick();
    expect(await read(one.experiment_id)).toMatchObject({
      status: "stopped",
      reason: "endpoint_deleted",
    });
    expect(await read(other.experiment_id)).toMatchObject({
      status: "stopped",
      reason: "model_deleted",
    });
  });

  it("ends with its budget of samples, or of days, paused or not", async () => {
    await w.opened();
    const { slug } = await shadowed();
    const short = await begin(slug, { budget: { samples: 4 } });
    const long = await begin(slug, { budget: { days: 2 } });
    const paused = await begin(slug, { budget: { days: 2 } });
    await act(paused.experiment_id, "pause");
    await ask(slug, 4);
    await heard(slug, 4, 4);
    await w.world.visionDatabase.execute(sql`
      UPDATE experiment SET created_at = now() - interval '2 days'
       WHERE id IN (${long.experiment_id}::uuid, ${paused.experiment_id}::uuid)`);
    await tick();
    for (const { experiment_id: id } of [short, long, paused]) {
      expect(await read(id)).toMatchObject({ status: "completed", reason: "budget" });
    }
  });

  it("is listed by state and page, and deleted", async () => {
    const { slug } = await shadowed();
    const made = [await begin(slug, { name: "ünïcode ✓ 名" }), await begin(slug)];
    const list = async (query: string) =>
      Experiment.array().parse(await w.admin.ok("GET", `/experiments${query}`));
    const newest = (await list("?limit=2")).map(({ experiment_id: id }) => id);
    expect(newest).toEqual(made.map(({ experiment_id: id }) => id).toReversed());
    expect((await list("?limit=1&offset=1"))[0]).toMatchObject({ name: "ünïcode ✓ 名" });
    expect((await list("?status=stopped")).every(({ status }) => status === "stopped")).toBe(true);
    expect(await list(`?workspace_id=${w.workspaceId}&limit=1`)).toHaveLength(1);
    expect(await w.admin.refused("GET", `/experiments?workspace_id=${ABSENT}`)).toEqual([
      404,
      "not_found",
    ]);
    for (const { experiment_id: id } of made) {
      expect((await w.admin.send("DELETE", `/experiments/${id}`)).status).toBe(204);
      expect(await w.admin.refused("GET", `/experiments/${id}`)).toEqual([404, "not_found"]);
      expect(await w.admin.refused("DELETE", `/experiments/${id}`)).toEqual([404, "not_found"]);
    }
  });

  it("shares its workspace with 49 others at most, and one bad one holds up none", async () => {
    await w.opened();
    const { slug } = await shadowed();
    const { experiment_id: id } = await begin(slug);
    // A row that no look understands, and that is looked at first.
    await w.world.visionDatabase.execute(sql`
      INSERT INTO experiment (id, workspace_id, name, source, endpoint_id, baseline_model_id,
        candidate_model_id, metric, rules, plan, results, looked_at)
      SELECT gen_random_uuid(), workspace_id, 'bad', source, endpoint_id, baseline_model_id,
        candidate_model_id, metric, '{}', '{}', results, now() - interval '1 hour'
        FROM experiment, generate_series(1, 50) WHERE id = ${id}::uuid`);
    expect(await w.admin.refused("POST", "/experiments", asked(slug))).toEqual([
      409,
      "state_conflict",
    ]);
    await ask(slug, 2);
    await heard(slug, 2, 2);
    await tick();
    expect((await read(id)).results.samples).toBe(2);
    // Next time others come before it.
    const { rows } = await w.world.visionDatabase.execute(sql`
      SELECT count(*)::int AS count FROM experiment
       WHERE name = 'bad' AND looked_at > now() - interval '30 minutes'`);
    expect(rows).toEqual([{ count: 50 }]);
    await w.world.visionDatabase.execute(sql`DELETE FROM experiment WHERE name = 'bad'`);
  });

  it("ends with its days, even where no look succeeds", async () => {
    await w.opened();
    const { slug } = await shadowed();
    const { experiment_id: id } = await begin(slug);
    const { rules } = await read(id);
    await w.world.visionDatabase.execute(sql`
      UPDATE experiment SET rules = '{"budget": {"days": 2}}',
        created_at = now() - interval '50 hours' WHERE id = ${id}::uuid`);
    await tick();
    await w.world.visionDatabase.execute(sql`
      UPDATE experiment SET rules = ${JSON.stringify(rules)}::jsonb WHERE id = ${id}::uuid`);
    expect(await read(id)).toMatchObject({ status: "completed", reason: "budget" });
  });

  it("shares its workspace with 999 that ended, at most", async () => {
    await w.opened();
    const { slug } = await shadowed();
    const { experiment_id: id } = await begin(slug);
    await act(id, "stop");
    await w.world.visionDatabase.execute(sql`
      INSERT INTO experiment (id, workspace_id, name, source, endpoint_id, baseline_model_id,
        candidate_model_id, metric, rules, plan, results, state, reason, ended_at)
      SELECT gen_random_uuid(), workspace_id, 'ended', source, endpoint_id, baseline_model_id,
        candidate_model_id, metric, rules, plan, results, state, reason, ended_at
        FROM experiment, generate_series(1, 1000) WHERE id = ${id}::uuid`);
    const reply = await w.admin.send("POST", "/experiments", asked(slug));
    expect([reply.status, await reply.json()]).toMatchObject([409, { experiments_max: 1_000 }]);
    await w.world.visionDatabase.execute(sql`DELETE FROM experiment WHERE name = 'ended'`);
    await begin(slug);
  });
});
