// Checkpoints of a run on this node's disk. The newest and the one before it are kept, each naming
// the best weights as of then, so that a kill at any moment leaves one from which the run goes on.

import * as fs from "node:fs/promises";
import { z } from "zod";
import type { Engine, Evaluation } from "../../native/index.d.ts";
import { headerBytes, parseHeader } from "../../shared/detector/safetensors.ts";
import type { Checkpoint } from "../../shared/tasks/train-task.ts";
import { ResolvedSettings, RunEpoch } from "../../shared/wire/training.ts";
import { type Scores, scoresOf } from "./run-charts.ts";
import type { RunFolder } from "./run-folder.ts";

/** Where a run is: epochs done, and batches of the one under way. */
export type Position = Pick<Checkpoint, "epoch" | "batch">;

/** What a run knows of itself; it travels in the checkpoint's metadata. */
export const RunState = z.object({
  run_id: z.string(),
  dataset_sha256: z.string(),
  classes: z.array(z.string()),
  variant: z.string(),
  epoch: z.number().int(),
  batch: z.number().int(),
  /** Learning rate of the newest step. */
  learning_rate: z.number(),
  resolved: ResolvedSettings,
  history: z.array(RunEpoch),
  /** The best epoch by `epochScore`, counted from 1; its weights are a file named after it. */
  best: z
    .object({
      epoch: z.number().int(),
      score: z.number(),
      /** The epoch that was the first with this score: patience counts from here. */
      since: z.number().int(),
    })
    .nullable(),
  /** The trend of that score, by which patience counts; null before the first one. */
  trend: z
    .object({
      value: z.number(),
      best: z.number(),
      /** The epoch, counted from 1, in which the trend was at its best first. */
      since: z.number().int(),
    })
    .nullable(),
  /** Number of the newest line of the log. */
  line: z.number().int(),
});
export type RunState = z.infer<typeof RunState>;

/** A checkpoint on this node's disk. */
export interface CheckpointFile {
  path: string;
  state: RunState;
}

export const LAST = "weights/last.safetensors";
export const PREVIOUS = "weights/previous.safetensors";
export const FETCHED = "weights/fetched.safetensors";
const METADATA = "run";
const PER_CLASS = "per_class/";

/** Metrics that a history holds: what checkpoints and the service take of a run without strain. */
const METRICS_MAX = 200_000;
const EPOCHS_WHOLE = 20;

/**
 * A history of bounded size: in a long run with many classes older epochs keep the metrics over all
 * classes alone. The service was told of the others when they were new.
 */
export function thinned(history: readonly RunEpoch[], bestEpoch: number | undefined): RunEpoch[] {
  let count = history.reduce((sum, { metrics }) => sum + Object.keys(metrics).length, 0);
  return history.map((row, at) => {
    const isNew = at >= history.length - EPOCHS_WHOLE;
    if (count <= METRICS_MAX || isNew || row.epoch === bestEpoch) return row;
    const all = Object.entries(row.metrics);
    const kept = all.filter(([name]) => !name.startsWith(PER_CLASS));
    count -= all.length - kept.length;
    return { ...row, metrics: Object.fromEntries(kept) };
  });
}

export const bestWeights = (epoch: number) => `weights/best-${epoch}.safetensors`;
export const bestScores = (epoch: number) => `weights/best-${epoch}.json`;

/** Names of a file of weights, and of what they scored, in the run's folder. */
export interface WeightsFiles {
  weights: string;
  scores: string;
}
export const bestFiles = (epoch: number): WeightsFiles => ({
  weights: bestWeights(epoch),
  scores: bestScores(epoch),
});
/** Weights of a run that was stopped, as they were then. */
export const LATEST_FILES: WeightsFiles = {
  weights: "weights/latest.safetensors",
  scores: "weights/latest.json",
};

/** The same weights, and what they score as they are served: with suppression. */
export const suppressedFiles = ({ weights }: WeightsFiles): WeightsFiles => ({
  weights,
  scores: "weights/suppressed.json",
});

/** Whether one position of a run is further than another. */
export const isFurther = (one: Position, other: Position): boolean =>
  one.epoch > other.epoch || (one.epoch === other.epoch && one.batch > other.batch);

/** Keeps the newest checkpoint beside the next one; null where there is none to keep. */
export async function keepPrevious(folder: RunFolder): Promise<RunState | null> {
  const [last, previous] = [folder.file(LAST), folder.file(PREVIOUS)];
  const kept = await readState(last).catch(() => null);
  if (kept) {
    await fs.rm(`${previous}.part`, { force: true });
    await fs.link(last, `${previous}.part`);
    await fs.rename(`${previous}.part`, previous);
  }
  return kept;
}

/** Has the engine copy everything that the next step depends on; resolves once it is written. */
export const beginCheckpoint = (
  engine: Pick<Engine, "checkpoint">,
  folder: RunFolder,
  state: RunState,
): Promise<unknown> => engine.checkpoint(folder.file(LAST), { [METADATA]: JSON.stringify(state) });

/** The average's weights of an epoch that was the best so far. */
export interface BestWeights {
  epoch: number;
  evaluation: Evaluation;
  metadata: Record<string, string>;
}

/** Keeps what weights scored; before these, so that no weights are without scores. */
export const saveScores = (
  folder: RunFolder,
  { scores }: Pick<WeightsFiles, "scores">,
  evaluation: Evaluation,
) => folder.write(scores, JSON.stringify(scoresOf(evaluation)));

/** Forgets what weights of the same names scored before. */
export const removeScores = (folder: RunFolder, { scores }: Pick<WeightsFiles, "scores">) =>
  fs.rm(folder.file(scores), { force: true });

/** What weights scored; null where that is not here or cannot be read. */
export async function readScores(
  folder: RunFolder,
  { scores }: Pick<WeightsFiles, "scores">,
): Promise<Scores | null> {
  try {
    return JSON.parse(await fs.readFile(folder.file(scores), "utf8")) as Scores;
  } catch {
    return null;
  }
}

/** Removes best weights of all other epochs. */
export async function pruneBest(folder: RunFolder, epochs: readonly (number | undefined)[]) {
  for (const name of await fs.readdir(folder.file("weights"))) {
    const [, epoch] = /^best-(\d+)\.(safetensors|json)$/.exec(name) ?? [];
    if (epoch !== undefined && !epochs.includes(Number(epoch))) {
      await fs.rm(folder.file(`weights/${name}`), { force: true });
    }
  }
}

/** Checkpoints of this folder that can be read so far, the furthest first. */
export async function findCheckpoints(
  folder: RunFolder,
  fits: (state: RunState) => string | null,
  onRefused: (why: string) => void,
): Promise<CheckpointFile[]> {
  const found: CheckpointFile[] = [];
  for (const name of [LAST, PREVIOUS]) {
    const one = await openCheckpoint(folder, name, fits).catch((thrown: unknown) => {
      if ((thrown as { code?: string }).code !== "ENOENT") onRefused((thrown as Error).message);
      return null;
    });
    if (one) found.push(one);
  }
  return found.sort((one, other) => (isFurther(one.state, other.state) ? -1 : 1));
}

/** A checkpoint that is of this run and has its best weights beside it, or why it is not used. */
export async function openCheckpoint(
  folder: RunFolder,
  name: string,
  fits: (state: RunState) => string | null,
): Promise<CheckpointFile> {
  const path = folder.file(name);
  const state = await readState(path);
  const unfit = fits(state);
  if (unfit) throw new Error(unfit);
  if (state.best) {
    await fs.stat(folder.file(bestWeights(state.best.epoch))).catch(() => {
      throw new Error("the best weights of its run are not beside it");
    });
  }
  return { path, state };
}

/** The run's state in a checkpoint's header; its tensors are not read. */
async function readState(path: string): Promise<RunState> {
  const file = await fs.open(path);
  try {
    const { size } = await file.stat();
    const head = Buffer.alloc(8);
    await file.read(head, 0, 8, 0);
    const bytes = headerBytes(head);
    if (size < 8 || bytes === null || bytes > size - 8) throw new Error("it is cut short");
    const header = Buffer.alloc(bytes);
    await file.read(header, 0, bytes, 8);
    const { metadata } = parseHeader(header);
    return RunState.parse(JSON.parse(metadata[METADATA] ?? "null"));
  } catch (thrown) {
    if ((thrown as { code?: string }).code) throw thrown;
    const reason = (thrown as Error).name === "Error" ? (thrown as Error).message : "it is damaged";
    throw new Error(`the checkpoint cannot be read: ${reason}`, { cause: thrown });
  } finally {
    await file.close();
  }
}
