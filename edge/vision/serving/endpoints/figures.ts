// What meters have counted, as the wire shows it.

import { CONFIDENCE_BINS } from "../../../../shared/detector/confidence-bins.ts";
import { iso } from "../../../../shared/time.ts";
import type {
  EndpointStatus,
  MetricsSummary,
  ShadowFigures,
  WindowName,
} from "../../../../shared/wire/endpoints.ts";
import type { ModelRow } from "../../models/registry.ts";
import { driftOf, validationReference } from "./drift.ts";
import type { MeterReading, MeterWindow } from "./meter.ts";
import { DRIFT_BINS, percentile, type Rollup, type ShadowCounts, sumOf } from "./rollups.ts";

type Figures = Omit<MetricsSummary["models"][number], "model_id">;

const round = (ms: number | null) => (ms === null ? null : Math.round(ms * 10) / 10);

function figuresOf(rollup: Rollup): Figures {
  const of = (share: number) => round(percentile(rollup.latency, share));
  return {
    requests: rollup.requests,
    answered: rollup.answered,
    errors: rollup.errors,
    latency_ms: { p50: of(0.5), p95: of(0.95), p99: of(0.99) },
    batch_sizes: Object.entries(rollup.batches)
      .map(([size, count]) => ({ size: Number(size), count }))
      .sort((one, other) => one.size - other.size),
    cold_starts: rollup.coldStarts,
  };
}

/** Figures of each model that got requests, the busiest first. */
const modelFigures = (models: Record<string, Rollup>): MetricsSummary["models"] =>
  Object.entries(models)
    .filter(([modelId]) => modelId !== "")
    .map(([model_id, rollup]) => ({ model_id, ...figuresOf(rollup) }))
    .sort((one, other) => other.requests - one.requests);

const shadowFigures = (shadows: Record<string, ShadowCounts>): ShadowFigures[] =>
  Object.entries(shadows).map(([model_id, counts]) => ({
    model_id,
    mirrored: counts.mirrored,
    compared: counts.compared,
    shed: counts.shed,
    failed: counts.failed,
    matched: counts.matched,
    other_class: counts.otherClass,
    only_live: counts.onlyLive,
    only_shadow: counts.onlyShadow,
    mean_iou: counts.matched > 0 ? counts.iou / counts.matched : null,
  }));

/** A window of an endpoint's status. */
export function windowRecord({ since, models }: MeterWindow): EndpointStatus["windows"]["1h"] {
  const all = sumOf(Object.values(models));
  return {
    since: iso(since),
    ...figuresOf(all),
    models: modelFigures(models),
    shadows: shadowFigures(all.shadows),
  };
}

/** What several meters counted in a window, together. */
export function summaryOf(
  readings: readonly MeterReading[],
  window: WindowName,
  active: ModelRow | null,
): Omit<MetricsSummary, "workspace_id" | "endpoints"> {
  const windows = readings.map(({ windows: all }) => all[window]);
  const models: Record<string, Rollup> = {};
  for (const { models: own } of windows) {
    for (const [modelId, rollup] of Object.entries(own)) {
      models[modelId] = sumOf([rollup, ...(models[modelId] ? [models[modelId]] : [])]);
    }
  }
  const all = sumOf(Object.values(models));
  return {
    window,
    since: iso(Math.min(...windows.map(({ since }) => since))),
    active_model_id: active?.modelId ?? null,
    ...figuresOf(all),
    predictions: all.confidence.reduce((sum, count) => sum + count, 0),
    classes: Object.entries(all.classes)
      .map(([name, count]) => ({ class: name, count }))
      .sort((one, other) => other.count - one.count || (one.class < other.class ? -1 : 1)),
    confidence_histogram: all.confidence.map((count, bin) => ({
      from: bin / CONFIDENCE_BINS,
      to: (bin + 1) / CONFIDENCE_BINS,
      count,
    })),
    models: modelFigures(models),
    drift: active && driftOver(readings, window, active),
  };
}

function driftOver(readings: readonly MeterReading[], window: WindowName, model: ModelRow) {
  const { modelId } = model;
  const none = new Array<number>(DRIFT_BINS).fill(0);
  const samples = readings.map(({ references, windows }) => ({
    reference: references[modelId] ?? none,
    now: windows[window].models[modelId]?.scores ?? none,
  }));
  return driftOf(modelId, samples, validationReference(model));
}
