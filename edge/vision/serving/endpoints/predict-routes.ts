// What keys of named endpoints open: predictions and the status. And what all predictions of a
// workspace came to.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { MaskedPrediction } from "../../../../shared/tasks/predict-task.ts";
import { EndpointStatus, MetricsSummary, WINDOWS } from "../../../../shared/wire/endpoints.ts";
import { headers } from "../../../http/description.ts";
import { json } from "../../../http/route.ts";
import { text, WITHOUT_NUL } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { type Caller, callerOf, workspaceFor, workspacesOf } from "../../auth/scope.ts";
import { toItsEnd } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { listModels, namedModel } from "../../models/registry.ts";
import { servingNodes } from "../../tasks/nodes/nodes.ts";
import { edgeProblem } from "../predict/edge.ts";
import { fileBody } from "../predict/image-requests.ts";
import { maskQuery } from "../predict/masks.ts";
import { keyHolder, openedFor } from "./access.ts";
import { listEndpoints } from "./endpoints.ts";
import { summaryOf, windowRecord } from "./figures.ts";
import { defaultMeter, endpointMeter, type MeterReading, type MeterRpc } from "./meter.ts";
import { predictAt } from "./predict.ts";
import { slugParam, slugQuery } from "./routes.ts";
import { ServedModels, servingModels, sized } from "./settings.ts";

const tag = "Endpoints";
const STICKY_KEY_MAX = 200;
const ANSWER_HEADERS = headers(
  "X-Model-Id",
  "X-Served-By",
  "X-Model-Precision",
  "X-Masks-Left-Out",
);
/** What a meter has counted until now; fails with `store_unavailable` where it does not answer. */
async function readingOf({ clock }: Parts, meter: MeterRpc): Promise<MeterReading> {
  return meter.read(clock()).catch((cause: unknown) => {
    throw new Failure("store_unavailable", "the meter does not answer; try again", { cause });
  });
}

/** The workspace that is meant: where it is not named, the only one that has an active model. */
async function summarizedWorkspace(
  { database }: Parts,
  caller: Caller,
  named: string | undefined,
): Promise<string> {
  if (named === undefined) {
    const active = await listModels(database, workspacesOf(caller), { called: "active" });
    if (active.length === 1) return active[0]?.workspaceId as string;
  }
  return workspaceFor(caller, named, "viewer");
}

/** Routes of predictions, status and metrics. */
export const endpointServingRoutes: readonly Route[] = [
  route(
    {
      call: "POST /endpoints/{slug}/predict",
      operationId: "predictAtEndpoint",
      tag,
      summary: "Prediction against a named endpoint",
      description:
        "multipart/form-data with `file`, as `POST /predict/image`, and answered like it. Needs the " +
        "role annotator, or a key of the endpoint. Where traffic is split, the same `sticky_key` gets " +
        "the same model for as long as the split lets it: after a change of weights only those keys " +
        "move that have to. `X-Model-Id` names the model, `X-Served-By` the node that answered at once. " +
        "`mask` is as there; the drift of scores looks at such a request only where the endpoint tells " +
        "all that it looks at.",
      who: keyHolder,
      params: slugParam,
      query: z.object({
        ...slugQuery,
        sticky_key: text().min(1).max(STICKY_KEY_MAX).optional().meta({
          description: "such as the id of a camera or a customer; is neither stored nor logged",
          pattern: WITHOUT_NUL,
        }),
        mask: maskQuery,
      }),
      body: fileBody,
      answers: { 200: json("detections", z.array(MaskedPrediction), ANSWER_HEADERS) },
      errors: [
        "bad_body",
        "forbidden",
        "state_conflict",
        "file_too_large",
        "quota_exceeded",
        "unsupported_media",
        "overloaded",
        "rate_limited",
        "task_failed",
        "no_node",
      ],
    },
    async (context) => {
      const parts = context.var.service;
      const { sticky_key, mask, ...query } = context.req.valid("query");
      const name = { ...context.req.valid("param"), ...query };
      const opened = await openedFor(context, name, "annotator");
      const work = predictAt(parts, opened, {
        request: context.req.raw,
        stickyKey: sticky_key ?? null,
        mask,
        defer: (later) => context.executionCtx.waitUntil(later.catch(() => {})),
      });
      const answer = await toItsEnd(context, work);
      context.header("X-Model-Id", answer.modelId);
      const { servedBy } = answer;
      if (servedBy) context.header("X-Served-By", servedBy);
      context.header("X-Model-Precision", answer.precision);
      if (mask !== "none") context.header("X-Masks-Left-Out", String(answer.masksLeftOut));
      return context.json(answer.predictions, 200);
    },
  ),
  route(
    {
      call: "GET /endpoints/{slug}/status",
      operationId: "readEndpointStatus",
      tag,
      summary: "Health and figures of a named endpoint",
      description:
        "A key of the endpoint opens it, too. Every request that reached the endpoint is counted once, " +
        "within a second of its answer; ten seconds of counts are in memory only. Where the process that " +
        "served it was lost, what it counted in its last second is lost, and a request that it had under " +
        "way counts as an error `unknown`. Percentiles are within 1 % of the true ones.",
      who: keyHolder,
      params: slugParam,
      query: z.object(slugQuery),
      answers: { 200: json("how it stands", EndpointStatus) },
    },
    async (context) => {
      const parts = context.var.service;
      const { database } = parts;
      const name = { ...context.req.valid("param"), ...context.req.valid("query") };
      const { row } = await openedFor(context, name, "viewer");
      const { workspaceId, endpointId } = row;
      const reading = await readingOf(parts, endpointMeter(parts, endpointId));
      const answering = servingModels(new ServedModels(row.models), row);
      const serving = answering.map(({ modelId }) => modelId);
      const sideMin = row.settings.image_size ?? 0;
      const edge = answering.some((model) => edgeProblem(parts, model, sideMin) === null);
      const [first] = answering;
      const model = first ? sized(first, row.settings) : null;
      const nodes = await servingNodes(database, { workspaceId, model });
      const { windows } = reading;
      const status: EndpointStatus = {
        endpoint_id: endpointId,
        slug: row.slug,
        workspace_id: workspaceId,
        health: serving.length === 0 ? "no_model" : nodes.able > 0 || edge ? "ok" : "no_node",
        serving,
        nodes,
        in_flight: reading.inFlight,
        windows: {
          "1h": windowRecord(windows["1h"]),
          "24h": windowRecord(windows["24h"]),
          "7d": windowRecord(windows["7d"]),
        },
      };
      return context.json(status, 200);
    },
  ),
  route(
    {
      call: "GET /metrics/summary",
      operationId: "readMetrics",
      tag,
      summary: "What all predictions of a workspace came to",
      description:
        "Of images, by the default routes and by the named endpoints that are there. The drift of the " +
        "active model is told by the population stability index, Σ (p - q) · ln(p / q) over bins of the " +
        "confidences, p now and q of the model's detections on its validation split. Of models that " +
        "were registered without these, or with fewer than 200, q is of the first 1,000 detections in " +
        "each place, weighted as the traffic is now: `reference` says which (Siddiqi, Credit Risk " +
        "Scorecards, 2006). What chance does is by Yurdakul, " +
        "Statistical Properties of Population Stability Index, 2018. Requests that ask for a confidence " +
        "above 0.25 by `confidence` are left out of it.",
      who: user,
      query: z.object({
        workspace_id: z.uuid().optional().meta({
          description: "which; required where several of yours have an active model, or none has",
        }),
        window: z.enum(WINDOWS).default("24h").meta({ description: "how far back it goes" }),
      }),
      answers: { 200: json("the figures", MetricsSummary) },
      errors: ["not_found"],
    },
    async (context) => {
      const parts = context.var.service;
      const { database } = parts;
      const { workspace_id, window } = context.req.valid("query");
      const workspaceId = await summarizedWorkspace(parts, callerOf(context), workspace_id);
      const [endpoints, active] = await Promise.all([
        listEndpoints(database, [workspaceId]),
        namedModel(database, workspaceId, "active"),
      ]);
      const readings = await Promise.all([
        readingOf(parts, defaultMeter(parts, workspaceId)),
        ...endpoints.map(({ endpointId }) => readingOf(parts, endpointMeter(parts, endpointId))),
      ]);
      const summary = summaryOf(readings, window, active);
      const whose = { workspace_id: workspaceId, endpoints: endpoints.length };
      return context.json({ ...whose, ...summary }, 200);
    },
  ),
];
