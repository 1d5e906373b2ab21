// Which executions are sent to the queues, beside those that a tick or an operator starts: held
// ones whose turn it is, and those whose process or message was lost.

import { MINUTE } from "../../../shared/time.ts";
import { releaseHeldExecutions, rescueExecutions } from "./ledger.ts";
import type { IngestParts } from "./parts.ts";

const RESEND_AFTER_MS = 15 * MINUTE;
/** A long backlog waits its turn; only so many of its messages are sent again each minute. */
const RESEND_MAX = 200;

/** Sends the backfills' executions whose turn it is. */
export async function sendReleased(parts: IngestParts): Promise<void> {
  await sendByJob(parts, await releaseHeldExecutions(parts.database, parts.clock()));
}

/** Frees executions whose process died, and sends them and those whose message seems lost again. */
export async function rescue(parts: IngestParts, now: number): Promise<void> {
  const limits = { resendAfterMs: RESEND_AFTER_MS, resendMax: RESEND_MAX };
  const { rescued, resend } = await rescueExecutions(parts.database, limits, now);
  if (rescued + resend.length === 0) return;
  parts.log.warning("runs_rescued", { leases_expired: rescued, sent_again: resend.length });
  await sendByJob(parts, resend);
}

async function sendByJob(
  { send }: IngestParts,
  executions: readonly { runId: string; job: string }[],
): Promise<void> {
  for (const [job, those] of Map.groupBy(executions, (execution) => execution.job)) {
    await send(
      job,
      those.map(({ runId }) => runId),
    );
  }
}
