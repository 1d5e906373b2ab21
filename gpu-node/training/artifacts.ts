// What a run leaves for people beside its model: settings, curves, images, the log. Each is a
// file of the run's folder; one that cannot be made costs nothing but itself.

import type { Engine, TrainingOptions } from "../../native/index.d.ts";
import type { Native } from "../../native/load.ts";
import { byHead } from "../../shared/detector/deployed-detector.ts";
import type { DetectorGraph } from "../../shared/detector/detector.ts";
import { CURVES } from "../../shared/wire/run-curves.ts";
import type { ArtifactObject, RunEpoch, TrainSettings } from "../../shared/wire/training.ts";
import type { TaskContext } from "../objects/task-context.ts";
import { type RunState, readScores, type WeightsFiles } from "./checkpoints.ts";
import { curvesFile, curvesOf } from "./curves.ts";
import type { Split, TrainingData } from "./dataset.ts";
import {
  confidenceChart,
  confusionChart,
  type LabelBox,
  labelsChart,
  precisionRecallChart,
  resultsChart,
} from "./run-charts.ts";
import type { RunFolder } from "./run-folder.ts";
import {
  batchOf,
  drawSheet,
  type Sheet,
  sheetsOfBatch,
  sheetsOfSplit,
  withDetections,
  withMasks,
} from "./sheets.ts";
import type { Hardware } from "./start.ts";
import { suppressedDetections } from "./suppression-choice.ts";
import { uploadArtifact } from "./uploads.ts";

const SAMPLE_CONFIDENCE = 0.25;

export interface RunFiles {
  context: Pick<TaskContext, "address" | "log">;
  folder: RunFolder;
  data: TrainingData;
  settings: TrainSettings;
}

/** Makes a file, or says in the log that it could not. */
async function make(
  { context, folder }: Pick<RunFiles, "context" | "folder">,
  name: string,
  content: () => Promise<string | Uint8Array | null>,
) {
  try {
    const made = await content();
    if (made !== null) await folder.write(name, made);
  } catch (thrown) {
    context.log.warning("artifact_not_made", { name, error: thrown });
  }
}

/** What is known as the training begins. */
export async function writeOpening(
  files: RunFiles,
  more: {
    engine: Engine;
    options: TrainingOptions;
    state: RunState;
    name: string;
    machine: { torch: string; threads: number };
  },
): Promise<void> {
  const { data, settings } = files;
  const { engine, options, state, name, machine } = more;
  const images = { train: state.resolved.train_images, val: state.resolved.val_images };
  const dataset = { sha256: data.sha256, classes: data.classes, images };
  const { resolved } = state;
  const args = { run_id: state.run_id, name, settings, resolved, options, dataset, machine };
  await make(files, "args.json", async () => `${JSON.stringify(args, null, 2)}\n`);
  await make(files, "labels.png", () => labelsChart(labelBoxes(data), data.classes));
  await make(files, "train_batch0.jpg", async () =>
    drawSheet(sheetsOfBatch(await engine.render({ epoch: 0, batch: 0 })), data.classes),
  );
}

function labelBoxes({ splits }: TrainingData): LabelBox[] {
  return (["train", "val"] as const).flatMap((split: Split) =>
    splits[split].images.flatMap(({ width, height, boxes }) => {
      const found: LabelBox[] = [];
      for (let at = 0; at + 4 < boxes.length; at += 5) {
        const [className = 0, x1 = 0, y1 = 0, x2 = 0, y2 = 0] = boxes.subarray(at, at + 5);
        const [x, y] = [(x1 + x2) / 2 / width, (y1 + y2) / 2 / height];
        found.push({
          className,
          split,
          x,
          y,
          width: (x2 - x1) / width,
          height: (y2 - y1) / height,
        });
      }
      return found;
    }),
  );
}

/** Weights in the run's folder, with the epoch that they are of. */
interface MeasuredWeights {
  files: WeightsFiles;
  epoch: number;
}

/** What the run came to. Its model predicts on images that it was not trained on. */
export async function writeClosing(
  files: RunFiles,
  more: {
    native: Native;
    graph: DetectorGraph;
    hardware: Hardware;
    state: RunState;
    /** The model's weights; null where there is no model. */
    model: MeasuredWeights | null;
    /** Those of the best epoch; null where no epoch was measured. */
    best: MeasuredWeights | null;
  },
): Promise<void> {
  const { folder, data, settings } = files;
  const { native, graph, hardware, state, model, best } = more;
  const { history } = state;
  await make(files, "results.csv", async () => (history.length > 0 ? csvOf(history) : null));
  await make(files, "results.png", async () => (history.length > 0 ? resultsChart(history) : null));
  await make(files, CURVES, async () => {
    const of = async (weights: MeasuredWeights | null) => {
      const scores = weights && (await readScores(folder, weights.files));
      return scores && curvesOf(scores, { classes: data.classes, epoch: weights.epoch });
    };
    return curvesFile({ best_epoch: await of(best), model: await of(model) });
  });
  const scores = model && (await readScores(folder, model.files));
  if (scores) {
    await make(files, "confusion_matrix.png", () => confusionChart(scores, data.classes));
    await make(files, "pr_curve.png", () => precisionRecallChart(scores));
    await make(files, "f1_curve.png", () => confidenceChart(scores));
  }
  const sheets = await sheetsOfSplit(data.splits.val, settings.image_size);
  await make(files, "val_batch0_labels.jpg", () => drawSheet(sheets, data.classes));
  if (!model) return;
  await make(files, "val_batch0_pred.jpg", async () => {
    const { device, threads } = hardware;
    const { precision, nms_iou: nmsIou, head = "one_to_one" } = state.resolved;
    const served = byHead(graph, head);
    const engine = new native.Engine({ graph: served, device, precision, threads, seed: 0 });
    try {
      await engine.load(folder.file(model.files.weights));
      if (graph.task === "segmentation") return await maskSheet(engine, sheets, data.classes);
      const all = await engine.predict(batchOf(sheets), SAMPLE_CONFIDENCE);
      const found =
        nmsIou === undefined ? all : all.map((one) => suppressedDetections(one, nmsIou));
      return await drawSheet(withDetections(sheets, found), data.classes);
    } finally {
      await engine.close();
    }
  });
}

/** What masks the model finds, image by image: those of a whole sheet would take much memory. */
async function maskSheet(engine: Engine, sheets: readonly Sheet[], classes: readonly string[]) {
  const drawn: Sheet[] = [];
  for (const sheet of sheets) {
    const [found] = await engine.predictMasks(batchOf([sheet]), SAMPLE_CONFIDENCE);
    drawn.push(found ? withMasks(sheet, found.detections, found.masks) : sheet);
  }
  return drawSheet(drawn, classes);
}

/** The epochs as a table; losses and metrics that only some epochs have are columns of all. */
export function csvOf(history: readonly RunEpoch[]): string {
  const names = [...new Set(history.flatMap(({ metrics }) => Object.keys(metrics)))];
  const cell = (text: string) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const items = (["box", "cls", "dfl", "mask", "semantic"] as const).filter((item) =>
    history.some(({ losses }) => losses[item] !== undefined),
  );
  const validated = (["box", "cls", "dfl", "mask"] as const).filter((item) =>
    history.some(({ validation_losses: losses }) => losses?.[item] !== undefined),
  );
  const head = ["epoch", "seconds", ...items.map((item) => `${item}_loss`), "learning_rate"];
  head.push(...validated.map((item) => `val/${item}_loss`));
  const rows = history.map((row) => [
    ...[row.epoch, row.seconds, ...items.map((item) => row.losses[item] ?? "")],
    row.learning_rate,
    ...validated.map((item) => row.validation_losses?.[item] ?? ""),
    ...names.map((name) => row.metrics[name] ?? ""),
  ]);
  return `${[[...head, ...names].map(cell), ...rows].map((row) => row.join(",")).join("\n")}\n`;
}

const NAMES = [
  ...["args.json", "results.csv", "results.png", "confusion_matrix.png", "pr_curve.png"],
  ...["f1_curve.png", CURVES, "labels.png", "train_batch0.jpg", "val_batch0_labels.jpg"],
  ...["val_batch0_pred.jpg", "train.log"],
];

/** Uploads the files that there are; `all` says whether each of them arrived. */
export async function uploadArtifacts({
  context,
  folder,
}: RunFiles): Promise<{ artifacts: ArtifactObject[]; all: boolean }> {
  const artifacts: ArtifactObject[] = [];
  let all = true;
  for (const name of NAMES) {
    try {
      artifacts.push(await uploadArtifact(context, folder.file(name), name));
    } catch (thrown) {
      if ((thrown as { code?: string }).code === "ENOENT") continue;
      all = false;
      context.log.warning("artifact_not_uploaded", { name, error: thrown });
    }
  }
  return { artifacts, all };
}
