// The vision Worker: opens what its rooms work with, and tells each room's news to the next.

import type { ExportedHandler } from "@cloudflare/workers-types";
import { systemClock } from "../../shared/time.ts";
import { type AnsweredRequest, addLiveness, createService } from "../http/app.ts";
import { HEALTH_MS_MAX, openDatabase } from "../http/database.ts";
import { performDuties } from "../http/duties.ts";
import type { Log } from "../http/log.ts";
import { addAccountRoutes } from "./auth/account-routes.ts";
import { addAdminRoutes } from "./auth/admin-routes.ts";
import { describeAudience } from "./auth/audience.ts";
import { forgetAuditEntries } from "./auth/audit.ts";
import { forgetExpired } from "./auth/sessions.ts";
import type { Parts } from "./base/parts.ts";
import { sendCounts, sendSoon, tally } from "./base/tally.ts";
import { type Config, parseConfig } from "./config.ts";
import { forgetArchives } from "./datasets/archive-form.ts";
import { addComparisonRoutes } from "./datasets/comparison-routes.ts";
import { exportEnded, sealExport } from "./datasets/ended.ts";
import { addExportRoutes } from "./datasets/export-routes.ts";
import { failLostExports, releaseExports } from "./datasets/exports.ts";
import { addImportRoutes } from "./datasets/import-routes.ts";
import { EXAMPLES, HEADERS, TAGS } from "./description.ts";
import { addEndpointRoutes } from "./endpoints/endpoint-routes.ts";
import { addEndpointKeyRoutes } from "./endpoints/key-routes.ts";
import { countDefault } from "./endpoints/predict.ts";
import { addEndpointServing } from "./endpoints/serve-routes.ts";
import examples from "./examples.json" with { type: "json" };
import { modelExportEnded, sealModelExport } from "./exports/ended.ts";
import { addModelExportRoutes } from "./exports/export-routes.ts";
import { enqueueMissingExports, releaseExports as releaseModelExports } from "./exports/exports.ts";
import { MEANINGS } from "./glossary.ts";
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
  train: { seal: sealTrain, ended: trainEnded, progressed: trainReported },
  predict: { seal: sealPredict, ended: predictEnded },
  sam: { seal: sealSam, ended: predictEnded },
  sam_video: { seal: sealSam, ended: predictEnded },
};

/** What every minute brings, in this order. */
const duties: Record<string, (parts: Parts) => Promise<unknown>> = {
  tasks: (parts) => minuteTasks(parts, handlers),
  probes: enqueueMissingProbes,
  jobs: resumeJobs,
  exports: failLostExports,
  model_exports: enqueueMissingExports,
  runs: resumeRuns,
  uploads: abandonUploads,
  archives: forgetArchives,
  predictions: forgetPredictions,
  expired: forgetExpired,
  audit: forgetAuditEntries,
};

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
  loggedQuery: ["offset", "limit", "after"],
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
  return {
    database: openDatabase(config.DATABASE_URL),
    health: openDatabase(config.DATABASE_URL, { timeoutMs: HEALTH_MS_MAX }),
    bucket: config.MEDIA,
    s3: {
      url: config.S3_URL,
      accessKeyId: config.S3_ACCESS_KEY_ID,
      secretAccessKey: config.S3_SECRET_ACCESS_KEY,
    },
    tokenSecret: config.TOKEN_SECRET,
    limits: {
      uploadBytesMax: config.UPLOAD_BYTES_MAX,
      workspaceBytesMax: config.WORKSPACE_BYTES_MAX,
      listenersMax: config.LISTENERS_MAX,
      auditDays: config.AUDIT_DAYS,
    },
    metricsToken: config.METRICS_TOKEN,
    behindCloudflare: config.BEHIND_CLOUDFLARE,
    topics: config.PROGRESS,
    doorbell: config.DOORBELL,
    lines: config.LINES,
    meters: config.METERS,
    counters: config.COUNTERS,
    edge: edgeOf(config),
    clock: systemClock,
    log,
  };
}

/** Inference at the edge, where it is bound and not switched off. */
function edgeOf({ INFER, EDGE_IMAGE_SIZE }: Config): Parts["edge"] {
  return INFER && EDGE_IMAGE_SIZE > 0 ? { service: INFER, imageSize: EDGE_IMAGE_SIZE } : null;
}

addLiveness(app, ({ health }) => health, "task");
addAccountRoutes(app);
addAdminRoutes(app);
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
addModelRoutes(app, { beforeActive: warmModel, beforeDeleted: releaseModelExports });
addModelExportRoutes(app);
addPredictionRoutes(app, countDefault);
addSamRoutes(app);
addServeRoutes(app);
addEndpointRoutes(app);
addEndpointKeyRoutes(app);
addEndpointServing(app);
addMetrics(app, VERSION);
describeAudience(app);

export { Counters } from "./base/counters.ts";
export { EndpointMeter } from "./endpoints/endpoint-meter.ts";
export { ProgressTopic } from "./progress/topic.ts";
export { Doorbell } from "./tasks/doorbell.ts";
export { NodeLine } from "./tasks/node-line.ts";

export default {
  // Hono types its handler by the DOM's Request, the platform by its own.
  fetch: app.fetch as never,

  async scheduled(_controller, environment) {
    const parts = open(environment);
    // One that fails is the next minute's, and keeps none of the others.
    await performDuties(parts.log, duties, parts);
    await sendCounts(parts);
  },
} satisfies ExportedHandler<object>;
