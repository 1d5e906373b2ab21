// Why a task failed, as its outcome says it.

/** An expected failure of a task: a code, a sentence for its owner, and whether to try again. */
export class TaskFailure extends Error {
  override readonly name = "TaskFailure";
  readonly code: string;
  readonly retryable: boolean;

  constructor(
    code: string,
    detail: string,
    options: { retryable?: boolean; cause?: unknown } = {},
  ) {
    super(detail, { cause: options.cause });
    this.code = code;
    this.retryable = options.retryable ?? false;
  }
}

export const DISK_FULL = "the node's disk is full";

/** Whether something could not be written for want of room. */
export const isDiskFull = (thrown: unknown): boolean =>
  ["ENOSPC", "EDQUOT"].includes(String((thrown as { code?: unknown } | null)?.code));

/** A file that is no video or image of a kind we take; the message is for its owner. */
export class BrokenMedia extends Error {
  override readonly name = "BrokenMedia";
}
