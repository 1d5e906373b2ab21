// What becomes of a comparison when its task ended. Nothing that a node says of its frames is
// believed: each line of its report is one, of classes that are compared, in order.

import { createHash } from "node:crypto";
import {
  type ClassMaps,
  COMPARED_OBJECTS_MAX,
  ComparedFrame,
  ComparisonOutcome,
  comparedName,
  REPORT_BLOCK_FRAMES,
} from "../../../../shared/tasks/comparison-task.ts";
import type { TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { discardObjects } from "../../base/discard.ts";
import type { Parts } from "../../base/parts.ts";
import { folderOf } from "../../serving/predict/task-files.ts";
import { boxProblem } from "../../tasks/nodes/detections.ts";
import { attemptKey } from "../../tasks/objects.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { endSession, keysOf } from "./sessions.ts";

type Payload = TaskPayload<"comparison">;

/** Bytes of a report: a frame and its objects take some hundred each. */
const REPORT_BYTES_MAX = 256 * 1024 * 1024;
/** Bytes of one line: a frame has at most some hundred objects of each model. */
const LINE_BYTES_MAX = 4 * 1024 * 1024;
const OVERLAY_BYTES_MAX = 16 * 1024 * 1024;

/** Checks what a node says that it compared; see `TaskHandlers.seal`. */
export async function sealComparison(
  parts: Parts,
  task: Task,
  { result }: { result: unknown },
): Promise<string | null> {
  const outcome = result as ComparisonOutcome;
  const payload = task.payload as Payload;
  if (outcome.frames_compared > payload.frames_max) {
    return `over ${payload.frames_max} frames were compared`;
  }
  const overlays = await overlayProblem(parts, task, outcome);
  return overlays ?? (await reportProblem(parts, task, outcome));
}

/** The overlays are there, one for each of the first frames. */
async function overlayProblem(
  { bucket }: Parts,
  task: Task,
  { overlays, frames_compared }: ComparisonOutcome,
): Promise<string | null> {
  const targets = (task.payload as Payload).overlays;
  if (overlays.length !== Math.min(targets.length, frames_compared)) {
    return `${overlays.length} overlays were drawn`;
  }
  const sizes = await Promise.all(
    targets
      .slice(0, overlays.length)
      .map(async ({ key }) => (await bucket.head(attemptKey(key, task)))?.size),
  );
  const rank = sizes.findIndex(
    (size, at) => size !== overlays[at] || (size ?? 0) > OVERLAY_BYTES_MAX,
  );
  return rank < 0 ? null : `overlay ${rank} is not in the store as it was announced`;
}

async function reportProblem(
  { bucket }: Parts,
  task: Task,
  { report, frames_compared }: ComparisonOutcome,
): Promise<string | null> {
  const object = await bucket.get(attemptKey((task.payload as Payload).report.key, task));
  if (!object || object.size !== report.bytes || object.size > REPORT_BYTES_MAX) {
    await object?.body.cancel();
    return `the frames of ${report.bytes} bytes are not in the store as they were announced`;
  }
  const hash = createHash("sha256");
  const checks = new FrameChecks(task.payload as Payload);
  // The platform's type of streams does not say that they are iterable.
  const chunks = object.body as unknown as AsyncIterable<Uint8Array>;
  for await (const { line, offset } of linesOf(chunks, hash)) {
    if (line === null) return "a frame takes too many bytes";
    if (checks.frames % REPORT_BLOCK_FRAMES === 0) {
      const block = report.blocks[checks.frames / REPORT_BLOCK_FRAMES];
      if (block !== offset) return "the offsets of the frames are not theirs";
    }
    const problem = checks.add(line);
    if (problem) return `frame ${checks.frames}: ${problem}`;
  }
  if (hash.digest("hex") !== report.sha256) {
    return "the frames in the store are not those of the SHA-256 that the node reported";
  }
  const blocks = Math.ceil(frames_compared / REPORT_BLOCK_FRAMES);
  const isWhole = checks.frames === frames_compared && report.blocks.length === blocks;
  return isWhole ? null : `${checks.frames} frames are told, of ${frames_compared}`;
}

/** Lines with the offset of their first byte; one that is too long is null. */
async function* linesOf(
  chunks: AsyncIterable<Uint8Array>,
  hash: { update(chunk: Uint8Array): unknown },
): AsyncGenerator<{ line: string | null; offset: number }> {
  const decoder = new TextDecoder();
  let rest: Uint8Array[] = [];
  let [offset, length] = [0, 0];
  for await (const chunk of chunks) {
    hash.update(chunk);
    for (let from = 0; from < chunk.length; ) {
      const end = chunk.indexOf(10, from);
      const part = chunk.subarray(from, end < 0 ? chunk.length : end);
      rest.push(part);
      length += part.length;
      if (length > LINE_BYTES_MAX) return yield { line: null, offset };
      if (end < 0) break;
      const text = rest.map((one) => decoder.decode(one, { stream: true })).join("");
      yield { line: text + decoder.decode(), offset };
      offset += length + 1;
      [rest, length] = [[], 0];
      from = end + 1;
    }
  }
  if (length > 0) yield { line: "", offset };
}

/** What frames of a report are held against, one after another. */
class FrameChecks {
  frames = 0;
  #objects = 0;
  #difference = Number.POSITIVE_INFINITY;
  readonly #classes: Record<"a" | "b", ReadonlySet<string>>;

  constructor({ models: [a, b], classes }: Payload) {
    this.#classes = {
      a: namesUnder(classes.a, a.model.classes),
      b: namesUnder(classes.b, b.model.classes),
    };
  }

  /** What is wrong with a line, in words for people, or null. */
  add(line: string): string | null {
    const frame = ComparedFrame.safeParse(parseJson(line)).data;
    if (!frame) return "is not readable";
    if (frame.difference > this.#difference) return "is not in its order";
    this.#difference = frame.difference;
    this.frames += 1;
    this.#objects += frame.objects.length;
    if (this.#objects > 2 * COMPARED_OBJECTS_MAX) return "has too many objects";
    for (const { a, b } of frame.objects) {
      for (const [side, found] of [["a", a] as const, ["b", b] as const]) {
        if (!found) continue;
        if (!this.#classes[side].has(found.class)) return "has a class that is not compared";
        const problem = boxProblem(found.bbox, frame);
        if (problem) return problem;
      }
      if (!a && !b) return "has an object that nobody found";
    }
    return null;
  }
}

/** The names under which classes are compared. */
const namesUnder = (map: ClassMaps["a"], classes: readonly string[]): ReadonlySet<string> =>
  new Set(classes.flatMap((name) => comparedName(map, name) ?? []));

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** A task that compares ended. May be called again for the same task. */
export async function comparisonEnded(parts: Parts, task: Task): Promise<void> {
  const { session_id: sessionId, video, report, overlays } = task.payload as Payload;
  // Never what is somebody's: only what a request brought.
  if (video?.key.startsWith(folderOf(task.workspaceId))) await parts.bucket.delete(video.key);
  const end = endOf(task, { report, overlays });
  const isThere = await endSession(parts.database, sessionId, end);
  if (!isThere) await discardObjects(parts, [keysOf(task.workspaceId, sessionId).folder]);
}

function endOf(task: Task, { report, overlays }: Pick<Payload, "report" | "overlays">) {
  if (task.state !== "finished") {
    return { failure: task.errors.at(-1)?.detail || `the comparison was ${task.state}` };
  }
  const outcome = ComparisonOutcome.parse(task.result);
  return {
    outcome,
    reportKey: attemptKey(report.key, task),
    overlayKeys: overlays.slice(0, outcome.overlays.length).map(({ key }) => attemptKey(key, task)),
  };
}
