// The console Worker: cron ingest, queue consumer and operator API. It owns everything that writes.

import type { ExportedHandler, MessageSendRequest, Queue } from "@cloudflare/workers-types";
import { DAY, systemClock } from "../../shared/time.ts";
import { alertWebhookOf } from "../http/alert-webhook.ts";
import { createService } from "../http/app.ts";
import { HEALTH_MS_MAX, openDatabase } from "../http/database.ts";
import { performDuties } from "../http/duties.ts";
import type { Log } from "../http/log.ts";
import { addRoutes } from "../http/route.ts";
import { alertMinute } from "../markets/ingest/alert-outbox.ts";
import { executeQueued } from "../markets/ingest/execute.ts";
import { openGraphWriter } from "../markets/ingest/graph.ts";
import type { IngestParts } from "../markets/ingest/parts.ts";
import { PIPELINES, pipelineOf } from "../markets/ingest/pipelines.ts";
import {
  openUpstreams,
  queueBinding,
  type RunMessage,
  requestIntervalsMs,
} from "../markets/ingest/providers.ts";
import { politely } from "../markets/ingest/sources/upstream.ts";
import { minuteTick } from "../markets/ingest/tick.ts";
import { keepHouse } from "../markets/store/compact.ts";
import { openStore } from "../markets/store/store.ts";
import { type Config, parseConfig } from "./config.ts";
import examples from "./examples.json" with { type: "json" };
import { addMetrics } from "./metrics.ts";
import { addPages, failuresAsPages } from "./pages.tsx";
import type { Console } from "./parameters.ts";
import { routes } from "./routes.ts";

/** Messages a queue takes in one call. */
const BATCH_MAX = 100;

const { app, open, log } = createService<Console>({
  name: "console",
  title: "Vantage Markets: operator API",
  version: "0.1.0",
  description:
    "Pipelines, runs, backfills and alerts of the markets platform. Every route but /healthz " +
    "needs Authorization: Bearer with an operator's token.",
  home: "/overview",
  tags: {
    Jobs: "Pipelines, and where their partitions stand.",
    Schedules: "When pipelines run by themselves.",
    Runs: "Executions of a pipeline over one partition.",
    Backfills: "Runs over a range of partitions.",
    Refusals: "Changes that would withdraw too many rows.",
    Instruments: "What the checks watch, and what is retired.",
    Alerts: "What operators were told of.",
    Snapshots: "Named knowledge times.",
    Health: "Whether the service lives.",
  },
  examples,
  loggedQuery: ["limit", "backfill_id", "job", "partition", "state", "schedule"],
  logsAll: ({ config }) => config.LOG_REQUESTS,
  open: (environment, log) => {
    const config = parseConfig(environment);
    const health = openDatabase(config.DATABASE_URL, { timeoutMs: HEALTH_MS_MAX });
    const ingest = openIngest(config, log);
    return { config, ingest, health, webhook: alertWebhookOf(config), letIn: new Set<string>() };
  },
});

function openIngest(config: Config, log: Log): IngestParts {
  const database = openDatabase(config.DATABASE_URL);
  const bucket = config.STORE;
  const pause = (milliseconds: number) =>
    new Promise<void>((resolve) => setTimeout(resolve, milliseconds));
  const fetcher = { fetch: (url: string, init: RequestInit) => fetch(url, init), pause };
  const polite = politely(fetcher, requestIntervalsMs(config), systemClock);
  return {
    pipelines: PIPELINES,
    database,
    graph: config.GRAPH_DATABASE_URL ? openGraphWriter(config.GRAPH_DATABASE_URL) : null,
    bucket,
    pause,
    log,
    store: openStore({ database, bucket }),
    upstreams: openUpstreams(config, polite),
    clock: systemClock,
    leaseMs: config.INGEST_LEASE_SECONDS * 1_000,
    send: (job, runIds, delaySeconds = 0) => sendRuns(queueOf(config, job), runIds, delaySeconds),
  };
}

/** A job that is gone still has its runs taken, and failed by name. */
const queueOf = (config: Config, job: string): Queue<RunMessage> =>
  config[queueBinding(pipelineOf(job)?.provider ?? "eia")];

async function sendRuns(queue: Queue<RunMessage>, runIds: readonly string[], delaySeconds: number) {
  const messages = runIds.map(
    (run_id): MessageSendRequest<RunMessage> => ({
      body: { run_id },
      delaySeconds,
    }),
  );
  for (let index = 0; index < messages.length; index += BATCH_MAX) {
    await queue.sendBatch(messages.slice(index, index + BATCH_MAX));
  }
}

app.use(failuresAsPages);
addRoutes(app, routes);
addMetrics(app);
addPages(app);

export default {
  fetch: app.fetch,

  async scheduled(controller, environment) {
    const { config, ingest, webhook } = open(environment);
    const now = controller.scheduledTime;
    await performDuties(log, {
      ingest: () => minuteTick(ingest, now),
      alerts: () => alertMinute(ingest, webhook, now),
      store: () => keepHouse({ ...ingest, graceMs: config.OBJECT_GRACE_DAYS * DAY }),
    });
  },

  async queue(batch, environment) {
    const { ingest } = open(environment);
    for (const message of batch.messages) {
      try {
        await executeQueued(ingest, message.body.run_id);
        message.ack();
      } catch (thrown) {
        // The ledger could not be written: the message comes again, or the cron frees the lease.
        log.error("queue_message", { run_id: message.body.run_id, error: thrown });
        message.retry({ delaySeconds: 5 });
      }
    }
  },
} satisfies ExportedHandler<object, RunMessage>;
