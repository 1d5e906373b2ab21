// Statements 123 to 147 of Vision's contract:
// the quality report, options of training, authentication, events and errors.

import type { Statement } from "./statement.ts";

/** Statements 123 to 147, in their order. */
export const RULE_STATEMENTS: readonly Statement[] = [
  {
    number: 123,
    text: "labeling threshold default 0.5",
    file: "test/support/common-routes.ts",
    test: "describes its interface as the golden copy does",
  },
  {
    number: 124,
    text: "report: hero stats",
    file: "test/vision/labeling/datasets/single-video.test.ts",
    test: "of %i annotated frames counts all: %s, %s, %i epochs",
  },
  {
    number: 125,
    text: "report: class balance sorted",
    file: "test/vision/labeling/datasets/quality.test.ts",
    test: "is sorted by frequency, with shares, and equals keep their order",
  },
  {
    number: 126,
    text: "report: four warnings",
    file: "test/vision/labeling/datasets/quality.test.ts",
    test: "of a rarest class with %i instances: %s",
  },
  {
    number: 127,
    text: "report: recommended settings",
    file: "test/vision/labeling/datasets/quality.test.ts",
    test: "of %i annotated frames: %s, %s, %i epochs, batch %i",
  },
  {
    number: 128,
    text: "report: rule <50",
    file: "test/vision/labeling/datasets/single-video.test.ts",
    test: "of %i annotated frames counts all: %s, %s, %i epochs",
  },
  {
    number: 129,
    text: "report: rule 200-1000 det26s",
    file: "test/vision/labeling/datasets/single-video.test.ts",
    test: "of %i annotated frames counts all: %s, %s, %i epochs",
  },
  {
    number: 130,
    text: "report: rule 1000+ det26m",
    file: "test/vision/labeling/datasets/single-video.test.ts",
    test: "of %i annotated frames counts all: %s, %s, %i epochs",
  },
  {
    number: 131,
    text: "report: 1280 at >= 25 %",
    file: "test/vision/labeling/datasets/quality.test.ts",
    test: "with %i small boxes of %i: %i px",
  },
  {
    number: 132,
    text: "option: variant",
    file: "test/vision/training/runs/runs.test.ts",
    test: "counts the family from its graphs, and names every option",
  },
  {
    number: 133,
    text: "option: task",
    file: "test/vision/training/runs/runs.test.ts",
    test: "takes a run of segmentation as one of detection",
  },
  {
    number: 134,
    text: "option: pretrained: general/another public dataset",
    file: "test/vision/training/runs/runs.test.ts",
    test: "starts from weights that a node has installed, and names the command where none has",
    note: "No pretrained set is shipped; an operator installs named ones on a node.",
  },
  {
    number: 135,
    text: "option: image size 640/1280",
    file: "test/vision/training/runs/runs.test.ts",
    test: "counts the family from its graphs, and names every option",
  },
  {
    number: 136,
    text: "option: batch automatic",
    file: "test/gpu-node/training/checkpoints.long.test.ts",
    test: "halves an automatic batch until it does",
  },
  {
    number: 137,
    text: "option: epochs 50",
    file: "test/vision/training/runs/runs.test.ts",
    test: "counts the family from its graphs, and names every option",
  },
  {
    number: 138,
    text: "option: augmentation presets",
    file: "test/vision/labeling/datasets/quality.test.ts",
    test: "%s is told as a node trains by it",
  },
  {
    number: 139,
    text: "option: learning rate automatic",
    file: "test/gpu-node/training/resume.long.test.ts",
    test: "has the automatic rate of a run from scratch, and keeps it where it goes on",
  },
  {
    number: 140,
    text: "auth: bearer header",
    file: "test/support/common-routes.ts",
    test: "refuses every guarded route without a valid credential, with 401 and nothing else",
  },
  {
    number: 141,
    text: "auth: access 24 h by default",
    file: "test/vision/auth/accounts.test.ts",
    test: "are refused unsigned, signed otherwise, or changed",
  },
  {
    number: 142,
    text: "auth: refresh 30 days",
    file: "test/vision/auth/refresh.test.ts",
    test: "takes the same refresh token again and again until 30 days after the login",
  },
  {
    number: 143,
    text: "auth: viewer of default workspace",
    file: "test/vision/auth/accounts.test.ts",
    test: "makes a viewer of the default workspace, and the very first account its admin",
    note: "The first account of an installation is an admin of the default workspace.",
  },
  {
    number: 144,
    text: "auth: admin routes need admin in a workspace",
    file: "test/vision/auth/accounts.test.ts",
    test: "is no place for others: %s %s",
  },
  {
    number: 145,
    text: "events: WebSocket, log lines, epoch, loss, metrics",
    file: "test/vision/training/runs/progress.test.ts",
    test: "reaches listeners: each line and epoch once, classes under their keys, then the end",
  },
  {
    number: 146,
    text: "401 bad credentials",
    file: "test/vision/auth/accounts.test.ts",
    test: "answers an unknown email and a wrong password alike, in word and in time",
  },
  {
    number: 147,
    text: "201 register and upload; 202 label and train",
    file: "test/support/examples.ts",
    test: "answers every example as the description shows",
  },
];
