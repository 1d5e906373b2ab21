// Jobs that label, the review of what they found, and datasets.

import type { TaskRoom } from "../tasks/room.ts";
import { agreementRoutes } from "./collaboration/agreement-routes.ts";
import { assignmentRoutes } from "./collaboration/assignment-routes.ts";
import { commentRoutes } from "./collaboration/comment-routes.ts";
import { cropRoutes } from "./crops/crop-routes.ts";
import { cropsEnded, sealCrops } from "./crops/packs.ts";
import { forgetArchives } from "./datasets/archive-form.ts";
import { comparisonRoutes } from "./datasets/comparison-routes.ts";
import { exportEnded, sealExport } from "./datasets/ended.ts";
import { exportRoutes } from "./datasets/export-routes.ts";
import { failLostExports } from "./datasets/exports.ts";
import { importRoutes } from "./datasets/import-routes.ts";
import { advanceImports } from "./datasets/import-steps.ts";
import { labelEnded, labelPartDone, sealLabel } from "./jobs/ended.ts";
import { labelRoutes } from "./jobs/label-routes.ts";
import { previewRoutes } from "./jobs/preview-routes.ts";
import { sealPreview, sealSegment } from "./jobs/previews.ts";
import { resumeJobs } from "./jobs/recovery.ts";
import { labelReported } from "./jobs/reports.ts";
import { jobRoutes } from "./jobs/routes.ts";
import { bulkRoutes } from "./review/bulk-routes.ts";
import { classRoutes } from "./review/class-routes.ts";
import { columnRoutes } from "./review/column-routes.ts";
import { frameRoutes } from "./review/frame-routes.ts";
import { reviewRoutes } from "./review/routes.ts";
import { trackRoutes } from "./review/track-routes.ts";
import { sealLooks } from "./search/embeddings.ts";
import { searchRoutes } from "./search/search-routes.ts";
import { similarRoutes } from "./search/similar-routes.ts";
import { suggestionRoutes } from "./search/suggestion-routes.ts";
import { looksEnded, resumeSuggestions } from "./search/suggestions.ts";
import { tagRoutes } from "./search/tag-routes.ts";
import { datasetRoutes } from "./versions/dataset-routes.ts";

export const labeling: TaskRoom = {
  routes: [
    ...[labelRoutes, previewRoutes, jobRoutes],
    ...[classRoutes, reviewRoutes, bulkRoutes, frameRoutes, trackRoutes],
    ...[columnRoutes, cropRoutes],
    ...[commentRoutes, assignmentRoutes, agreementRoutes],
    ...[tagRoutes, searchRoutes, suggestionRoutes, similarRoutes],
    ...[exportRoutes, importRoutes, comparisonRoutes, datasetRoutes],
  ].flat(),
  handlers: {
    label: {
      seal: sealLabel,
      partDone: labelPartDone,
      ended: labelEnded,
      progressed: labelReported,
    },
    preview: { seal: sealPreview },
    segment: { seal: sealSegment },
    crops: { seal: sealCrops, ended: cropsEnded },
    embed: { seal: sealLooks, ended: looksEnded },
    export: { seal: sealExport, ended: exportEnded },
  },
  duties: {
    jobs: resumeJobs,
    exports: failLostExports,
    imports: advanceImports,
    suggestions: resumeSuggestions,
    archives: forgetArchives,
  },
};
