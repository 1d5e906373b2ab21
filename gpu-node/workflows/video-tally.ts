// What the runs of a video's frames come to together, within what the result of a task may have:
// outputs by frame, steps summed, effects as far as they fit.

import {
  VIDEO_BYTES_MAX,
  VIDEO_EFFECTS_MAX,
  VIDEO_STATE_BYTES_MAX,
  type WorkflowFailureReport,
  type WorkflowStepReport,
  type WorkflowVideoAnswer,
} from "../../shared/tasks/workflow-task.ts";
import { WorkflowFailure, type WorkflowRun } from "../../shared/workflow/execution.ts";
import { writeOutputs } from "../../shared/workflow/wire.ts";
import { effectReport, ImageAllowance, stepReport } from "./session.ts";

/** Bytes of the images of all effects, in base64. */
const EFFECT_BYTES_MAX = 4 * 1024 * 1024;
/** Bytes of what all effects ask for. */
const REQUEST_BYTES_MAX = 1024 * 1024;
const WARNINGS_MAX = 200;
const NO_IMAGES = "Images are left out of the outputs of a video: they are null.";

/** A result but for the footage's own. */
type VideoSum = Pick<
  WorkflowVideoAnswer,
  "failure" | "frames" | "steps" | "effects" | "state" | "warnings"
> & {
  left_out: Omit<WorkflowVideoAnswer["left_out"], "frames">;
};

/** Takes one frame's run after another. */
export class VideoTally {
  /** As the last frame has left it. */
  state: WorkflowVideoAnswer["state"];
  /** Why the run ended before the last frame; null where it did not. */
  failure: WorkflowFailureReport | null = null;
  readonly #frames: WorkflowVideoAnswer["frames"] = [];
  readonly #steps = new Map<string, WorkflowStepReport>();
  readonly #effects: WorkflowVideoAnswer["effects"] = [];
  readonly #leftOut = { effects: 0, images: 0 };
  readonly #effectImages = new ImageAllowance(EFFECT_BYTES_MAX);
  #bytes = 0;
  #requestBytes = 0;

  constructor(state: WorkflowVideoAnswer["state"]) {
    this.state = state;
  }

  /** Frames so far. */
  get count(): number {
    return this.#frames.length;
  }

  /** Takes the run of a frame, its time in seconds; fails where its outputs are too many. */
  async add(index: number, time: number, run: WorkflowRun): Promise<void> {
    const outputs = (await writeOutputs(run.outputs, async () => {
      this.#leftOut.images += 1;
      return null;
    })) as WorkflowVideoAnswer["state"];
    this.#bytes += Buffer.byteLength(JSON.stringify(outputs));
    if (this.#bytes > VIDEO_BYTES_MAX) {
      throw new WorkflowFailure(
        "limit",
        `the outputs of ${this.count} frames are all that fit: ask for fewer frames or outputs`,
      );
    }
    this.#frames.push({ frame_index: index, time, outputs });
    // Outputs and state are JSON, as the wire's schema checks where the result is read.
    this.state = run.state as WorkflowVideoAnswer["state"];
    for (const report of run.steps) {
      this.#steps.set(report.step, summed(this.#steps.get(report.step), stepReport(report)));
    }
    for (const effect of run.effects) await this.#addEffect(index, effect);
  }

  async #addEffect(index: number, effect: WorkflowRun["effects"][number]) {
    const bytes = Buffer.byteLength(JSON.stringify(effect.request));
    const isFull =
      this.#effects.length >= VIDEO_EFFECTS_MAX || this.#requestBytes + bytes > REQUEST_BYTES_MAX;
    const image =
      isFull || effect.image === undefined ? null : await this.#effectImages.write(effect.image);
    if (isFull || (effect.image !== undefined && image === null)) {
      this.#leftOut.effects += 1;
      return;
    }
    this.#requestBytes += bytes;
    this.#effects.push({ ...effectReport(effect, image), frame_index: index });
  }

  told(): VideoSum {
    // Nobody goes on from it, and a result that is too large has none of its frames.
    const isStateTold = Buffer.byteLength(JSON.stringify(this.state)) <= VIDEO_STATE_BYTES_MAX;
    return {
      failure: this.failure,
      frames: this.#frames,
      steps: [...this.#steps.values()],
      effects: this.#effects,
      state: isStateTold ? this.state : {},
      left_out: this.#leftOut,
      warnings: this.#leftOut.images > 0 ? [NO_IMAGES] : [],
    };
  }
}

/** A step's reports on some frames and on one more. */
function summed(
  before: WorkflowStepReport | undefined,
  report: WorkflowStepReport,
): WorkflowStepReport {
  if (!before) return report;
  const models = [...before.models];
  for (const model of report.models) {
    const isKnown = ({ asked, model_id }: typeof model) =>
      asked === model.asked && model_id === model.model_id;
    if (!models.some(isKnown)) models.push(model);
  }
  return {
    ...report,
    elements: before.elements + report.elements,
    masked: before.masked + report.masked,
    cache_hits: before.cache_hits + report.cache_hits,
    ms: before.ms + report.ms,
    models,
    warnings: [...new Set([...before.warnings, ...report.warnings])].slice(0, WARNINGS_MAX),
  };
}
