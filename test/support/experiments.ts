// Experiments over the endpoints of a world, and what they need to be there.

import { sql } from "drizzle-orm";
import { emptyTrial } from "../../edge/vision/serving/endpoints/trials.ts";
import type { Endpoint } from "../../shared/wire/endpoints.ts";
import type { EndpointWorld } from "./endpoint-world.ts";
import type { Api } from "./scripted-node.ts";
import type { World } from "./world.ts";

/** What asks for an experiment of a world's two models at an endpoint. */
export const askedExperiment = (w: EndpointWorld, slug: string, more: object = {}) => ({
  name: "faster",
  endpoint: slug,
  baseline: { model_id: w.one.model_id },
  candidate: { model_id: w.two.model_id },
  metric: "latency",
  minimum_effect: 0.1,
  ...more,
});

/** An endpoint of the first model, with the second one as its shadow. */
export const shadowedEndpoint = (w: EndpointWorld): Promise<Endpoint> =>
  w.make({ shadow: { model_id: w.two.model_id } });

/** An endpoint that both models share. */
export const splitEndpoint = (w: EndpointWorld, weight = 1): Promise<Endpoint> =>
  w.make({ models: [{ model_id: w.one.model_id }, { model_id: w.two.model_id, weight }] });

/** Sums of logarithms of milliseconds: the candidate takes two thirds of the time. */
const DECIDED = {
  shadow: { baseline: {}, candidate: { count: 1_000, sum: -400, squares: 260, live: 3_000 } },
  split: {
    baseline: { count: 1_000, sum: 3_000, squares: 9_100, live: 0 },
    candidate: { count: 1_000, sum: 2_600, squares: 6_860, live: 0 },
  },
};

/** Makes an experiment's candidate the better one by what it has counted. */
export async function decideExperiment(
  { visionDatabase }: Pick<World, "visionDatabase">,
  id: string,
  source: keyof typeof DECIDED = "shadow",
): Promise<void> {
  const trial = (sums: object) => ({
    ...emptyTrial(),
    requests: 1_000,
    latency: { ...emptyTrial().latency, ...sums },
  });
  const { baseline, candidate } = DECIDED[source];
  const counted = { baseline: trial(baseline), candidate: trial(candidate) };
  await visionDatabase.execute(sql`
    UPDATE experiment SET counted = ${JSON.stringify(counted)}::jsonb WHERE id = ${id}::uuid`);
}

/** The models of examples, and whose they are. */
export interface ExampleModels {
  workspaceId: string;
  modelId: string;
  olderId: string;
}

/** A world with examples, as far as those of experiments need it. */
export interface ExampleWorld extends ExampleModels {
  admin: Api;
  world: Pick<World, "visionDatabase">;
  /** The description's body of a new experiment. */
  body: object;
}

let gates = 0;
/** A new endpoint of a model whose shadow is the older one; its slug. */
async function exampleGate(w: ExampleWorld): Promise<string> {
  const slug = `trial-gate-${++gates}`;
  const models = [{ model_id: w.modelId }];
  const shadow = { model_id: w.olderId };
  await w.admin.ok("POST", "/endpoints", { slug, workspace_id: w.workspaceId, models, shadow });
  return slug;
}

/** An experiment as the description asks for it, at a new endpoint; its id. */
export async function exampleExperiment(w: ExampleWorld): Promise<string> {
  const made = await w.admin.ok<{ experiment_id: string }>("POST", "/experiments", {
    ...w.body,
    endpoint: await exampleGate(w),
    baseline: { model_id: w.modelId },
    candidate: { model_id: w.olderId },
  });
  return made.experiment_id;
}

/** One whose candidate has answered a thousand images in two thirds of the time. */
async function decidedExample(w: ExampleWorld): Promise<string> {
  const id = await exampleExperiment(w);
  await decideExperiment(w.world, id);
  return id;
}

/** What the examples of experiments need: the names of what is made, by operation. */
export const experimentExamples = (
  worldOf: () => ExampleWorld,
): Record<string, () => Promise<Record<string, string>>> => {
  const fresh = async () => ({ experiment_id: await exampleExperiment(worldOf()) });
  return {
    makeExperiment: async () => {
      const w = worldOf();
      await w.admin.ok("POST", `/models/${w.olderId}/promote`, { alias: "canary" });
      return { slug: await exampleGate(w) };
    },
    deleteExperiment: fresh,
    pauseExperiment: fresh,
    resumeExperiment: async () => {
      const made = await fresh();
      await worldOf().admin.ok("POST", `/experiments/${made.experiment_id}/pause`);
      return made;
    },
    stopExperiment: fresh,
    completeExperiment: async () => ({ experiment_id: await decidedExample(worldOf()) }),
    rollBackExperiment: async () => {
      const experiment_id = await decidedExample(worldOf());
      const path = `/experiments/${experiment_id}/complete`;
      await worldOf().admin.ok("POST", path, { promote: true });
      return { experiment_id };
    },
  };
};
