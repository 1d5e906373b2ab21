// A workflow as this process runs it: checked again by its own catalogue, its images read within
// limits, its outputs written within others. Results of pixels and models are held for a while, for
// whoever asks the same of the same image.

import { ANSWER_BYTES_MAX } from "../../shared/tasks/line.ts";
import {
  ANSWER_IMAGE_BYTES_MAX,
  EFFECTS_MAX,
  type ResolvedModel,
  type WorkflowAnswer,
  type WorkflowAsk,
  type WorkflowEffect,
  type WorkflowFailureReport,
  type WorkflowStepReport,
} from "../../shared/tasks/workflow-task.ts";
import { BlockFailure } from "../../shared/workflow/block.ts";
import { BLOCKS, PURE_RUNS } from "../../shared/workflow/blocks.ts";
import { ResultCache } from "../../shared/workflow/cache.ts";
import { checkWorkflow } from "../../shared/workflow/check.ts";
import {
  executePlan,
  RUN_LIMITS,
  type StepEffect,
  type StepReport,
  WorkflowFailure,
  type WorkflowRun,
} from "../../shared/workflow/execution.ts";
import { itemOf } from "../../shared/workflow/kinds.ts";
import { contentKey } from "../../shared/workflow/literals.ts";
import type { KeyedValue, WorkflowPlan } from "../../shared/workflow/plan.ts";
import { bytesOf } from "../../shared/workflow/value-size.ts";
import { InputFailure, isImage, readInputs, writeOutputs } from "../../shared/workflow/wire.ts";
import { BrokenMedia, TaskFailure } from "../base/failure.ts";
import type { Log } from "../base/log.ts";
import { readStill, toJpeg } from "../media/stills.ts";
import { BundleMissing } from "../segmenters/failures.ts";
import type { ModelServices } from "./model-runs.ts";
import { NodeImage, rootImage } from "./node-image.ts";
import { nodeRuns } from "./runs.ts";

/** Pixels of an image that a run is given: three bytes each, and some runs go on at once. */
const PIXELS_MAX = 40_000_000;
const WARNINGS_MAX = 200;
const WARNING_LETTERS_MAX = 2_000;
/** What an answer has beside its images: it is sent whole in one message after another. */
const ANSWER_ROOM = 64 * 1024;

/** Results of all runs of this process. */
const results = new ResultCache(
  { entriesMax: 10_000, bytesMax: 64 * 1024 ** 2, ageMax: 60_000 },
  sizeOf,
);

/** About what a value takes in memory; images are in no others but lists. */
function sizeOf(value: unknown): number {
  if (value instanceof NodeImage) return value.pixels.data.byteLength;
  if (Array.isArray(value)) return value.reduce((sum: number, item) => sum + sizeOf(item), 32);
  return bytesOf(value);
}

/** What a session works with. */
export interface SessionServices extends Omit<ModelServices, "models"> {
  log: Pick<Log, "error">;
}

/** What a run is of. */
export type SessionRequest = Pick<WorkflowAsk, "definition" | "models" | "workspace" | "inputs">;

/** An image file that a run is given at an input. */
export class GivenFile {
  readonly name: string;
  /** The bytes, or where they lie. */
  readonly file: Buffer | string;
  /** Tells the bytes from all others. */
  readonly key: string;

  constructor(name: string, file: Buffer | string, key: string) {
    this.name = name;
    this.file = file;
    this.key = key;
  }
}

/** An image that an input is given decoded, such as a frame of a video. */
export class GivenFrame {
  readonly name: string;
  readonly image: KeyedValue;

  constructor(name: string, image: KeyedValue) {
    this.name = name;
    this.image = image;
  }
}

/** A workflow ready to be run, once or on one frame after another. */
export class Session {
  readonly plan: WorkflowPlan;
  readonly #request: SessionRequest;
  readonly #services: SessionServices;

  /** Fails with `invalid_request` where the check of this node finds a problem. */
  constructor(request: SessionRequest, services: SessionServices) {
    const { problems, plan } = checkWorkflow(request.definition, {
      blocks: BLOCKS,
      workflows: new Map(),
    });
    if (!plan) {
      const [first] = problems;
      const where = [first?.step, first?.port].filter(Boolean).join(", ");
      throw new TaskFailure("invalid_request", `${where}: ${first?.detail ?? "it has no plan"}`);
    }
    this.plan = plan;
    this.#request = request;
    this.#services = services;
  }

  /** Values by input: those of the request, and images. */
  readValues(files: readonly (GivenFile | GivenFrame)[]): Promise<Map<string, KeyedValue>> {
    const given: Record<string, unknown> = Object.assign(Object.create(null), this.#request.inputs);
    for (const { name, kind } of this.plan.inputs) {
      const own = files.filter((file) => file.name === name);
      if (own.length === 0) continue;
      given[name] = itemOf(kind) === null ? own[0] : own;
    }
    return readInputs(this.plan, given, readImage);
  }

  /** Runs it once. `isCached` is false where no other run will be of the same images. */
  run(
    inputs: ReadonlyMap<string, KeyedValue>,
    { state, now, signal, isCached }: RunOptions,
  ): Promise<WorkflowRun> {
    const { models, workspace } = this.#request;
    return executePlan({
      plan: this.plan,
      inputs,
      runs: new Map([...PURE_RUNS, ...nodeRuns({ ...this.#services, models })]),
      state,
      now,
      signal,
      limits: RUN_LIMITS,
      modelKeys: new Map(Object.entries(models).map(([name, model]) => [name, modelKey(model)])),
      ...(isCached && { cache: results, cachePrefix: workspace }),
      clock: () => performance.now(),
    });
  }
}

/** All of a model by which it answers, or is told: only the address of its weights is of no run. */
function modelKey({ source: { weights, ...source }, ...model }: ResolvedModel): string {
  const parts = { ...model, ...source, weights: weights.key };
  return contentKey(Object.entries(parts).sort(([one], [other]) => (one < other ? -1 : 1)));
}

interface RunOptions {
  state: Readonly<Record<string, unknown>>;
  now: number;
  signal: AbortSignal;
  isCached: boolean;
}

async function readImage(wire: unknown): Promise<KeyedValue> {
  if (wire instanceof GivenFrame) return wire.image;
  const given = wire instanceof GivenFile ? wire : await fileOf(wire);
  const pixels = await readStill(given.file);
  if (pixels.width * pixels.height > PIXELS_MAX) {
    throw new BlockFailure(
      `${given.name}: ${pixels.width} × ${pixels.height} is over ${PIXELS_MAX / 1e6} million pixels`,
    );
  }
  return { value: rootImage(pixels), key: given.key };
}

const DATA_ADDRESS = /^data:image\/[a-z0-9.+-]{1,40};base64,/;

/** The file of a data address. */
async function fileOf(wire: unknown): Promise<GivenFile> {
  const head = typeof wire === "string" ? DATA_ADDRESS.exec(wire)?.[0] : undefined;
  if (typeof wire !== "string" || head === undefined) {
    throw new BlockFailure("an image must be a file, or a data address of one in base64");
  }
  const bytes = Buffer.from(wire.slice(head.length), "base64");
  return new GivenFile("image", bytes, await keyOf(bytes));
}

/** What tells the bytes of a file from all others. */
export async function keyOf(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return Buffer.from(await crypto.subtle.digest("SHA-256", bytes)).toString("hex");
}

/** The bytes of images that may still be written. */
export class ImageAllowance {
  #left: number;

  constructor(bytes: number) {
    this.#left = bytes;
  }

  /** An image as JPEG in base64; null where it is one too many. */
  async write(image: unknown): Promise<string | null> {
    if (!(image instanceof NodeImage)) return null;
    const text = (await toJpeg(image.pixels)).toString("base64");
    if (text.length > this.#left) return null;
    this.#left -= text.length;
    return text;
  }
}

const tooLarge = () =>
  new WorkflowFailure(
    "limit",
    `the images of the outputs are over ${ANSWER_IMAGE_BYTES_MAX / 1024 ** 2} MiB: ` +
      "put resize@1 before them, or leave some out",
  );

/** Fails with `limit`, at the sink that asks for one too many, where the answer cannot hold all. */
function checkEffects(effects: readonly StepEffect[]): void {
  const over = effects[EFFECTS_MAX];
  if (!over) return;
  const detail = `the sinks of the run ask for more than ${EFFECTS_MAX} effects`;
  throw new WorkflowFailure("limit", detail, { step: over.step });
}

/** Runs a workflow once, and says what it came to or why not. Fails where another node may not. */
export async function answerRun(
  request: SessionRequest & Pick<WorkflowAsk, "state" | "now">,
  files: readonly GivenFile[],
  services: SessionServices,
  signal: AbortSignal,
): Promise<WorkflowAnswer> {
  const started = performance.now();
  const session = new Session(request, services);
  try {
    const inputs = await session.readValues(files);
    const { state, now } = request;
    const run = await session.run(inputs, { state, now, signal, isCached: true });
    checkEffects(run.effects);
    const allowance = new ImageAllowance(ANSWER_IMAGE_BYTES_MAX);
    const answer = {
      failure: null,
      outputs: (await writeOutputs(run.outputs, async (image) => {
        const written = await allowance.write(image);
        if (written === null) throw tooLarge();
        return `data:image/jpeg;base64,${written}`;
      })) as Json,
      steps: run.steps.map(stepReport),
      effects: await effectReports(run.effects, allowance),
      state: run.state as Json,
      seconds: (performance.now() - started) / 1_000,
    };
    if (Buffer.byteLength(JSON.stringify(answer)) > ANSWER_BYTES_MAX - ANSWER_ROOM) {
      throw new WorkflowFailure("limit", "the outputs are too large: leave some of them out");
    }
    return answer;
  } catch (thrown) {
    if (signal.aborted) throw thrown;
    return { failure: failureReport(thrown, services) };
  }
}

/** What writing made JSON of: the wire's schema checks it where it is read. */
type Json = Extract<WorkflowAnswer, { failure: null }>["outputs"];

/** A step's report, its warnings within what the wire takes. */
export const stepReport = (report: StepReport): WorkflowStepReport => ({
  ...report,
  warnings: report.warnings
    .slice(0, WARNINGS_MAX)
    .map((warning) => warning.slice(0, WARNING_LETTERS_MAX)),
});

/** An effect as the wire tells it, its image in base64. */
export const effectReport = (
  { step, element, kind, request }: StepEffect,
  image: string | null,
): WorkflowEffect => ({
  step,
  element,
  kind,
  // Blocks describe effects in JSON; the wire's schema checks it where it is read.
  request: request as WorkflowEffect["request"],
  image,
});

/** Effects as the wire tells them, one after another: the first image too many is the last one. */
export async function effectReports(
  effects: readonly StepEffect[],
  allowance: ImageAllowance,
): Promise<WorkflowEffect[]> {
  const reports: WorkflowEffect[] = [];
  for (const effect of effects) {
    const { image } = effect;
    const written = image === undefined ? null : await allowance.write(image);
    if (isImage(image) && written === null) throw tooLarge();
    reports.push(effectReport(effect, written));
  }
  return reports;
}

/**
 * Why a run ended, for whoever asked. Throws on what is none of their workflow's: another node, or
 * another attempt, may do it.
 */
export function failureReport(
  thrown: unknown,
  { log }: Pick<SessionServices, "log">,
): WorkflowFailureReport {
  if (thrown instanceof InputFailure || thrown instanceof BlockFailure) return badInput(thrown);
  if (thrown instanceof BrokenMedia) return badInput(thrown);
  if (!(thrown instanceof WorkflowFailure)) throw thrown;
  const { code, step, element, cause } = thrown;
  if (cause instanceof BundleMissing) throw cause;
  if (cause instanceof TaskFailure && cause.retryable) {
    throw new TaskFailure(cause.code, `${step}: ${cause.message}`, { retryable: true, cause });
  }
  const isTold = cause instanceof TaskFailure || cause instanceof BrokenMedia;
  if (cause !== undefined && !isTold && !(cause instanceof BlockFailure)) {
    log.error("workflow_step_failed", { step, error: cause });
  }
  const detail = isTold ? cause.message : thrown.message;
  return { code, step, element: element && [...element], detail };
}

const badInput = ({ message }: Error): WorkflowFailureReport => ({
  code: "bad_input",
  step: null,
  element: null,
  detail: message,
});
