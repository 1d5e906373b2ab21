// One run of a comparison, from its request to the answer or to the end of the wait for it.

import { isSilent } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import { checkQuota } from "../../media/videos/videos.ts";
import { ATTEMPTS } from "../../serving/predict/image-requests.ts";
import { asRefusal } from "../../serving/predict/predictions.ts";
import { resultOf, waitFor } from "../../tasks/queue/wait.ts";
import { comparisonEnded } from "./ended.ts";
import { inputOf, type RunRequest } from "./inputs.ts";
import { startSession } from "./sessions.ts";

/** Claimed before what takes longer, and before all that nobody waits for. */
const PRIORITIES = { image: 100, video: 90, job: 80, export: 80 } as const;

/** Who runs it, and how long the answer is waited for. */
export interface RunWish {
  createdBy: string;
  waitSeconds: number;
}

/**
 * Begins a run and waits for its end, for as long as is wished; returns its session's id. Fails as
 * `resultOf` does where the task failed by then.
 */
export async function runComparison(
  parts: Parts,
  read: () => Promise<RunRequest>,
  { createdBy, waitSeconds }: RunWish,
): Promise<string> {
  const request = await read();
  const sessionId = crypto.randomUUID();
  const taskId = await begin(parts, request, { sessionId, createdBy });
  const ended = await waitFor(parts, taskId, parts.clock() + waitSeconds * 1_000);
  if (!ended) return sessionId;
  // Whoever took the node's report may not have handed it over yet.
  await comparisonEnded(parts, ended);
  try {
    resultOf<"comparison">(ended);
  } catch (thrown) {
    throw asRefusal(thrown);
  }
  return sessionId;
}

/** Begins a run; the file of one that cannot begin is deleted. */
async function begin(
  parts: Parts,
  request: RunRequest,
  { sessionId, createdBy }: { sessionId: string; createdBy: string },
): Promise<string> {
  const { configuration, body, file } = request;
  let isBegun = false;
  try {
    await checkQuota(parts, configuration.workspaceId, 1);
    const { input, footage } = await inputOf(parts, sessionId, request);
    const { overlays } = body;
    const session = { ...configuration, sessionId, input, footage, overlays, createdBy };
    isBegun = true;
    const priority = PRIORITIES[input.kind];
    return await startSession(parts, session, { priority, attemptsMax: ATTEMPTS });
  } catch (thrown) {
    // A task that may have been enqueued keeps its file.
    if (file && !(isBegun && isSilent(thrown))) await parts.bucket.delete(file.key);
    throw thrown;
  }
}
