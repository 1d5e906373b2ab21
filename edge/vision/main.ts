// The vision Worker: opens what its rooms work with, and tells each room's news to the next.

import type { ExportedHandler } from "@cloudflare/workers-types";
import { systemClock } from "../../shared/time.ts";
import { alertWebhookOf } from "../http/alert-webhook.ts";
import { type AnsweredRequest, addLiveness, createService } from "../http/app.ts";
import { requireOwnBucket } from "../http/bucket-identity.ts";
import { HEALTH_MS_MAX, openDatabase } from "../http/database.ts";
import { type DutyOutcome, performDuties } from "../http/duties.ts";
import type { Log } from "../http/log.ts";
import { addAccountRoutes } from "./auth/account-routes.ts";
import { addAdminRoutes } from "./auth/admin-routes.ts";
import { describeAudience } from "./auth/audience.ts";
import { forgetAuditEntries } from "./auth/audit.ts";
import { tendIncidents } from "./auth/incidents/causes.ts";
import { addIncidentRoutes } from "./auth/incidents/routes.ts";
import { addInvitationRoutes } from "./auth/invitation-routes.ts";
import { forgetExpired } from "./auth/sessions.ts";
import { deleteOverdue, pairOf } from "./base/discard.ts";
import type { Parts } from "./base/parts.ts";
import { sendCounts, sendSoon, tally } from "./base/tally.ts";
import { type Config, outboundOf, parseConfig } from "./config.ts";
import { EXAMPLES, HEADERS, TAGS } from "./description.ts";
import examples from "./examples.json" with { type: "json" };
import { addExperimentLifeRoutes } from "./experiments/campaigns/life-routes.ts";
import { lookAtExperiments } from "./experiments/campaigns/looks.ts";
import { addExperimentRoutes } from "./experiments/campaigns/routes.ts";
import { comparisonEnded, sealComparison } from "./experiments/comparisons/ended.ts";
import { addModelComparisonRoutes } from "./experiments/comparisons/routes.ts";
import { tendComparisons } from "./experiments/comparisons/sessions.ts";
import { addAlertRoutes } from "./fleet/devices/alert-routes.ts";
import { forgetAlerts, noticeAlerts } from "./fleet/devices/alerts.ts";
import { condenseReadings } from "./fleet/devices/beats.ts";
import { addDeviceImages } from "./fleet/devices/image-routes.ts";
import { addLogRoutes } from "./fleet/devices/log-routes.ts";
import { forgetLogs } from "./fleet/devices/logs.ts";
import { sendNotices } from "./fleet/devices/notices.ts";
import { addDeviceProtocol } from "./fleet/devices/protocol-routes.ts";
import { addDeviceRoutes } from "./fleet/devices/routes.ts";
import { ROLLOUT_HOOKS } from "./fleet/rollouts/devices.ts";
import { addManifestRoutes } from "./fleet/rollouts/manifest-routes.ts";
import { advanceRollouts } from "./fleet/rollouts/progress.ts";
import { addRolloutRoutes } from "./fleet/rollouts/routes.ts";
import { checkTargets, forgetChecks } from "./fleet/targets/health.ts";
import { addTargetRoutes } from "./fleet/targets/routes.ts";
import { MEANINGS } from "./glossary.ts";
import { forgetArchives } from "./labeling/datasets/archive-form.ts";
import { addComparisonRoutes } from "./labeling/datasets/comparison-routes.ts";
import { exportEnded, sealExport } from "./labeling/datasets/ended.ts";
import { addExportRoutes } from "./labeling/datasets/export-routes.ts";
import { failLostExports, releaseExports } from "./labeling/datasets/exports.ts";
import { addImportRoutes } from "./labeling/datasets/import-routes.ts";
import { labelEnded, labelPartDone, sealLabel } from "./labeling/jobs/ended.ts";
import { addLabelRoutes } from "./labeling/jobs/label-routes.ts";
import { addPreviewRoutes } from "./labeling/jobs/preview-routes.ts";
import { sealPreview, sealSegment } from "./labeling/jobs/previews.ts";
import { resumeJobs } from "./labeling/jobs/recovery.ts";
import { labelReported } from "./labeling/jobs/reports.ts";
import { addJobRoutes } from "./labeling/jobs/routes.ts";
import { addBulkRoutes } from "./labeling/review/bulk-routes.ts";
import { addClassRoutes } from "./labeling/review/class-routes.ts";
import { addFrameRoutes } from "./labeling/review/frame-routes.ts";
import { addReviewRoutes } from "./labeling/review/routes.ts";
import { addTrackRoutes } from "./labeling/review/track-routes.ts";
import { addProjectRoutes } from "./media/projects/routes.ts";
import { addDirectRoutes } from "./media/uploads/direct-routes.ts";
import { addUploadRoutes } from "./media/uploads/routes.ts";
import { abandonUploads } from "./media/uploads/uploads.ts";
import { probeEnded, sealFrames, sealProbe } from "./media/videos/ended.ts";
import { addVideoRoutes } from "./media/videos/routes.ts";
import { enqueueMissingProbes } from "./media/videos/videos.ts";
import { addMetrics } from "./metrics.ts";
import { addModelRoutes } from "./models/routes.ts";
import { addWeightsRoutes } from "./models/weights-routes.ts";
import { makeEdgeFiles } from "./serving/endpoints/edge-files.ts";
import { noticeEndpointErrors } from "./serving/endpoints/incidents.ts";
import { addEndpointKeyRoutes } from "./serving/endpoints/key-routes.ts";
import { countDefault } from "./serving/endpoints/predict.ts";
import { addEndpointServing, lastAnswer } from "./serving/endpoints/predict-routes.ts";
import { addEndpointRoutes } from "./serving/endpoints/routes.ts";
import { warmModel } from "./serving/predict/activation.ts";
import { addServeRoutes } from "./serving/predict/active-model-routes.ts";
import { predictEnded, sealPredict } from "./serving/predict/ended.ts";
import { forgetPredictions } from "./serving/predict/predictions.ts";
import { addPredictionRoutes } from "./serving/predict/routes.ts";
import { addSamRoutes } from "./serving/sam/routes.ts";
import { sealSam } from "./serving/sam/sam.ts";
import { noticeLostNodes, noticeStalledQueues } from "./tasks/incidents.ts";
import { addNodeRoutes } from "./tasks/nodes/routes.ts";
import { addProgressRoutes } from "./tasks/progress/routes.ts";
import { type HandlersByKind, minuteTasks } from "./tasks/queue/delivery.ts";
import { modelExportEnded, sealModelExport } from "./training/exports/ended.ts";
import { releaseExports as releaseModelExports, startExports } from "./training/exports/exports.ts";
import { addModelExportRoutes } from "./training/exports/routes.ts";
import { enqueueMissingExports } from "./training/exports/task.ts";
import { sealTrain, trainEnded } from "./training/runs/ended.ts";
import { resumeRuns } from "./training/runs/recovery.ts";
import { trainReported } from "./training/runs/reports.ts";
import { addRunRoutes } from "./training/runs/routes.ts";
import { addStuckRoutes } from "./training/runs/stuck-routes.ts";
import { addTrainRoutes } from "./training/runs/train-routes.ts";
import { addCheckRoutes } from "./workflows/definitions/check-routes.ts";
import { addDeployRoutes } from "./workflows/definitions/deploy-routes.ts";
import { addWorkflowRoutes } from "./workflows/definitions/routes.ts";
import { forgetDeliveries, sendDeliveries } from "./workflows/deliveries.ts";
import {
  sealVideoRun,
  sealWorkflow,
  videoRunEnded,
  workflowEnded,
} from "./workflows/runs/ended.ts";
import { failStranded } from "./workflows/runs/expiry.ts";
import { addRunRoutes as addWorkflowRuns } from "./workflows/runs/routes.ts";
import { forgetStreams } from "./workflows/runs/streams.ts";
import { addWorkflowVideos } from "./workflows/runs/video-routes.ts";
import { addSecretRoutes } from "./workflows/secret-routes.ts";
import { addWorkflowServing } from "./workflows/serving-routes.ts";
import { forgetUse } from "./workflows/usage.ts";

/** Which room takes the outcome of which kind of task. */
const handlers: HandlersByKind = {
  probe: { seal: sealProbe, ended: probeEnded },
  frames: { seal: sealFrames },
  label: {
    seal: sealLabel,
    partDone: labelPartDone,
    ended: labelEnded,
    progressed: labelReported,
  },
  preview: { seal: sealPreview },
  segment: { seal: sealSegment },
  export: { seal: sealExport, ended: exportEnded },
  model_export: { seal: sealModelExport, ended: modelExportEnded },
  device_export: { seal: sealModelExport, ended: modelExportEnded },
  engine_export: { seal: sealModelExport, ended: modelExportEnded },
  train: { seal: sealTrain, ended: trainEnded, progressed: trainReported },
  predict: { seal: sealPredict, ended: predictEnded },
  comparison: { seal: sealComparison, ended: comparisonEnded },
  sam: { seal: sealSam, ended: predictEnded },
  sam_video: { seal: sealSam, ended: predictEnded },
  workflow: { seal: sealWorkflow, ended: workflowEnded },
  workflow_video: { seal: sealVideoRun, ended: videoRunEnded },
};

/** What every minute brings, in this order. */
const duties: Record<string, (parts: Parts) => Promise<unknown>> = {
  tasks: (parts) => minuteTasks(parts, handlers),
  probes: enqueueMissingProbes,
  jobs: resumeJobs,
  exports: failLostExports,
  model_exports: enqueueMissingExports,
  edge_files: makeEdgeFiles,
  runs: resumeRuns,
  uploads: abandonUploads,
  archives: forgetArchives,
  predictions: forgetPredictions,
  comparisons: tendComparisons,
  rollouts: advanceRollouts,
  expired: forgetExpired,
  audit: forgetAuditEntries,
  experiments: lookAtExperiments,
  device_readings: condenseReadings,
  device_logs: forgetLogs,
  device_alerts: noticeAlerts,
  device_notices: sendNotices,
  old_alerts: forgetAlerts,
  targets: checkTargets,
  target_checks: forgetChecks,
  deliveries: (parts) => sendDeliveries(parts),
  old_deliveries: forgetDeliveries,
  streams: forgetStreams,
  workflow_use: forgetUse,
  stranded_runs: failStranded,
  discarded: deleteOverdue,
};

const VERSION = "0.1.0";
const READING = new Set(["GET", "HEAD", "OPTIONS"]);

const { app, open } = createService<Parts>({
  name: "vision",
  title: "Vantage Vision",
  version: VERSION,
  description: "Video labeling, training, serving and administration.",
  tags: TAGS,
  headers: HEADERS,
  examples,
  glossary: { meanings: MEANINGS, examples: EXAMPLES },
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
  return {
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
    sealing: config.SEALING_KEY,
    outbound,
    operatorWebhook: alertWebhookOf(config, outbound.resolve),
    clock: systemClock,
    log,
  };
}

/** Inference at the edge, where it is bound and not switched off. */
function edgeOf({ INFER, EDGE_IMAGE_SIZE }: Config): Parts["edge"] {
  return INFER && EDGE_IMAGE_SIZE > 0 ? { service: INFER, imageSize: EDGE_IMAGE_SIZE } : null;
}

// Whatever changes something may write to the bucket.
app.use(async (context, next) => {
  if (!READING.has(context.req.method)) await requireOwnBucket(pairOf(context.var.service));
  await next();
});
addLiveness(app, {
  pairOf: (parts) => ({ ...pairOf(parts), database: parts.health }),
  table: "task",
});
addAccountRoutes(app);
addAdminRoutes(app);
addInvitationRoutes(app);
addNodeRoutes(app, handlers);
addProgressRoutes(app);
addProjectRoutes(app);
addVideoRoutes(app);
addUploadRoutes(app);
addDirectRoutes(app);
addLabelRoutes(app);
addPreviewRoutes(app);
addJobRoutes(app, releaseExports);
// Before the routes of single annotations: its path would be one of their ids.
addClassRoutes(app);
addReviewRoutes(app);
addBulkRoutes(app);
addFrameRoutes(app);
addTrackRoutes(app);
addExportRoutes(app);
addImportRoutes(app);
addComparisonRoutes(app);
// Paths under /train with a name of their own come before those with the id of a run.
addTrainRoutes(app);
addStuckRoutes(app);
addWeightsRoutes(app);
addRunRoutes(app);
addModelRoutes(app, {
  beforeActive: warmModel,
  beforeDeleted: releaseModelExports,
  onPromotion: startExports,
});
addModelExportRoutes(app);
addPredictionRoutes(app, countDefault);
addSamRoutes(app);
addServeRoutes(app, lastAnswer);
addEndpointRoutes(app);
addEndpointKeyRoutes(app);
addEndpointServing(app);
addModelComparisonRoutes(app);
addExperimentRoutes(app);
addExperimentLifeRoutes(app);
addRolloutRoutes(app);
addManifestRoutes(app);
// Before the routes of single devices: their paths would be ids.
addDeviceProtocol(app, ROLLOUT_HOOKS);
addDeviceImages(app);
addAlertRoutes(app);
addDeviceRoutes(app);
addLogRoutes(app);
addTargetRoutes(app);
addCheckRoutes(app);
addWorkflowRoutes(app);
addDeployRoutes(app);
addSecretRoutes(app);
addWorkflowRuns(app);
addWorkflowServing(app);
addWorkflowVideos(app);
addIncidentRoutes(app);
addMetrics(app, VERSION);
describeAudience(app);

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
      causes: {
        lost_nodes: noticeLostNodes,
        stalled_queues: noticeStalledQueues,
        endpoint_errors: noticeEndpointErrors,
      },
    });
    await sendCounts(parts);
  },
} satisfies ExportedHandler<object>;
