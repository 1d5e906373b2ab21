// The one error table: code → status and meaning. It drives responses, OpenAPI, run states and
// README.

import { z } from "zod";

/** Every code with its HTTP status and, in a clause, what it means. */
export const ERRORS = {
  bad_datetime: { status: 400, meaning: "a datetime parameter cannot be parsed" },
  bad_body: { status: 400, meaning: "the request body is not valid JSON" },
  unauthorized: { status: 401, meaning: "a key or token is required and missing or invalid" },
  bad_credentials: { status: 401, meaning: "email and password, or a code, match no account" },
  forbidden: { status: 403, meaning: "your role in this workspace does not allow it" },
  not_invited: { status: 403, meaning: "accounts are made by invitation, and there is none" },
  form_refused: {
    status: 403,
    meaning: "a form, or a change by a cookie, came from another session or site",
  },
  not_found: { status: 404, meaning: "nothing by this id in your workspaces" },
  route_not_found: { status: 404, meaning: "no such path" },
  unknown_library: { status: 404, meaning: "the store holds no such library" },
  unknown_symbol: { status: 404, meaning: "the library holds no such symbol" },
  unknown_snapshot: { status: 404, meaning: "no snapshot has this name" },
  unknown_commodity: { status: 404, meaning: "no commodity, hub or zone has this name" },
  unknown_job: { status: 404, meaning: "no pipeline has this job name" },
  unknown_schedule: { status: 404, meaning: "no schedule has this name" },
  unknown_instrument: { status: 404, meaning: "no check knows this instrument" },
  unknown_run: { status: 404, meaning: "no such run" },
  unknown_refusal: { status: 404, meaning: "no such refused change" },
  unknown_backfill: { status: 404, meaning: "no such backfill" },
  method_not_allowed: { status: 405, meaning: "the path exists, but not for this method" },
  email_taken: { status: 409, meaning: "an account with this email exists" },
  idempotency_conflict: { status: 409, meaning: "this Idempotency-Key came with another body" },
  state_conflict: { status: 409, meaning: "the state of the thing does not allow it" },
  revision_conflict: { status: 409, meaning: "somebody edited it since the revision you named" },
  class_exists: { status: 409, meaning: "the job has a class of this name" },
  lease_stale: {
    status: 409,
    meaning: "the task was claimed or revoked since: stop working on it",
  },
  snapshot_exists: { status: 409, meaning: "another snapshot has this name" },
  row_cap_exceeded: { status: 413, meaning: "an unbounded read holds more rows than the cap" },
  body_too_large: { status: 413, meaning: "the body is larger than this route takes" },
  file_too_large: { status: 413, meaning: "the file is larger than the limit" },
  too_many_frames: { status: 413, meaning: "the video has more frames than are looked at" },
  quota_exceeded: {
    status: 413,
    meaning: "the storage of a workspace or its maker, or another share, is used up",
  },
  unsupported_media: { status: 415, meaning: "the file is no video or image of a kind we take" },
  range_not_satisfiable: { status: 416, meaning: "the Range lies outside the answer" },
  prompt_unknown: { status: 422, meaning: "the segmenter has no word for a prompt" },
  storage_key_refused: { status: 422, meaning: "the key is not an object of your workspace" },
  invalid_request: { status: 422, meaning: "a parameter or body field is missing or malformed" },
  workflow_failed: { status: 422, meaning: "a step of the run could not do it; `step` says which" },
  invalid_workflow: { status: 422, meaning: "the workflow cannot be run; `problems` say why" },
  bad_partition: { status: 422, meaning: "a partition key is malformed or out of range" },
  too_many_attempts: { status: 429, meaning: "too many attempts; wait as Retry-After says" },
  rate_limited: { status: 429, meaning: "the key's limit is reached; come as Retry-After says" },
  overloaded: { status: 429, meaning: "GPU nodes are full; come again as Retry-After says" },
  internal: { status: 500, meaning: "a fault of ours; the log holds it under the request id" },
  bad_configuration: { status: 500, meaning: "the service is misconfigured; keys are named" },
  busy: { status: 503, meaning: "too many large reads at once; try again" },
  task_failed: { status: 502, meaning: "a GPU node could not do it; the detail says why" },
  target_failed: { status: 502, meaning: "the target did not answer, or not as it should" },
  no_node: { status: 503, meaning: "no GPU node that can do it is there" },
  store_unavailable: { status: 503, meaning: "the database or object store does not answer" },
  graph_unavailable: { status: 503, meaning: "the catalog graph is not running" },
  // Reasons a run failed. They reach HTTP only inside a run's `error_code`.
  credential_missing: { status: 502, meaning: "the provider's credential is not set" },
  upstream_unauthorized: { status: 502, meaning: "the provider refused the credential" },
  upstream_rejected: { status: 502, meaning: "the provider refused the request" },
  upstream_unavailable: { status: 502, meaning: "the provider failed, throttled or timed out" },
  upstream_truncated: { status: 502, meaning: "the provider sent fewer rows than it announced" },
  upstream_schema_drift: { status: 502, meaning: "the provider's format changed" },
  gate_rejected: { status: 502, meaning: "the quality gate refused the fetched rows" },
  sandbox_mixed: { status: 502, meaning: "sandbox and real data may not share a series" },
  commit_conflict: { status: 503, meaning: "other writers won every attempt to commit" },
  not_released: { status: 502, meaning: "the provider has not published the partition yet" },
  run_canceled: { status: 502, meaning: "an operator canceled it" },
  lease_lost: { status: 502, meaning: "the run's process stopped renewing its lease" },
} as const satisfies Record<string, { status: number; meaning: string }>;

/** A code of the table. */
export type ErrorCode = keyof typeof ERRORS;

/**
 * An expected failure: a code of the table, a sentence for the caller, named numbers for the body.
 */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly code: ErrorCode;
  readonly data: Readonly<Record<string, unknown>>;

  constructor(
    code: ErrorCode,
    detail: string,
    options: { cause?: unknown; data?: Record<string, unknown> } = {},
  ) {
    super(detail, { cause: options.cause });
    this.code = code;
    this.data = options.data ?? {};
  }

  get status(): number {
    return ERRORS[this.code].status;
  }
}

/** Every error answer of both services; some codes add named fields. */
export const ErrorBody = z
  .looseObject({
    code: z.string().meta({ description: "stable, for programs", example: "unknown_symbol" }),
    detail: z.string().meta({ description: "one sentence, for people" }),
    request_id: z.string().meta({ description: "also in the X-Request-Id header and the log" }),
  })
  .meta({ id: "Error" });

/**
 * Programmer error: `holds` must be true here. The log shows the message, the caller never does.
 */
export function assert(holds: unknown, mustHold: string): asserts holds {
  if (!holds) throw new Error(`assertion failed: ${mustHold}`);
}
