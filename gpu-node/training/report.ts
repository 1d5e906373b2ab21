// What a run says while it trains: the lines that people know from training consoles, and the
// detail of its progress. Lines are numbered through all attempts; the newest come with every
// report, so that one that is lost costs nothing.

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import type { StepProgress } from "../../native/index.d.ts";
import type { Checkpoint, TrainDetail } from "../../shared/tasks/train-task.ts";
import { iso, systemClock } from "../../shared/time.ts";
import type { ResolvedSettings, RunEpoch, RunLosses } from "../../shared/wire/training.ts";
import type { TaskContext } from "../objects/task-context.ts";
import type { Position } from "./checkpoints.ts";

const TELL_MS = 1_000;
const LINES_MAX = 50;
/** Lines that an attempt may have said after its last checkpoint. */
const LINES_SKIPPED = 1_000;
const LINE_MAX = 300;
const EPOCHS_MAX = 20;
/** Metrics in one report: a run with many classes repeats fewer epochs. */
const METRICS_MAX = 2_000;

export interface RunShape {
  epochs: number;
  batches: number;
}

export class Report {
  readonly #progress: TaskContext["progress"];
  readonly #logPath: string;
  readonly #lines: TrainDetail["log"] = [];
  #line: number;
  #continued = false;
  #toldAt = Number.NEGATIVE_INFINITY;
  #position: Position = { epoch: 0, batch: 0 };
  #shape: RunShape = { epochs: 0, batches: 0 };
  #step: StepProgress | null = null;
  #etaSeconds: number | null = null;
  #recent: readonly RunEpoch[] = [];
  resolved: ResolvedSettings | null = null;
  checkpoint: Checkpoint | null = null;

  constructor(progress: TaskContext["progress"], logPath: string) {
    this.#progress = progress;
    this.#logPath = logPath;
    // An attempt that left no checkpoint may have left lines.
    this.#line = linesIn(logPath);
  }

  /** Number of the newest line. */
  get line(): number {
    return this.#line;
  }

  /** Goes on after the lines of earlier attempts; what was said so far is numbered anew, once. */
  continueAfter(line: number) {
    if (this.#continued) return;
    this.#continued = true;
    const shift = Math.max(0, line + LINES_SKIPPED - (this.#line - this.#lines.length));
    for (const one of this.#lines) one.n += shift;
    this.#line += shift;
  }

  /** A line of the log. */
  say(text: string) {
    for (const part of text.split("\n")) {
      const line = part.slice(0, LINE_MAX);
      this.#line += 1;
      this.#lines.push({ n: this.#line, line });
      appendFileSync(this.#logPath, `${iso(systemClock())} ${line}\n`, { mode: 0o600 });
    }
    this.#lines.splice(0, Math.max(0, this.#lines.length - LINES_MAX));
  }

  begin(shape: RunShape, position: Position, history: readonly RunEpoch[]) {
    // From here on lines are told under their numbers.
    this.#continued = true;
    this.#shape = shape;
    this.#position = position;
    this.#recent = history;
  }

  step(progress: StepProgress, etaSeconds: number | null) {
    // The first one says that it goes.
    const isFirst = this.#step === null;
    this.#step = progress;
    this.#position = { epoch: progress.epoch, batch: progress.batch };
    this.#etaSeconds = etaSeconds;
    this.tell({ must: isFirst });
  }

  epochDone(history: readonly RunEpoch[], position: Position, etaSeconds: number | null) {
    this.#recent = history;
    this.#position = position;
    this.#etaSeconds = etaSeconds;
    this.tell({ must: true });
  }

  /** Reports, unless it did just now. */
  tell({ must = false }: { must?: boolean } = {}) {
    const now = performance.now();
    if (!must && now - this.#toldAt < TELL_MS) return;
    this.#toldAt = now;
    const { epoch, batch } = this.#position;
    const { epochs, batches } = this.#shape;
    const done = Math.min(epoch * batches + batch, epochs * batches);
    this.#progress({ done, total: epochs * batches, detail: this.#detail() }, must);
  }

  #detail(): TrainDetail {
    const { batches } = this.#shape;
    const step = this.#step;
    const losses = step && finite(step.losses);
    const each = Object.keys(this.#recent.at(-1)?.metrics ?? {}).length + 1;
    const many = Math.max(2, Math.min(EPOCHS_MAX, Math.floor(METRICS_MAX / each)));
    return {
      epoch: this.#position.epoch,
      batch: this.#position.batch,
      batches,
      losses,
      learning_rate: step?.lr ?? null,
      images_per_second: step?.imagesPerSecond ?? null,
      memory_bytes: step?.memoryBytes ?? null,
      eta_seconds: this.#etaSeconds,
      resolved: this.resolved,
      recent: this.#recent.slice(-many),
      log: [...this.#lines],
      checkpoint: this.checkpoint,
    };
  }
}

const linesIn = (path: string): number =>
  existsSync(path) ? readFileSync(path, "utf8").split("\n").length - 1 : 0;

/** A step's losses; null where one of them is no number, of which JSON has none. */
const finite = ({ total: _, ...items }: StepProgress["losses"]): RunLosses | null =>
  Object.values(items).every(Number.isFinite) ? items : null;

/** Seconds as people say them. */
export function spoken(seconds: number): string {
  const whole = Math.round(seconds);
  if (whole < 60) return `${seconds < 10 ? seconds.toFixed(1) : whole} s`;
  if (whole < 3_600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3_600)} h ${Math.floor((whole % 3_600) / 60)} min`;
}

export const gibibytes = (bytes: number): string => `${(bytes / 1024 ** 3).toFixed(2)} GiB`;
