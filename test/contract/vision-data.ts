// Statements 41 to 80 of Vision's contract:
// routes of accounts, uploads, labeling, review, training and models.

import type { Statement } from "./statement.ts";

/** Statements 41 to 80, in their order. */
export const DATA_STATEMENTS: readonly Statement[] = [
  {
    number: 41,
    text:
      "POST /auth/register | JSON: email (string), password (string), display_name " +
      "(string) | 201, token pair. The user is added to the default workspace as a " +
      "viewer.",
    file: "test/vision/auth/accounts.test.ts",
    test: "makes a viewer of the default workspace, and the very first account its admin",
    note: "The first account of an installation is an admin of the default workspace.",
  },
  {
    number: 42,
    text: "POST /auth/login | JSON: email, password | 200, token pair; 401 on bad credentials",
    file: "test/vision/auth/accounts.test.ts",
    test: "answers tokens that open /auth/me",
  },
  {
    number: 43,
    text: "POST /auth/refresh | JSON: refresh_token (string) | a fresh access_token",
    file: "test/vision/auth/refresh.test.ts",
    test: "takes the same refresh token again and again until 30 days after the login",
    note:
      "`rotate: true` replaces the refresh token; a replaced one that comes again ends " +
      "the session.",
  },
  {
    number: 44,
    text: "GET /auth/me | bearer token header | User object",
    file: "test/vision/auth/accounts.test.ts",
    test: "answers tokens that open /auth/me",
  },
  {
    number: 45,
    text: "GET /projects | none | projects in the caller's workspaces",
    file: "test/vision/tenancy.test.ts",
    test: "finds nothing of ours in %s",
  },
  {
    number: 46,
    text: "GET /projects/{project_id}/videos | none | all videos of the project",
    file: "test/vision/media/projects.test.ts",
    test: "list their videos, oldest first, and count them",
  },
  {
    number: 47,
    text:
      "POST /upload | multipart/form-data: `project_id` (UUID), `file` (video binary) | " +
      "201, the new Video row",
    file: "test/vision/media/uploads/uploads.test.ts",
    test: "stores the file under a key of ours, makes its video and has it probed",
  },
  {
    number: 48,
    text: "POST /upload/batch | multipart, same fields, `files` is a list | unspecified",
    file: "test/vision/media/uploads/uploads.test.ts",
    test: "keeps the good files and lists the bad ones",
  },
  {
    number: 49,
    text:
      "POST /upload/images | multipart, still images; each becomes a one-frame video | " +
      "unspecified",
    file: "test/vision/media/uploads/uploads.test.ts",
    test: "makes a video of each image, by its header, never by its name",
  },
  {
    number: 50,
    text:
      "POST /link-videos | JSON: project_id (string), objects (array of {storage_key " +
      "(string), filename (string)}) | unspecified; registers videos already in object " +
      "storage without re-upload",
    file: "test/vision/media/uploads/linkable.test.ts",
    test: "takes objects as they are listed, and a node reads a mapped one",
    note: "Objects under `ws/<workspace_id>/` and mapped prefixes; `GET /link-videos` lists them.",
  },
  {
    number: 51,
    text:
      "POST /label | JSON: project_id (string), video_ids (array of string), prompts " +
      "(array of string), threshold (number), resolution (integer), fps (number) | 202 " +
      "Accepted, `{job_id}`",
    file: "test/vision/labeling/jobs/labeling.test.ts",
    test: "labels every frame, shows what is sure and keeps what is not",
  },
  {
    number: 52,
    text: "GET /status/{job_id} | none | unspecified (progress polling)",
    file: "test/vision/labeling/jobs/mark-failed.test.ts",
    test: "keeps what it labeled, and is resumed for the rest",
  },
  {
    number: 53,
    text: "POST /label/exemplar | an image crop or a bbox in place of text prompts | unspecified",
    file: "test/vision/labeling/jobs/labeling.test.ts",
    test: "starts an exemplar job whose class is the one that was named",
  },
  {
    number: 54,
    text:
      "POST /label/preview | a small sample of frames and a prompt | base64-encoded JPEG " +
      "previews",
    file: "test/vision/story.long.test.ts",
    test: "finds by example, masks a click, and previews",
  },
  {
    number: 55,
    text: "POST /label/segment-points | click points and a frame | a mask",
    file: "test/vision/story.long.test.ts",
    test: "finds by example, masks a click, and previews",
  },
  {
    number: 56,
    text: "POST /annotations | manual annotation (for example a drawn box) | unspecified",
    file: "test/vision/labeling/review/review.test.ts",
    test: "are drawn by hand, inside a frame of the job, in an old class or a new one",
  },
  {
    number: 57,
    text:
      "GET /jobs/{job_id}/annotations | query: `offset`, `limit`, `frame_id`, " +
      "`class_name` | paginated list of annotations",
    file: "test/vision/labeling/review/review.test.ts",
    test: "are listed in pages, frame by frame, and by every filter",
  },
  {
    number: 58,
    text: "PATCH /annotations/{annotation_id} | bbox, class and/or accepted state | unspecified",
    file: "test/vision/labeling/review/review.test.ts",
    test: "are edited one at a time, by whoever saw the newest revision",
  },
  {
    number: 59,
    text:
      "POST /annotations/merge-classes | two class names (rename one into the other " +
      "across a job) | unspecified",
    file: "test/vision/labeling/review/review.test.ts",
    test: "are merged into another, renamed into a new one, and removed with their annotations",
  },
  {
    number: 60,
    text: "PATCH /jobs/{job_id} | name and/or description | unspecified",
    file: "test/vision/labeling/jobs/labeling.test.ts",
    test: "labels every frame, shows what is sure and keeps what is not",
  },
  {
    number: 61,
    text: "DELETE /jobs/{job_id} | none | deletes the job and all its annotations",
    file: "test/vision/labeling/jobs/labeling.test.ts",
    test: "is copied with everything, and deleted with everything",
  },
  {
    number: 62,
    text: "POST /jobs/{job_id}/duplicate | none | a cloned job",
    file: "test/vision/labeling/jobs/labeling.test.ts",
    test: "is copied with everything, and deleted with everything",
  },
  {
    number: 63,
    text:
      "POST /jobs/{job_id}/add-class | new class | re-runs the segmentation model for " +
      "that class only; existing labels untouched; job must be finished",
    file: "test/vision/labeling/jobs/labeling.test.ts",
    test: "labels one class more over the same frames, and touches nothing else",
  },
  {
    number: 64,
    text: "GET /jobs/{job_id}/classes | none | classes present in the job's annotations",
    file: "test/vision/labeling/review/review.test.ts",
    test: "are merged into another, renamed into a new one, and removed with their annotations",
  },
  {
    number: 65,
    text:
      "DELETE /jobs/{job_id}/classes/{class_name} | none | removes the class and all its " +
      "annotations",
    file: "test/vision/labeling/review/review.test.ts",
    test: "are merged into another, renamed into a new one, and removed with their annotations",
  },
  {
    number: 66,
    text:
      "GET /jobs/{job_id}/overview | none | frame count, annotation count per class, " +
      "completion percentage",
    file: "test/vision/labeling/review/review.test.ts",
    test: "say how much there is and how much of it was judged",
  },
  {
    number: 67,
    text:
      "GET /jobs/{job_id}/stats | none | distributions, confidence histograms, per-class " +
      "precision when ground truth exists",
    file: "test/vision/labeling/review/review.test.ts",
    test: "say how much there is and how much of it was judged",
    note: "Annotations that people drew have no confidence, and count as the surest.",
  },
  {
    number: 68,
    text:
      "POST /jobs/{job_id}/export | none | object-detection dataset (images and labels) " +
      "staged in object storage; returns a download URL",
    file: "test/vision/labeling/review/review.test.ts",
    test: "is made of what was not rejected, by split, and handed out signed",
  },
  {
    number: 69,
    text:
      "GET /train/variants | none | available detector variants: `det26n`, `det26s`, " +
      "`det26m`, `det26l`, `det26x` (neutral prefix replaces a brand name)",
    file: "test/vision/training/runs/runs.test.ts",
    test: "counts the family from its graphs, and names every option",
  },
  {
    number: 70,
    text: "GET /train/dataset-stats/{job_id} | none | dataset quality report (below)",
    file: "test/vision/training/runs/runs.test.ts",
    test: "counts what a run learns from, and recommends what runs as it stands",
  },
  {
    number: 71,
    text:
      "POST /train | JSON: job_id (string), variant (one of the variants), epochs " +
      "(integer), image_size (integer), batch_size (integer), name (string) | 202, " +
      "`{run_id}`; progress streamed over WebSocket",
    file: "test/vision/training/runs/runs.test.ts",
    test: "writes the dataset down, and no later edit of the job changes it",
  },
  {
    number: 72,
    text: "GET /train | none | all training runs",
    file: "test/vision/training/runs/runs.test.ts",
    test: "filters runs, renames them, and deletes them with what they left",
  },
  {
    number: 73,
    text: "GET /train/{run_id} | none | epoch, loss, mAP, ETA, status",
    file: "test/vision/training/runs/progress.test.ts",
    test: "begins the run, and shows the newest that was said, however late the rest comes",
  },
  {
    number: 74,
    text: "PATCH /train/{run_id} | name and/or notes | unspecified",
    file: "test/vision/training/runs/runs.test.ts",
    test: "filters runs, renames them, and deletes them with what they left",
  },
  {
    number: 75,
    text: "DELETE /train/{run_id} | none | deletes the run and its artifacts",
    file: "test/vision/training/runs/runs.test.ts",
    test: "filters runs, renames them, and deletes them with what they left",
  },
  {
    number: 76,
    text: "POST /train/{run_id}/stop | none | graceful stop",
    file: "test/vision/training/runs/moves.test.ts",
    test: "lets a running one flush and register what it has, then go on in another round",
    note: "The registered weights are those of the best epoch so far.",
  },
  {
    number: 77,
    text: "GET /models | none | all models in the registry",
    file: "test/vision/models/registry.test.ts",
    test: "refuses a name that is none, and viewers",
  },
  {
    number: 78,
    text: "POST /models/{model_id}/activate | none | unspecified",
    file: "test/vision/serving/predict/activation.test.ts",
    test: "swaps only when a node has the model open",
  },
  {
    number: 79,
    text:
      "POST /models/{model_id}/promote | alias: `production`, `staging` or `canary` | " +
      "unspecified",
    file: "test/vision/models/registry.test.ts",
    test: "moves an alias from model to model, and logs who did",
  },
  {
    number: 80,
    text:
      "POST /models/{model_id}/export | target format | ONNX, a mobile-platform format, a " +
      "lightweight mobile format, or an edge-accelerator format; field name for the " +
      "format: unspecified",
    file: "test/vision/training/exports/exports.test.ts",
    test: "is made by a node, and offered with its figures under a name that people know",
  },
];
