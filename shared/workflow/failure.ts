// Why the run of a workflow ended without outputs.

/** Why a run ended without outputs; its message is for the user who asked. */
export class WorkflowFailure extends Error {
  override readonly name = "WorkflowFailure";
  readonly code: "step_failed" | "limit" | "canceled" | "bad_input";
  readonly step: string | null;
  readonly element: readonly number[] | null;

  constructor(
    code: WorkflowFailure["code"],
    message: string,
    about: { step?: string; element?: readonly number[]; cause?: unknown } = {},
  ) {
    super(message, { cause: about.cause });
    this.code = code;
    this.step = about.step ?? null;
    this.element = about.element ?? null;
  }
}
