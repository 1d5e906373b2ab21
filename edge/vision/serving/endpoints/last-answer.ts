// When a model last answered, whatever endpoint it did so by.

import { DAY } from "../../../../shared/time.ts";
import type { Parts } from "../../base/parts.ts";
import type { ModelRow } from "../../models/registry.ts";
import { endpointIdsSince } from "./endpoints.ts";
import { defaultMeter, endpointMeter } from "./meter.ts";

/** What is told of a model's last answer goes back so far. */
const LAST_ANSWER_MS = DAY;

/** When a model last answered in its workspace, other than by the queue; null: not within a day. */
export async function lastAnswer(
  parts: Parts,
  { workspaceId, modelId }: Pick<ModelRow, "workspaceId" | "modelId">,
): Promise<number | null> {
  const since = parts.clock() - LAST_ANSWER_MS;
  // Whatever they serve by now: it may be another model.
  const endpointIds = await endpointIdsSince(parts.database, workspaceId, since);
  const meters = [
    defaultMeter(parts, workspaceId),
    ...endpointIds.map((endpointId) => endpointMeter(parts, endpointId)),
  ];
  const told = meters.map((meter) =>
    meter.lastAnswer(modelId).catch((error: unknown) => {
      parts.log.warning("meter", { error });
      return null;
    }),
  );
  const last = Math.max(...(await Promise.all(told)).map((at) => at ?? 0));
  return last >= since ? last : null;
}
