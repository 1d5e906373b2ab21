// A prediction on a clip, whoever looks at it: its task, and the wait that its sender grants.

import type { Context } from "hono";
import { isSilent } from "../../../http/database.ts";
import { API } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import type { NewTask } from "../../tasks/queue/queue.ts";
import { answerOf, resultOf, submit, waitFor } from "../../tasks/queue/wait.ts";
import { asRefusal, type StoredFile } from "./predictions.ts";

/** Enqueues the task of a stored clip; returns its id. A clip without a task is deleted. */
export async function enqueueClip(
  parts: Parts,
  { key }: StoredFile,
  taskOf: () => Promise<NewTask> | NewTask,
): Promise<string> {
  try {
    const [enqueued] = await submit(parts, [await taskOf()]);
    return enqueued?.taskId as string;
  } catch (thrown) {
    // A task that may have been enqueued keeps its clip; what nobody asks for goes with it.
    if (!isSilent(thrown)) await parts.bucket.delete(key);
    throw thrown;
  }
}

/** A clip that somebody waits for. */
interface AwaitedClip<Found> {
  predictionId: string;
  waitSeconds: number;
  /** Reads the prediction's record. */
  find(): Promise<Found>;
  /** Whether what follows from the end of its task was done, too; omitted where nothing does. */
  isOver?: () => Promise<boolean>;
  /** What a failed task becomes; default as predictions refuse. */
  refusal?: (thrown: unknown) => unknown;
}

/**
 * Answers with the record of a prediction: 200 once it ended, or as it stands when the wait is
 * over, 202 with its address under `route`. Fails in the node's words where it failed within the
 * wait.
 */
export async function answerClip<Found extends { status: string }>(
  context: Context,
  route: string,
  { predictionId, waitSeconds, find, isOver, refusal = asRefusal }: AwaitedClip<Found>,
) {
  const parts = context.get("service") as Parts;
  const until = parts.clock() + waitSeconds * 1_000;
  const ended = await waitFor(parts, predictionId, until);
  if (ended && ended.state !== "finished") {
    try {
      resultOf(ended);
    } catch (thrown) {
      throw refusal(thrown);
    }
  }
  if (ended && isOver) {
    await answerOf(async () => (await isOver()) || null, { clock: parts.clock, until });
  }
  const found = await find();
  if (found.status !== "queued" && found.status !== "running") return context.json(found, 200);
  context.header("Location", `${API}${route}/${predictionId}`);
  return context.json(found, 202);
}
