// What the description of the vision API says beside its routes: groups, headers, and an example of
// each parameter and of what bodies require, by name.

import type { Header } from "../http/description.ts";

/** Groups of routes. */
export const TAGS = {
  Accounts: "Who you are: accounts, sessions, passwords.",
  Projects: "What belongs together: videos, jobs, runs and models of one purpose.",
  Videos: "Videos, their frames and their true times.",
  Uploads: "How videos and pictures come in: through the service, or straight to the store.",
  Labeling: "Jobs that label by words or by examples, and what can be tried before.",
  Jobs: "Labeling jobs: where they stand, and their life.",
  Review: "Annotations: drawn, edited, judged, and all of it undone.",
  "Classes and statistics": "A job's classes, and what its annotations amount to.",
  Datasets: "Annotations out and in, in the formats of other tools.",
  Training: "Detectors trained on labeled jobs.",
  Models: "The registry: versions, aliases, weights.",
  Serving: "Predictions on pictures and videos.",
  Progress: "What happens to a job or run, as it happens.",
  Administration: "People, workspaces, nodes and queues, for admins.",
  Nodes: "What GPU nodes speak with the service.",
  Health: "Whether the service lives.",
};

/** Headers of answers. */
export const HEADERS: Readonly<Record<string, Header>> = {
  ETag: {
    description: "names the image, for If-None-Match",
    required: true,
    schema: { type: "string" },
  },
  "X-Served-By": {
    description: "who answered at once: `node/` and the GPU node's name, or `edge`",
    schema: { type: "string" },
  },
  Location: {
    description: "where it is",
    required: true,
    schema: { type: "string", format: "uri-reference" },
  },
};

/** One id for each kind of thing, so that examples of several routes speak of the same ones. */
const id = (kind: string) => `6f1c2b9e-3d7a-4c55-8a10-0000000000${kind}`;

const video_id = id("03");
const frame_id = `${video_id}.0`;
const bbox = [12, 8, 36, 30];
const capabilities = {
  version: "0.1.0",
  protocol: 2,
  kinds: ["probe", "label", "export", "predict"],
  device: { kind: "cuda", name: "NVIDIA L4", count: 1 },
  memory_bytes: 24_000_000_000,
  cores: 8,
  ffmpeg: "7.1",
  segmenters: [],
  slots: 2,
  missing: [],
};

const yolo = {
  names: ["person", "car"],
  labels: { crossing_000000: "0 0.5 0.5 0.2 0.2" },
};

/** Examples, by the same names as meanings; `operation.body` is a whole body. */
export const EXAMPLES: Readonly<Record<string, unknown>> = {
  accepted: true,
  "listAnnotations.accepted": "true",
  alias: "production",
  "removeName.alias": "staging",
  annotation_id: id("06"),
  artifact: "results.png",
  bbox,
  bytes: 1_048_576,
  capabilities,
  change_id: id("07"),
  class: "person",
  "addClass.class": "dog",
  class_name: "person",
  code: "K7PQ-2M4X",
  confidence: 0.25,
  content_type: "image/png",
  current_password: "correct horse battery staple",
  display_name: "Ada",
  done: 12,
  email: "ada@example.com",
  exemplars: [{ frame_id, bbox }],
  export_id: id("08"),
  fence: 1,
  filename: "crossing.mp4",
  fps: 2,
  frame_id,
  frame_ids: [frame_id],
  frames_max: 300,
  from: "person",
  "idempotency-key": "crossing-2026-01-31",
  image: "0.jpg",
  into: "car",
  job_id: id("05"),
  key: `ws/${id("01")}/videos/${video_id}/source`,
  kinds: ["probe", "label"],
  limit: 2,
  max_confidence: 0.9,
  min_confidence: 0.3,
  model_id: id("10"),
  name: "crossing",
  "listMoves.name": "production",
  new_password: "a longer horse battery staple",
  node_id: id("12"),
  objects: [{ storage_key: `ws/${id("01")}/in/crossing.mp4`, filename: "crossing.mp4" }],
  offset: 0,
  outcome: { outcome: "failed", code: "no_space", detail: "the disk is full", retryable: true },
  parts: [{ part_number: 1, etag: '"9bb58f26192e4ba00f01e2e7b136bbd8"' }],
  password: "correct horse battery staple",
  prediction_id: id("11"),
  project_id: id("02"),
  prompts: ["person"],
  queue_name: "label",
  refresh_token: "vnr_5bXkUu0h1d",
  role: "annotator",
  run_id: id("09"),
  status: "completed",
  task_id: id("13"),
  tasks: [{ task_id: id("13"), fence: 1 }],
  threshold: 0.4,
  ticket: "eyJhbGciOiJIUzI1NiJ9…",
  total: 40,
  upload_id: id("04"),
  user_id: id("14"),
  video_id,
  video_ids: [video_id],
  wait_seconds: 60,
  "claimTask.wait_seconds": 20,
  weights_id: id("15"),
  workspace_id: id("01"),
  from_index: 0,
  to_index: 100,
  track_id: 1,
  index: 3,
  truth_job_id: id("05"),
  "mergeTracks.into": 2,
  "relabelAnnotations.body": { class: "bus", filter: { class_name: "car" } },
  "deleteAnnotations.body": { filter: { class_name: "car" } },
  "reviewFrames.body": { reviewed: true, filter: { annotated: false } },
  "drawAnnotation.body": { job_id: id("05"), frame_id, class: "person", bbox },
  "importAnnotations.body": { project_id: id("02"), yolo },
  "rollBackModel.name": "production",
  "setRole.body": { workspace_id: id("01"), role: "annotator" },
  "rollBackModel.body": { name: "production", workspace_id: id("01") },
  "segmentPoints.body": { frame_id, points: [{ x: 24, y: 19, label: 1 }] },
  "makeProject.body": { name: "crossing", workspace_id: id("01") },
  "previewLabels.body": { frame_ids: [frame_id], prompts: ["person"] },
};
