// What an image without an answer says of the model that was chosen. Goal: only what the model had
// in its hands counts against it, and nobody who leaves makes a slow model look fast.

import { describe, expect, it } from "vitest";
import {
  addSample,
  emptyTrial,
  leftSample,
} from "../../../edge/vision/serving/endpoints/trials.ts";
import { isModelFailure } from "../../../edge/vision/serving/predict/direct.ts";
import { Failure } from "../../../shared/errors.ts";

const failed = (data: Record<string, unknown> = {}) =>
  isModelFailure(new Failure("task_failed", "no", { data }));

describe("a failure", () => {
  it("is the model's where a node was asked and refused", () => {
    expect(failed()).toBe(true);
    expect(failed({ node_code: "bad_weights" })).toBe(true);
    expect(failed({ task_id: "t", node_code: "internal" })).toBe(true);
  });

  it("is nobody's where no node was asked, or none could do it", () => {
    const codes = [
      "no_node",
      "overloaded",
      "store_unavailable",
      "internal",
      "rate_limited",
    ] as const;
    for (const code of codes) expect(isModelFailure(new Failure(code, "no"))).toBe(false);
    expect(isModelFailure(new Error("no"))).toBe(false);
    // A task that was purged, and one whose nodes fell over.
    expect(failed({ task_id: "t" })).toBe(false);
    expect(failed({ task_id: "t", node_code: "lease_lost" })).toBe(false);
  });
});

describe("an image whose sender left", () => {
  it("took at least as long, and failed where the wait was long", () => {
    const trial = emptyTrial();
    for (const ms of [20, 900, 5_000]) addSample(trial, leftSample(ms));
    expect(trial).toMatchObject({ requests: 3, failures: 1, latency: { count: 3 } });
    expect(Object.values(trial.histogram)).toEqual([1, 1, 1]);
    expect(trial.confidence.count).toBe(0);
  });
});
