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
import { addInvitationRoutes } from "./auth/invitation-routes.ts";
import { forgetExpired } from "./auth/sessions.ts";
import { deleteOverdue, pairOf } from "./base/discard.ts";
import type { Parts } from "./base/parts.ts";
import { sendCounts, sendSoon, tally } from "./base/tally.ts";
import { type Config, outboundOf, parseConfig } from "./config.ts";
import { forgetArchives } from "./datasets/archive-form.ts";
import { addComparisonRoutes } from "./datasets/comparison-routes.ts";
import { exportEnded, sealExport } from "./datasets/ended.ts";
import { addExportRoutes } from "./datasets/export-routes.ts";
import { failLostExports, releaseExports } from "./datasets/exports.ts";
import { addImportRoutes } from "./datasets/import-routes.ts";
import { EXAMPLES, HEADERS, TAGS } from "./description.ts";
import { makeEdgeFiles } from "./endpoints/edge-files.ts";
import { addEndpointRoutes } from "./endpoints/endpoint-routes.ts";
import { addEndpointKeyRoutes } from "./endpoints/key-routes.ts";
import { countDefault } from "./endpoints/predict.ts";
import { addEndpointServing, lastAnswer } from "./endpoints/serve-routes.ts";
import examples from "./examples.json" with { type: "json" };
import { addModelComparisonRoutes } from "./experiments/comparison-routes.ts";
import { tendComparisons } from "./experiments/comparison-sessions.ts";
import { comparisonEnded, sealComparison } from "./experiments/ended.ts";
import { addExperimentLifeRoutes } from "./experiments/experiment-life-routes.ts";
import { lookAtExperiments } from "./experiments/experiment-looks.ts";
import { addExperimentRoutes } from "./experiments/experiment-routes.ts";
import { modelExportEnded, sealModelExport } from "./exports/ended.ts";
import { addModelExportRoutes } from "./exports/export-routes.ts";
import { enqueueMissingExports } from "./exports/export-task.ts";
import { releaseExports as releaseModelExports, startExports } from "./exports/exports.ts";
import { addAlertRoutes } from "./fleet/alert-routes.ts";
import { forgetAlerts, noticeAlerts } from "./fleet/alerts.ts";
import { condenseReadings } from "./fleet/beats.ts";
import { addDeviceRoutes } from "./fleet/device-routes.ts";
import { addDeviceImages } from "./fleet/image-routes.ts";
import { addLogRoutes } from "./fleet/log-routes.ts";
import { forgetLogs } from "./fleet/logs.ts";
import { addManifestRoutes } from "./fleet/manifest-routes.ts";
import { sendNotices } from "./fleet/notices.ts";
import { addDeviceProtocol } from "./fleet/protocol-routes.ts";
import { ROLLOUT_HOOKS } from "./fleet/rollout-devices.ts";
import { advanceRollouts } from "./fleet/rollout-progress.ts";
import { addRolloutRoutes } from "./fleet/rollout-routes.ts";
import { checkTargets, forgetChecks } from "./fleet/target-health.ts";
import { addTargetRoutes } from "./fleet/target-routes.ts";
import { MEANINGS } from "./glossary.ts";
import { tendIncidents } from "./incidents/causes.ts";
import { addIncidentRoutes } from "./incidents/incident-routes.ts";
import { labelEnded, labelPartDone, sealLabel } from "./labeling/ended.ts";
import { addJobRoutes } from "./labeling/job-routes.ts";
import { addLabelRoutes } from "./labeling/label-routes.ts";
import { addPreviewRoutes } from "./labeling/preview-routes.ts";
import { sealPreview, sealSegment } from "./labeling/previews.ts";
import { resumeJobs } from "./labeling/recovery.ts";
import { labelReported } from "./labeling/reports.ts";
import { addMetrics } from "./metrics.ts";
import { addProgressRoutes } from "./progress/progress-routes.ts";
import { probeEnded, sealFrames, sealProbe } from "./projects/ended.ts";
import { addProjectRoutes } from "./projects/project-routes.ts";
import { addVideoRoutes } from "./projects/video-routes.ts";
import { enqueueMissingProbes } from "./projects/videos.ts";
import { addModelRoutes } from "./registry/model-routes.ts";
import { addWeightsRoutes } from "./registry/weights-routes.ts";
import { addBulkRoutes } from "./review/bulk-routes.ts";
import { addClassRoutes } from "./review/class-routes.ts";
import { addFrameRoutes } from "./review/frame-routes.ts";
import { addReviewRoutes } from "./review/review-routes.ts";
import { addTrackRoutes } from "./review/track-routes.ts";
import { warmModel } from "./serving/activation.ts";
import { predictEnded, sealPredict } from "./serving/ended.ts";
import { addPredictionRoutes } from "./serving/predict-routes.ts";
import { forgetPredictions } from "./serving/predictions.ts";
import { sealSam } from "./serving/sam.ts";
import { addSamRoutes } from "./serving/sam-routes.ts";
import { addServeRoutes } from "./serving/serve-routes.ts";
import { type HandlersByKind, minuteTasks } from "./tasks/delivery.ts";
import { addNodeRoutes } from "./tasks/node-routes.ts";
import { sealTrain, trainEnded } from "./training/ended.ts";
import { resumeRuns } from "./training/recovery.ts";
import { trainReported } from "./training/reports.ts";
import { addRunRoutes } from "./training/run-routes.ts";
import { addStuckRoutes } from "./training/stuck-routes.ts";
import { addTrainRoutes } from "./training/train-routes.ts";
import { addDirectRoutes } from "./uploads/direct-routes.ts";
import { addUploadRoutes } from "./uploads/upload-routes.ts";
import { abandonUploads } from "./uploads/uploads.ts";
import { addCheckRoutes } from "./workflows/check-routes.ts";
import { forgetDeliveries, sendDeliveries } from "./workflows/deliveries.ts";
import { addDeployRoutes } from "./workflows/deploy-routes.ts";
import { sealVideoRun, sealWorkflow, videoRunEnded, workflowEnded } from "./workflows/ended.ts";
import { failStranded } from "./workflows/run-expiry.ts";
import { addRunRoutes as addWorkflowRuns } from "./workflows/run-routes.ts";
import { addSecretRoutes } from "./workflows/secret-routes.ts";
import { addWorkflowServing } from "./workflows/serve-routes.ts";
import { forgetStreams } from "./workflows/streams.ts";
import { forgetUse } from "./workflows/usage.ts";
import { addWorkflowVideos } from "./workflows/video-routes.ts";
import { addWorkflowRoutes } from "./workflows/workflow-routes.ts";

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
export { EndpointMeter } from "./endpoints/endpoint-meter.ts";
export { Listener } from "./progress/listener.ts";
export { ProgressTopic } from "./progress/topic.ts";
export { Doorbell } from "./tasks/doorbell.ts";
export { NodeLine } from "./tasks/node-line.ts";

export default {
  // Hono types its handler by the DOM's Request, the platform by its own.
  fetch: app.fetch as never,

  async scheduled(controller, environment) {
    const parts = open(environment);
    const outcome = await performMinute(parts);
    await tendIncidents(parts, outcome, controller.scheduledTime);
    await sendCounts(parts);
  },
} satisfies ExportedHandler<object>;
