// What an experiment over an endpoint's requests promotes. Goal: a promotion is one move, and can
// be taken back.

import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { Experiment } from "../../../edge/vision/experiments/campaigns/records.ts";
import { Endpoint } from "../../../shared/wire/endpoints.ts";
import { createEndpointWorld, type EndpointWorld } from "../../support/endpoint-world.ts";
import { askedExperiment, decideExperiment, shadowedEndpoint } from "../../support/experiments.ts";
import { scriptedNode } from "../../support/scripted-node.ts";

let w: EndpointWorld;
beforeAll(async () => {
  w = await createEndpointWorld();
});

/** Each test has nodes of its own. */
function withNodes() {
  beforeEach(() => w.fresh());
  afterEach(() => w.cutNodes());
}

const read = async (id: string) => Experiment.parse(await w.admin.ok("GET", `/experiments/${id}`));
const act = async (id: string, verb: string, body?: object) =>
  Experiment.parse(await w.admin.ok("POST", `/experiments/${id}/${verb}`, body));
const refused = (id: string, verb: string, body?: object) =>
  w.admin.refused("POST", `/experiments/${id}/${verb}`, body);

const asked = (slug: string, more: object = {}) => askedExperiment(w, slug, more);
const begin = async (slug: string, more: object = {}) =>
  Experiment.parse(await w.admin.ok("POST", "/experiments", asked(slug, more)));

const shadowed = () => shadowedEndpoint(w);

describe("a promotion", () => {
  withNodes();
  const decided = async (slug: string) => {
    const { experiment_id: id } = await begin(slug);
    await decideExperiment(w.world, id);
    return id;
  };

  it("is refused without a winner, and the experiment goes on", async () => {
    await w.opened();
    const { experiment_id: id } = await begin((await shadowed()).slug);
    const reply = await w.admin.send("POST", `/experiments/${id}/complete`, { promote: true });
    expect(await reply.json()).toMatchObject({ code: "state_conflict", verdict: "undecided" });
    expect(await read(id)).toMatchObject({ status: "running", promotion: null });
    expect(await refused(id, "complete", { alias: "staging" })).toEqual([422, "invalid_request"]);
    expect(await refused(id, "rollback")).toEqual([409, "state_conflict"]);
    expect(await act(id, "complete")).toMatchObject({ status: "completed", promotion: null });
    expect(await refused(id, "complete")).toEqual([409, "state_conflict"]);
  });

  it("without a node changes nothing, and is made when one is there", async () => {
    const { slug } = await shadowed();
    const id = await decided(slug);
    expect(await refused(id, "complete", { promote: true })).toEqual([503, "no_node"]);
    expect(await read(id)).toMatchObject({ status: "running", promotion: null });
    await w.opened();
    expect(await act(id, "complete", { promote: true })).toMatchObject({
      status: "completed",
      promotion: { kind: "endpoint" },
    });
  });

  it("names an alias where one is wanted, and is taken back only while it stands", async () => {
    await w.opened();
    const id = await decided((await shadowed()).slug);
    const done = await act(id, "complete", { promote: true, alias: "staging" });
    expect(done.promotion).toMatchObject({ kind: "alias", alias: "staging", from_model_id: null });
    const { rows } = await w.world.visionDatabase.execute<{ action: string }>(sql`
      SELECT action FROM audit_entry WHERE subject = ${`model:${w.two.model_id}`}
       ORDER BY id DESC LIMIT 1`);
    expect(rows).toEqual([{ action: "promoteModel" }]);
    await w.admin.ok("POST", `/models/${w.one.model_id}/promote`, { alias: "staging" });
    expect(await refused(id, "rollback")).toEqual([409, "state_conflict"]);
    await w.admin.ok("DELETE", `/models/${w.one.model_id}/names/staging`);
  });

  it("of an endpoint that moved on since is not taken back", async () => {
    await w.opened();
    const { slug } = await shadowed();
    const id = await decided(slug);
    await act(id, "complete", { promote: true });
    await w.admin.ok("PATCH", `/endpoints/${slug}`, { confidence: 0.9 });
    expect(await refused(id, "rollback")).toEqual([409, "state_conflict"]);
    const now = Endpoint.parse(await w.admin.ok("GET", `/endpoints/${slug}`));
    expect(now.serving).toEqual([w.two.model_id]);
  });

  it("that was cut off before its move is made by the next request", async () => {
    await w.opened();
    const { slug } = await shadowed();
    const id = await decided(slug);
    const { ended_at: at } = await act(id, "complete");
    const begun = { kind: "endpoint", slug, alias: null, from_model_id: null, move_id: null };
    const cut = { winner_model_id: w.two.model_id, ...begun, at, rolled_back_at: null };
    await w.world.visionDatabase.execute(sql`
      UPDATE experiment SET promotion = ${JSON.stringify(cut)}::jsonb WHERE id = ${id}::uuid`);
    expect(await refused(id, "rollback")).toEqual([409, "state_conflict"]);
    // As it was begun, whatever the second request asks for.
    const done = await act(id, "complete", { promote: true, alias: "staging" });
    expect(done.promotion).toMatchObject({ kind: "endpoint", slug });
    expect(done.promotion?.move_id).not.toBeNull();
    await act(id, "rollback");
    const now = Endpoint.parse(await w.admin.ok("GET", `/endpoints/${slug}`));
    expect([now.serving, now.shadowing]).toEqual([[w.one.model_id], w.two.model_id]);
  });

  it("takes no credit for a move that somebody else made before it", async () => {
    await w.opened();
    const { slug } = await shadowed();
    const id = await decided(slug);
    await act(id, "complete");
    // The endpoint is already as the promotion would have it.
    const models = [{ model_id: w.two.model_id }];
    await w.admin.ok("PATCH", `/endpoints/${slug}`, { models, shadow: null });
    const done = await act(id, "complete", { promote: true });
    expect(done.promotion).toMatchObject({ kind: "endpoint", move_id: null });
    expect((await act(id, "complete", { promote: true })).promotion?.move_id).toBeNull();
    expect(await refused(id, "rollback")).toEqual([409, "state_conflict"]);
  });

  it("whose move was made and not written down is recognised, and taken back once", async () => {
    await w.opened();
    const { slug } = await shadowed();
    const id = await decided(slug);
    const { promotion } = await act(id, "complete", { promote: true });
    const forget = (part: object) =>
      w.world.visionDatabase.execute(sql`
        UPDATE experiment SET promotion = promotion || ${JSON.stringify(part)}::jsonb
         WHERE id = ${id}::uuid`);
    await forget({ move_id: null });
    const again = await act(id, "complete", { promote: true });
    expect(again.promotion?.move_id).toBe(promotion?.move_id);
    // A rollback that was cut off after its move is completed by the next request.
    await act(id, "rollback");
    await forget({ rolled_back_at: null });
    expect((await act(id, "rollback")).promotion?.rolled_back_at).not.toBeNull();
    expect(Endpoint.parse(await w.admin.ok("GET", `/endpoints/${slug}`)).revision).toBe(3);
  });

  it("of an alias that was taken back, and not written down, is completed", async () => {
    await w.opened();
    const id = await decided((await shadowed()).slug);
    await act(id, "complete", { promote: true, alias: "staging" });
    await act(id, "rollback");
    await w.world.visionDatabase.execute(sql`
      UPDATE experiment SET promotion = promotion || '{"rolled_back_at": null}'::jsonb
       WHERE id = ${id}::uuid`);
    expect((await act(id, "rollback")).promotion?.rolled_back_at).not.toBeNull();
  });

  it("of a name that an endpoint follows has a node open the model first", async () => {
    await w.opened({ loaded: [w.one.model_id] });
    await w.admin.ok("POST", `/models/${w.one.model_id}/promote`, { alias: "production" });
    const models = [{ alias: "production" }];
    const { slug } = await w.make({ models, shadow: { model_id: w.two.model_id } });
    const { experiment_id: id } = await begin(slug, { baseline: { alias: "production" } });
    await decideExperiment(w.world, id);
    expect(await refused(id, "complete", { promote: true })).toEqual([503, "no_node"]);
    expect(await read(id)).toMatchObject({ status: "running", promotion: null });
    await w.opened();
    const done = await act(id, "complete", { promote: true });
    expect(done.promotion).toMatchObject({ kind: "alias", alias: "production" });
    await act(id, "rollback");
    await w.admin.ok("DELETE", `/models/${w.one.model_id}/names/production`);
  });

  it("tells a node's words where it cannot open the model, and moves nothing", async () => {
    const failing = async () => {
      const failed = { outcome: "failed", code: "bad_weights", detail: "no", retryable: false };
      const warm = () => ({ ...failed, outcome: "failed" as const });
      return (await scriptedNode(w.world, w.admin, { warm })).start();
    };
    await w.opened({ loaded: [w.one.model_id] });
    const { slug } = await w.make({ shadow: { model_id: w.two.model_id } });
    const { experiment_id: id } = await begin(slug);
    await decideExperiment(w.world, id);
    const stop = await failing();
    expect(await refused(id, "complete", { promote: true })).toEqual([502, "task_failed"]);
    expect(await read(id)).toMatchObject({ status: "running", promotion: null });
    await stop();
    await w.opened();
    await act(id, "complete", { promote: true });
    await w.forgetNodes();
    const stopAgain = await failing();
    expect(await refused(id, "rollback")).toEqual([502, "task_failed"]);
    await stopAgain();
    expect(await read(id)).toMatchObject({ promotion: { rolled_back_at: null } });
  });

  it("of two at once is made once", async () => {
    await w.opened();
    const { slug } = await shadowed();
    const id = await decided(slug);
    const path = `/experiments/${id}/complete`;
    const answers = await Promise.all(
      [1, 2, 3].map(() => w.admin.send("POST", path, { promote: true })),
    );
    const statuses = answers.map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(1);
    expect(new Set(statuses)).toEqual(new Set([200, 409]));
    expect(Endpoint.parse(await w.admin.ok("GET", `/endpoints/${slug}`)).revision).toBe(2);
    expect((await read(id)).promotion?.move_id).not.toBeNull();
  });
});
