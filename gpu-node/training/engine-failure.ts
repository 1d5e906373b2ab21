// What the engine's failures mean for a task.

import { TaskFailure } from "../base/failure.ts";

/** By the code of the engine's error: whether to try again, and what the user can do. */
const MEANINGS: Record<string, { retryable: boolean; advice: string }> = {
  bad_argument: { retryable: false, advice: "" },
  bad_weights: { retryable: false, advice: "" },
  bad_dataset: { retryable: false, advice: "" },
  gpu_unavailable: { retryable: true, advice: "the node's GPU cannot be used" },
  gpu_out_of_memory: {
    retryable: false,
    advice: "choose a smaller batch, image size or variant, or leave the batch size blank",
  },
  out_of_memory: {
    retryable: true,
    advice: "choose a smaller batch, image size or variant, or leave the batch size blank",
  },
  not_finite: {
    retryable: false,
    advice: "choose a smaller learning rate (or leave it blank) and check the dataset's boxes",
  },
  io_failed: { retryable: true, advice: "" },
  peer_lost: { retryable: true, advice: "" },
  closed: { retryable: true, advice: "" },
  internal: { retryable: true, advice: "" },
};

/** The code of a failure of the engine's; null of any other. */
export const engineCode = (thrown: unknown): string | null => {
  const code = thrown instanceof Error && "code" in thrown ? String(thrown.code) : "";
  return Object.hasOwn(MEANINGS, code) ? code : null;
};

/** Whether the engine had no memory left for what it was asked to do. */
export const isOutOfMemory = (thrown: unknown): boolean =>
  /^(gpu_)?out_of_memory$/.test(engineCode(thrown) ?? "");

/** The engine's failure as a task's; what is none of its own stays as it is. */
export function asTrainFailure(thrown: unknown): unknown {
  const code = engineCode(thrown);
  if (code === null || thrown instanceof TaskFailure) return thrown;
  const { retryable, advice } = MEANINGS[code] as { retryable: boolean; advice: string };
  const said = (thrown as Error).message;
  return new TaskFailure(code, advice ? `${said}: ${advice}` : said, { retryable, cause: thrown });
}
