// Statements 81 to 122 of Vision's contract:
// routes of serving, comparisons, devices, workflows and administration.

import type { Statement } from "./statement.ts";

/** Statements 81 to 122, in their order. */
export const SERVING_STATEMENTS: readonly Statement[] = [
  {
    number: 81,
    text:
      "POST /predict/image | multipart/form-data: `file` | array of {class, confidence, " +
      "bbox} from the active model",
    file: "test/vision/serving/predict/predictions.test.ts",
    test: "gives an array of class, confidence and bbox, and keeps no image",
  },
  {
    number: 82,
    text: "POST /predict/video | uploaded video | per-frame detections",
    file: "test/vision/serving/predict/predictions.test.ts",
    test: "is asked for every frame up to 3,000, and cut only by the sender's `frames_max`",
    note: "A clip of more than 3,000 frames is 413 `too_many_frames`, unless `frames_max` cuts it.",
  },
  {
    number: 83,
    text: "POST /predict/sam | image with a text or visual prompt | unspecified",
    file: "test/vision/serving/predict/sam.test.ts",
    test: "asks a node of the line in its words, and tells each object with its prompt",
  },
  {
    number: 84,
    text: "POST /predict/sam/video | uploaded clip | unspecified",
    file: "test/vision/serving/predict/sam-queue.test.ts",
    test: "answers a long one with 202 and its id, and says how far it is",
    note: "A clip of more than 600 frames is 413 `too_many_frames`, unless `frames_max` cuts it.",
  },
  {
    number: 85,
    text: "GET /serve/classes | none | class vocabulary of the active model",
    file: "test/vision/serving/predict/activation.test.ts",
    test: "swaps only when a node has the model open",
  },
  {
    number: 86,
    text: "GET /serve/status | none | health, active model, warm-up state",
    file: "test/vision/serving/predict/activation.test.ts",
    test: "says where the active model is open, is being opened, or could not be",
  },
  {
    number: 87,
    text: "POST /endpoints/{slug}/predict | input | prediction against the named endpoint",
    file: "test/vision/serving/endpoints/serving.test.ts",
    test: "goes by the queue where no node has a line",
  },
  {
    number: 88,
    text: "GET /endpoints/{slug}/status | none | per-endpoint health and stats",
    file: "test/vision/serving/endpoints/serving.test.ts",
    test: "opens predictions and the status of its endpoint, and nothing else",
  },
  {
    number: 89,
    text: "GET /metrics/summary | none | aggregate prediction stats across the active deployment",
    file: "test/vision/serving/endpoints/serving.test.ts",
    test: "adds up the default routes and the endpoints",
  },
  {
    number: 90,
    text: "GET /comparisons | none | comparison configurations (two models side by side)",
    file: "test/vision/experiments/comparisons.test.ts",
    test: "is stored with its defaults, listed newest first and by pages",
  },
  {
    number: 91,
    text: "POST /comparisons | unspecified | creates a comparison",
    file: "test/vision/experiments/comparisons.test.ts",
    test: "is stored with its defaults, listed newest first and by pages",
  },
  {
    number: 92,
    text: "POST /comparisons/run | an input | side-by-side diff of both models",
    file: "test/vision/experiments/comparisons.test.ts",
    test: "answers an image at once, with both models' objects and an overlay",
  },
  {
    number: 93,
    text: "GET /comparisons/result/{session_id} | none | a previously run result",
    file: "test/vision/experiments/comparisons.test.ts",
    test: "goes on after the wait, tells how far it is, and is read by pages",
  },
  {
    number: 94,
    text: "DELETE /comparisons/{comparison_id} | none | deletes",
    file: "test/vision/experiments/comparison-life.test.ts",
    test: "goes with its comparison: results, files, and what is under way",
  },
  {
    number: 95,
    text: "GET /experiments | none | experiments",
    file: "test/vision/experiments/traffic.test.ts",
    test: "is listed by state and page, and deleted",
  },
  {
    number: 96,
    text: "POST /experiments | unspecified | creates",
    file: "test/vision/experiments/traffic.test.ts",
    test: "finds the faster model, ends, promotes it, and takes that back",
  },
  {
    number: 97,
    text: "POST /experiments/{experiment_id}/complete | none | marks finished",
    file: "test/vision/experiments/traffic.test.ts",
    test: "finds the faster model, ends, promotes it, and takes that back",
  },
  {
    number: 98,
    text:
      "GET /targets | none | remote inference targets (other instances, edge devices, " +
      "third-party servers)",
    file: "test/vision/fleet/targets.test.ts",
    test: "is made, changed, listed and deleted",
  },
  {
    number: 99,
    text: "POST /targets | unspecified | registers a target",
    file: "test/vision/fleet/targets.test.ts",
    test: "is made, changed, listed and deleted",
  },
  {
    number: 100,
    text: "PATCH /targets/{target_id} | config | updates",
    file: "test/vision/fleet/targets.test.ts",
    test: "is made, changed, listed and deleted",
  },
  {
    number: 101,
    text: "DELETE /targets/{target_id} | none | deletes",
    file: "test/vision/fleet/targets.test.ts",
    test: "is made, changed, listed and deleted",
  },
  {
    number: 102,
    text: "GET /devices | none | registered edge devices",
    file: "test/vision/fleet/devices.test.ts",
    test: "is made by an engineer, and found by group, tag and status",
  },
  {
    number: 103,
    text: "POST /devices | unspecified | registers a device",
    file: "test/vision/fleet/devices.test.ts",
    test: "is made by an engineer, and found by group, tag and status",
  },
  {
    number: 104,
    text:
      "POST /devices/{device_id}/heartbeat | JSON including battery, temperature, uptime " +
      "| check-in",
    file: "test/vision/fleet/engineer-reports.test.ts",
    test: "of an %s of the workspace sends a device's heartbeat and logs, as its own token does",
    note: "The device's own token opens it, too.",
  },
  {
    number: 105,
    text:
      "POST /devices/{device_id}/sync-logs | prediction logs | pushes device logs to the " +
      "central API",
    file: "test/vision/fleet/engineer-reports.test.ts",
    test: "of an %s of the workspace sends a device's heartbeat and logs, as its own token does",
    note: "The device's own token opens it, too.",
  },
  {
    number: 106,
    text:
      "GET /workflows/blocks | none | catalog of blocks with input and output types and " +
      "parameter schemas",
    file: "test/vision/workflows/workflows.test.ts",
    test: "viewers read; engineers change",
  },
  {
    number: 107,
    text: "POST /workflows | graph definition | creates a workflow",
    file: "test/vision/workflows/workflows.test.ts",
    test: "is saved, listed, read with what it takes and gives, and deleted",
  },
  {
    number: 108,
    text: "GET /workflows/saved | none | saved workflows in the caller's workspace",
    file: "test/vision/workflows/workflows.test.ts",
    test: "is saved, listed, read with what it takes and gives, and deleted",
  },
  {
    number: 109,
    text: "GET /workflows/saved/{slug} | none | one workflow",
    file: "test/vision/workflows/workflows.test.ts",
    test: "is saved, listed, read with what it takes and gives, and deleted",
  },
  {
    number: 110,
    text: "DELETE /workflows/saved/{slug} | none | deletes",
    file: "test/vision/workflows/workflows.test.ts",
    test: "is saved, listed, read with what it takes and gives, and deleted",
  },
  {
    number: 111,
    text: "POST /workflows/saved/{slug}/deploy | none | promotes to a serve endpoint",
    file: "test/vision/workflows/workflows.test.ts",
    test: "serves the version that it named, whatever is saved or deleted afterwards",
  },
  {
    number: 112,
    text: "POST /workflows/serve/{slug} | inputs vary by block graph | runs a deployed workflow",
    file: "test/vision/workflows/runs.test.ts",
    test: "answers with its version and counts its use",
  },
  {
    number: 113,
    text: "POST /workflows/run | graph in the body | runs ad hoc without saving",
    file: "test/vision/workflows/runs.test.ts",
    test: "answers what the graph makes of its inputs and defaults, with its steps",
  },
  {
    number: 114,
    text: "POST /workflows/run/image | image | image-only convenience run",
    file: "test/vision/workflows/queue.test.ts",
    test: "is one of the active model on an image alone, where no saved workflow is named",
    note: "Without `slug` the active model looks; with it, the saved workflow runs.",
  },
  {
    number: 115,
    text: "GET /admin/status | none | queue depth, worker count, stuck job count, database latency",
    file: "test/vision/tasks/admin.test.ts",
    test: "list nodes, workers, queues and the status",
  },
  {
    number: 116,
    text: "GET /admin/workers | none | workers, current task, last heartbeat",
    file: "test/vision/tasks/admin.test.ts",
    test: "list nodes, workers, queues and the status",
  },
  {
    number: 117,
    text: "GET /admin/queue | none | queues with depth and consumer count",
    file: "test/vision/tasks/admin.test.ts",
    test: "list nodes, workers, queues and the status",
  },
  {
    number: 118,
    text: "GET /admin/jobs/stuck | none | labeling and training jobs running longer than expected",
    file: "test/vision/labeling/jobs/mark-failed.test.ts",
    test: "is listed with its tasks and why, for admins of its workspace and operators",
  },
  {
    number: 119,
    text: "POST /admin/jobs/{job_id}/mark-failed | none | force-fails a labeling job",
    file: "test/vision/labeling/jobs/mark-failed.test.ts",
    test: "ends at once, and takes nothing that comes of its tasks",
  },
  {
    number: 120,
    text: "POST /admin/training/{run_id}/mark-failed | none | force-fails a training run",
    file: "test/vision/training/runs/moves.test.ts",
    test: "fails the run for good, whatever its node does, and writes down who did",
  },
  {
    number: 121,
    text:
      "POST /admin/tasks/{task_id}/revoke | none | revokes a queue task; terminates the " +
      "worker process if it is executing",
    file: "test/vision/tasks/admin.test.ts",
    test: "revoke a running task only once its process is gone, and take nothing else from it",
  },
  {
    number: 122,
    text: "POST /admin/queue/{queue_name}/purge | none | drops all pending tasks of the queue",
    file: "test/vision/tasks/admin.test.ts",
    test: "purge what waits and leave what runs",
  },
];
