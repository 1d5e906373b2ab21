// The vision Worker: opens what its rooms work with, and tells each room's news to the next.

import type { ExportedHandler } from "@cloudflare/workers-types";
import { systemClock } from "../../shared/time.ts";
import { alertWebhookOf } from "../http/alert-webhook.ts";
import { type AnsweredRequest, createService } from "../http/app.ts";
import { isReading } from "../http/browser-request.ts";
import { requireOwnBucket } from "../http/bucket-identity.ts";
import { HEALTH_MS_MAX, openDatabase } from "../http/database.ts";
import { type DutyOutcome, performDuties } from "../http/duties.ts";
import { livenessRoute } from "../http/liveness.ts";
import type { Log } from "../http/log.ts";
import { addRoutes } from "../http/route.ts";
import { tendIncidents } from "./auth/incidents/causes.ts";
import { auth } from "./auth/room.ts";
import { API } from "./base/api.ts";
import { deleteOverdue, pairOf } from "./base/discard.ts";
import type { Parts } from "./base/parts.ts";
import { forgetting } from "./base/retention.ts";
import type { Duties, Room } from "./base/room.ts";
import { sendCounts, sendSoon, tally } from "./base/tally.ts";
import { type Config, outboundOf, parseConfig } from "./config.ts";
import { EXAMPLES, HEADERS, TAGS } from "./description.ts";
import examples from "./examples.json" with { type: "json" };
import { experiments } from "./experiments/room.ts";
import { fleet } from "./fleet/room.ts";
import { MEANINGS } from "./glossary.ts";
import { tellEditsOf } from "./labeling/jobs/edit-events.ts";
import { labeling } from "./labeling/room.ts";
import { media } from "./media/room.ts";
import { addMetrics } from "./metrics.ts";
import { models } from "./models/room.ts";
import { warmModel } from "./serving/predict/activation.ts";
import { serving } from "./serving/room.ts";
import { addStudio, STUDIO } from "./studio.ts";
import type { HandlersByKind } from "./tasks/queue/delivery.ts";
import { type TaskRoom, tasks } from "./tasks/room.ts";
import { releaseExports, startExports } from "./training/exports/exports.ts";
import { training } from "./training/room.ts";
import { workflows } from "./workflows/room.ts";

const others: readonly TaskRoom[] = [
  media,
  models({
    beforeActive: warmModel,
    beforeDeleted: releaseExports,
    onPromotion: startExports,
  }),
  labeling,
  training,
  serving,
  experiments,
  fleet,
  workflows,
];
const handlers: HandlersByKind = Object.assign({}, ...others.map((room) => room.handlers));
const taskRoom = tasks(handlers);
const rooms: readonly Room[] = [auth, taskRoom, ...others];
// The queue's come first: a database that falls silent ends a minute.
const duties: Duties = Object.assign({}, taskRoom.duties, ...rooms.map((room) => room.duties), {
  discarded: deleteOverdue,
  ...forgetting(rooms.flatMap(({ keeps = [] }) => keeps)),
});
const causes: Duties = Object.assign({}, ...rooms.map(({ incidents }) => incidents));

const VERSION = "0.1.0";

const { app, open } = createService<Parts>({
  name: "vision",
  title: "Vantage Vision",
  version: VERSION,
  description: "Video labeling, training, serving and administration.",
  tags: TAGS,
  headers: HEADERS,
  examples,
  glossary: { meanings: MEANINGS, examples: EXAMPLES },
  home: STUDIO,
  loggedQuery: ["offset", "limit", "after"],
  logsAll: ({ logsAll }) => logsAll,
  open: openParts,
  onAnswered: (parts, answered, after) => {
    countAnswer(answered);
    sendSoon(parts, after);
  },
});

function countAnswer({ method, route, status, seconds }: AnsweredRequest): void {
  tally.count("vantage_vision_http_requests_total", { method, route, code: String(status) });
  tally.observe("vantage_vision_http_request_duration_seconds", { method, route }, seconds);
}

function openParts(environment: object, log: Log): Parts {
  const config = parseConfig(environment);
  const outbound = outboundOf(config);
  return tellEditsOf<Parts>({
    database: openDatabase(config.DATABASE_URL),
    health: openDatabase(config.DATABASE_URL, { timeoutMs: HEALTH_MS_MAX }),
    bucket: config.MEDIA,
    s3: {
      url: config.S3_URL,
      accessKeyId: config.S3_ACCESS_KEY_ID,
      secretAccessKey: config.S3_SECRET_ACCESS_KEY,
    },
    linkPrefixes: config.LINK_PREFIXES,
    tokenSecret: config.TOKEN_SECRET,
    signingSecrets: config.DEVICE_SIGNING_KEY,
    limits: {
      uploadBytesMax: config.UPLOAD_BYTES_MAX,
      workspaceBytesMax: config.WORKSPACE_BYTES_MAX,
      accountBytesMax: config.ACCOUNT_BYTES_MAX,
      accountWorkspacesMax: config.ACCOUNT_WORKSPACES_MAX,
      listenersMax: config.LISTENERS_MAX,
      imageMsMax: config.IMAGE_SECONDS_MAX * 1_000,
      nodeListMs: config.NODE_LIST_SECONDS * 1_000,
      auditDays: config.AUDIT_DAYS,
      deviceLogDays: config.DEVICE_LOG_DAYS,
      objectGraceDays: config.OBJECT_GRACE_DAYS,
      backupHoursMax: config.BACKUP_HOURS_MAX ?? null,
    },
    registration: {
      mode: config.REGISTRATION,
      bootstrapToken: config.BOOTSTRAP_TOKEN,
      teamWorkspace: config.TEAM_WORKSPACE,
    },
    defaultHoldsProjects: config.DEFAULT_WORKSPACE_PROJECTS,
    metricsToken: config.METRICS_TOKEN,
    logsAll: config.LOG_REQUESTS,
    behindCloudflare: config.BEHIND_CLOUDFLARE,
    topics: config.PROGRESS,
    doorbell: config.DOORBELL,
    lines: config.LINES,
    meters: config.METERS,
    counters: config.COUNTERS,
    edge: edgeOf(config),
    hasher: config.INFER ?? null,
    studio: config.ASSETS,
    sealing: config.SEALING_KEY,
    outbound,
    operatorWebhook: alertWebhookOf(config, outbound.resolve),
    clock: systemClock,
    log,
  });
}

/** Inference at the edge, where it is bound and not switched off. */
function edgeOf({ INFER, EDGE_IMAGE_SIZE }: Config): Parts["edge"] {
  return INFER && EDGE_IMAGE_SIZE > 0 ? { service: INFER, imageSize: EDGE_IMAGE_SIZE } : null;
}

// Whatever changes something may write to the bucket.
app.use(async (context, next) => {
  if (!isReading(context)) await requireOwnBucket(pairOf(context.var.service));
  await next();
});
const health = livenessRoute<Parts>({
  pairOf: (parts) => ({ ...pairOf(parts), database: parts.health }),
  table: "task",
});
addRoutes(app, [health]);
addRoutes(
  app,
  rooms.flatMap(({ routes }) => routes),
  { prefix: API },
);
addMetrics(app, VERSION);
addStudio(app);

/** Performs the minute's duties; where the bucket is not the database's, none but to say so. */
async function performMinute(parts: Parts): Promise<DutyOutcome> {
  const bucket = () => requireOwnBucket(pairOf(parts), { mayAdopt: true });
  const checked = await performDuties(parts.log, { bucket });
  if (checked.failed.length > 0) return checked;
  // One that fails is the next minute's, and keeps none of the others.
  const { succeeded, failed } = await performDuties(parts.log, duties, parts);
  return { succeeded: [...checked.succeeded, ...succeeded], failed };
}

export { Counters } from "./base/counters.ts";
export { EndpointMeter } from "./serving/endpoints/meter-object.ts";
export { Doorbell } from "./tasks/nodes/doorbell.ts";
export { NodeLine } from "./tasks/nodes/line.ts";
export { Listener } from "./tasks/progress/listener.ts";
export { ProgressTopic } from "./tasks/progress/topic.ts";

export default {
  // Hono types its handler by the DOM's Request, the platform by its own.
  fetch: app.fetch as never,

  async scheduled(controller, environment) {
    const parts = open(environment);
    const outcome = await performMinute(parts);
    await tendIncidents(parts, {
      outcome,
      minute: controller.scheduledTime,
      causes,
    });
    await sendCounts(parts);
  },
} satisfies ExportedHandler<object>;
