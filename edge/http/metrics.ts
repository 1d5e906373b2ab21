// `/metrics` of a service: its figures as Prometheus scrapes them, behind a token of their own, so
// that what scrapes can do nothing else.

import { Failure } from "../../shared/errors.ts";
import { METRICS_TYPE, type Metric, metricsText } from "../../shared/metrics.ts";
import type { Secret } from "../../shared/secret.ts";
import type { App } from "./app.ts";
import { requireBearer } from "./keys.ts";

/** What a service says of its metrics. */
interface MetricsOptions<Opened> {
  /** The token; without one the path answers as one that is not there. */
  tokenOf(opened: Opened): Secret | undefined;
  /** Every metric, as it stands now. */
  list(opened: Opened): Promise<Metric[]>;
}

/** Registers the route. */
export function addMetricsRoute<Opened>(
  app: App<Opened>,
  { tokenOf, list }: MetricsOptions<Opened>,
): void {
  const serviceOf = (context: { var: object }) => (context.var as { service: Opened }).service;
  const guard = requireBearer((context) => {
    const token = tokenOf(serviceOf(context));
    if (!token) throw new Failure("route_not_found", "no route /metrics");
    return [{ name: "metrics", token }];
  });
  app.get("/metrics", guard, async (context) => {
    const metrics = await list(serviceOf(context));
    return context.body(metricsText(metrics), 200, { "Content-Type": METRICS_TYPE });
  });
}
