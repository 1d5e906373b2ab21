// What a node reports of a training: its checkpoints, how far it is, and the model and the objects
// that it leaves.

import { z } from "zod";
import { ConfidenceBins } from "../detector/confidence-bins.ts";
import {
  ArtifactObject,
  EPOCHS_MAX,
  MetricMap,
  ResolvedSettings,
  RunEpoch,
} from "../wire/training.ts";
import { int32, StoredObject } from "./task-objects.ts";

/** The object from which a training run goes on. */
export const Checkpoint = StoredObject.extend({
  /** Epochs done. */
  epoch: z.number().int().min(0).max(EPOCHS_MAX),
  /** Batches done of the epoch under way. */
  batch: int32(),
});
export type Checkpoint = z.infer<typeof Checkpoint>;

/** A model as the registry takes it in. */
export const TrainedModel = z.object({
  weights: StoredObject.extend({ sha256: z.string().regex(/^[0-9a-f]{64}$/) }),
  parameters: z.number().int().min(0),
  epoch: RunEpoch.shape.epoch,
  metrics: MetricMap,
  /** What it found on the validation split, by confidence; null where that was not measured. */
  confidence_bins: ConfidenceBins.nullable(),
  /**
   * Metrics on the test frames, on which nothing was chosen; null where the dataset has none with
   * an annotation, or they could not be measured. Nodes of earlier releases do not send them.
   */
  test_metrics: MetricMap.nullable().optional(),
});
export type TrainedModel = z.infer<typeof TrainedModel>;

/** An object that a run left. Weights have with them what the registry stores of a model. */
export const RunArtifact = ArtifactObject.extend({ model: TrainedModel.optional() });
export type RunArtifact = z.infer<typeof RunArtifact>;

/** What a train task reports beside `done` and `total`, which are batches. */
export const TrainDetail = z.object({
  epoch: z.number().int().min(0).max(EPOCHS_MAX),
  batch: int32(),
  batches: int32(),
  losses: RunEpoch.shape.losses.nullable(),
  learning_rate: z.number().nullable(),
  images_per_second: z.number().nullable(),
  memory_bytes: z.number().nullable(),
  eta_seconds: z.number().nullable(),
  resolved: ResolvedSettings.nullable(),
  /** The newest epochs, oldest first; the same one may come many times. */
  recent: z.array(RunEpoch).max(20),
  /** The newest lines, numbered from 1 through all attempts; the same one may come many times. */
  log: z.array(z.object({ n: int32(), line: z.string() })).max(50),
  checkpoint: Checkpoint.nullable(),
});
export type TrainDetail = z.infer<typeof TrainDetail>;
