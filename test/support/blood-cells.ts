// Blood cells: real images with boxes, as the dataset of a run, and detectors that are trained on
// them by the node's own code, for minutes or for less than one.

import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import { type ObjectSource, TASK_KINDS, type TaskPayload } from "../../shared/tasks/tasks.ts";
import { TrainDetail } from "../../shared/tasks/train-task.ts";
import {
  type MetricMap,
  type ResolvedSettings,
  TrainSettings,
} from "../../shared/wire/training.ts";
import { bloodImage, bloodSplit, realData } from "./images.ts";
import type { NodeService } from "./node-service.ts";
import { taskContext } from "./task-context.ts";

export const BLOOD_CLASSES = ["RBC", "WBC", "Platelets"];
/** Pixels a side that the detector was trained at. */
export const BLOOD_SIDE = 256;
/** Where `npm run bench -- blood-cell-model` leaves its weights. */
export const BLOOD_WEIGHTS = resolve(import.meta.dirname, "../../.vantage/blood-cells.safetensors");

/** Puts a dataset's objects where its reader finds them. */
interface ObjectStore {
  source(key: string, bytes: Buffer): ObjectSource;
}

/**
 * The images and their list with the cells of some classes, as a task names them; null where they
 * are not all here.
 */
export async function bloodDataset(
  store: ObjectStore,
  classes: readonly string[] = BLOOD_CLASSES,
): Promise<{ manifest: ObjectSource; videos: ObjectSource[] } | null> {
  const listed: ExportManifest["videos"] = [];
  const videos: ObjectSource[] = [];
  for (const split of ["train", "val"] as const) {
    for (const id of bloodSplit(split)) {
      const blood = await bloodImage(id);
      const file = realData(`bccd/images/${id}.jpg`);
      if (!blood || !file) return null;
      const key = `ws/a/blood/${id}.jpg`;
      videos.push(store.source(key, readFileSync(file)));
      const truth = blood.truth.filter(({ name }) => classes.includes(name));
      const annotations = truth.map(({ name, bbox }) => ({
        id: crypto.randomUUID(),
        class_index: classes.indexOf(name),
        bbox,
        polygon: null,
      }));
      const { width, height } = blood.image;
      const frames = [{ index: 0, split, annotations }];
      listed.push({ video_id: id, filename: `${id}.jpg`, key, width, height, frames });
    }
  }
  if (listed.length === 0) return null;
  const list = { name: "blood cells", classes: [...classes], left_out_frames: 0, videos: listed };
  const manifest = Buffer.from(JSON.stringify(ExportManifest.parse(list)));
  return { manifest: store.source("ws/a/blood.json", manifest), videos };
}

/** The trained detector's weights; null, said aloud, where nobody trained it here. */
export function bloodWeights(): Buffer | null {
  if (existsSync(BLOOD_WEIGHTS)) return readFileSync(BLOOD_WEIGHTS);
  process.stderr.write(
    "SKIPPED: the test needs a detector of blood cells: npm run bench -- blood-cell-model\n",
  );
  return null;
}

/** Hears of each epoch that has ended, by its number from 1. */
type OnEpoch = (epoch: number, metrics: MetricMap) => void;

export interface BloodTraining {
  classes?: readonly string[];
  onEpoch?: OnEpoch;
}

/** A model that was trained, and what is told of it. */
export interface BloodModel {
  weights: Buffer;
  metrics: MetricMap;
  resolved: ResolvedSettings;
}

/** Trains a detector on the dataset in a folder of its own. */
export async function trainOnBlood(
  service: NodeService,
  dir: string,
  settings: Partial<TrainSettings>,
  { classes = BLOOD_CLASSES, onEpoch = () => {} }: BloodTraining = {},
): Promise<BloodModel> {
  const dataset = await bloodDataset(service, classes);
  if (!dataset) throw new Error("the images are not on this machine");
  const payload: TaskPayload<"train"> = {
    run_id: crypto.randomUUID(),
    name: "blood cells",
    // The same on every processor, with bf16 or without.
    settings: TrainSettings.parse({ precision: "fp32", ...settings }),
    ...dataset,
    pretrained: null,
    resume: null,
  };
  let epoch = -1;
  const context = await taskContext(service, dir, {
    progress: ({ detail }) => {
      const { recent } = TrainDetail.parse(JSON.parse(JSON.stringify(detail)));
      const newest = recent.at(-1);
      if (!newest || newest.epoch === epoch) return;
      epoch = newest.epoch;
      onEpoch(epoch, newest.metrics);
    },
  });
  const outcome = await runTask("train", payload, context);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  const { model, resolved } = TASK_KINDS.train.result.parse(outcome.result);
  const weights = model && service.objects.get(model.weights.key);
  if (!weights || !resolved) throw new Error("the training gave no model");
  return { weights, metrics: model.metrics, resolved };
}
