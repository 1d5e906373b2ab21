// The meter of an endpoint that is nobody's, in workerd, and an isolate that reports to it.

import {
  endpointMeter,
  type MeterReport,
  type MeterRequest,
} from "../../edge/vision/serving/endpoints/meter.ts";
import type { World } from "./world.ts";

/** What a report tells that has nothing to tell. */
export const NOTHING_TOLD = { running: 0, ended: [], shadows: [], givenBack: [] };

/** A meter of its own; `report` counts the reports of one isolate. */
export function freshMeter(world: World) {
  const endpointId = crypto.randomUUID();
  const log = { info: () => {}, warning: () => {}, error: () => {} };
  const meter = endpointMeter({ meters: world.objects("METERS"), log }, endpointId);
  const isolate = crypto.randomUUID();
  let number = 0;
  const report = (more: Partial<MeterReport>) => {
    number += 1;
    return meter.report({ ...NOTHING_TOLD, isolate, number, ...more });
  };
  return {
    meter,
    report,
    record: (one: MeterRequest) => report({ ended: [one] }),
    evict: () => world.evict("EndpointMeter", `endpoint:${endpointId}`),
  };
}
