// The beginning of an experiment: which models it is about, how they serve, how long it will take.

import { sql } from "drizzle-orm";
import { assert, Failure } from "../../../../shared/errors.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import type { JobRow } from "../../labeling/jobs/jobs.ts";
import { type ModelRow, modelCalled } from "../../models/registry.ts";
import type { EndpointRow } from "../../serving/endpoints/endpoints.ts";
import { targetOf } from "../../serving/endpoints/settings.ts";
import type { ExperimentBody } from "./bodies.ts";
import { createExperiment, type ExperimentRow } from "./experiments.ts";
import { resultsOf } from "./figures.ts";
import { planOf } from "./plan.ts";
import {
  type ExperimentMetric,
  type ExperimentRules,
  type ExperimentSource,
  METRICS_OF,
} from "./records.ts";
import { historyOf, lookUpServing, markOf, noTraffic, readMeter } from "./traffic.ts";

/** What an experiment is over. */
export type Over = { endpoint: EndpointRow } | { job: JobRow };

/** What is asked for. */
export interface ExperimentRequest {
  body: ExperimentBody;
  rules: ExperimentRules;
  over: Over;
  createdBy: string;
}

/**
 * Begins an experiment. Fails with `invalid_request` where the models do not serve there as the
 * metric needs it, with `not_found` for models that are not the workspace's, and with
 * `state_conflict` where an alias means none.
 */
export async function beginExperiment(
  parts: Parts,
  { body, rules, over, createdBy }: ExperimentRequest,
): Promise<ExperimentRow> {
  const { workspaceId } = "endpoint" in over ? over.endpoint : over.job;
  const modelOf = (name: "baseline" | "candidate") => {
    const { model_id, alias } = targetOf(body[name], name);
    const called = model_id ?? alias;
    assert(called, "a target has an id or an alias");
    return modelCalled(parts.database, workspaceId, called);
  };
  const [baseline, candidate] = [await modelOf("baseline"), await modelOf("candidate")];
  const pair = { baselineModelId: baseline.modelId, candidateModelId: candidate.modelId };
  if (baseline.modelId === candidate.modelId) {
    throw new Failure("invalid_request", "candidate: is the baseline itself");
  }
  const { metric, name, hypothesis } = body;
  const own = { workspaceId, name, hypothesis, metric, rules, createdBy, ...pair };
  const begun =
    "endpoint" in over
      ? await overEndpoint(parts, { ...own, endpoint: over.endpoint })
      : await overJob(parts.database, { ...own, job: over.job, models: [baseline, candidate] });
  return createExperiment(parts, { ...own, ...begun });
}

/** What all experiments have in common when they begin. */
interface Begin {
  metric: ExperimentMetric;
  rules: ExperimentRules;
  baselineModelId: string;
  candidateModelId: string;
}

function assertMeasured(metric: ExperimentMetric, source: ExperimentSource) {
  if (METRICS_OF[source].includes(metric)) return;
  const where = { split: "a split", shadow: "a shadow", reviewed: "reviewed frames" }[source];
  const possible = METRICS_OF[source].join(", ");
  throw new Failure("invalid_request", `metric: over ${where} there is ${possible}`);
}

async function overEndpoint(
  parts: Parts,
  { endpoint, ...begin }: Begin & { endpoint: EndpointRow },
) {
  const serving = await lookUpServing(parts.database, endpoint, begin);
  if (!serving) {
    const detail =
      "endpoint: it neither splits its traffic between both models nor has the candidate as the " +
      "baseline's shadow";
    throw new Failure("invalid_request", detail);
  }
  const { source, terms } = serving;
  assertMeasured(begin.metric, source);
  const { endpointId, slug } = endpoint;
  const question = { ...begin, endpointId, source };
  const reading = await readMeter(parts, question);
  const mark = markOf(reading);
  const history = await historyOf(parts, question, { reading: reading.counts, serving });
  const plan = { ...planOf({ ...begin, source }, history), terms };
  const results = resultsOf({ ...begin, source, plan }, { traffic: noTraffic() });
  return { source, endpointId, slug, jobId: null, mark, plan, results };
}

async function overJob(
  database: Database,
  { job, models, ...begin }: Begin & { job: JobRow; models: readonly ModelRow[] },
) {
  const source = "reviewed" as const;
  assertMeasured(begin.metric, source);
  const { rows } = await database.execute<{ name: string }>(sql`
    SELECT name FROM job_class WHERE job_id = ${job.id}::uuid`);
  const known = rows.map(({ name }) => name);
  const stranger = models.find(({ classes }) => !classes.some((name) => known.includes(name)));
  if (stranger) {
    const detail = `job_id: the job has no class of the model ${stranger.name} v${stranger.version}`;
    throw new Failure("invalid_request", detail);
  }
  const plan = planOf({ ...begin, source }, null);
  const reviewed = { scores: [], baselineFailures: 0, candidateFailures: 0 };
  const results = resultsOf({ ...begin, source, plan }, { reviewed });
  return { source, endpointId: null, slug: null, jobId: job.id, mark: null, plan, results };
}
