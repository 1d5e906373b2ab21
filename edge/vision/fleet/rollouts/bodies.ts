// What may be asked of a rollout, with its defaults.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { DEVICE_TAGS_MAX } from "../../../../shared/wire/fleet.ts";
import {
  AGENT_VERSION,
  Confirmation,
  GATES_DEFAULT,
  GivenGates,
  type RolloutGates,
  STAGES_DEFAULT,
  STAGES_MAX,
} from "../../../../shared/wire/rollouts.ts";
import { Group, Tag } from "../devices/bodies.ts";

/** The first release of the agent that knows manifests. */
const AGENT_MIN_DEFAULT = "0.1.0";
const CONFIDENCE_DEFAULT = 0.25;

/** A new rollout. */
export const RolloutBody = z.strictObject({
  export_id: z.uuid().meta({
    description: "a completed export: onnx, end_to_end, one image at a time or any number",
  }),
  group: Group.nullable().default(null).meta({ description: "whose devices get it" }),
  tags: z
    .array(Tag)
    .max(DEVICE_TAGS_MAX)
    .default([])
    .meta({ description: "or the devices that have all of these tags" }),
  stages: z
    .array(z.number().min(0.01).max(100))
    .min(1)
    .max(STAGES_MAX)
    .default(STAGES_DEFAULT)
    .meta({ description: "shares of the devices in percent, rising, the last one 100" }),
  gates: GivenGates.default({}).meta({ description: "what each stage has to come to" }),
  confirm: Confirmation.default(Confirmation.parse({})).meta({
    description: "what a device does before it calls the model its own",
  }),
  confidence: z.number().min(0).max(1).default(CONFIDENCE_DEFAULT).meta({
    description: "detections below it are not told",
  }),
  min_agent: z
    .string()
    .regex(AGENT_VERSION, "must be a release such as 1.2.3")
    .default(AGENT_MIN_DEFAULT)
    .meta({ description: "devices whose agent is older refuse it" }),
});

/** The stages of a body. Fails with `invalid_request` unless they rise to all devices. */
export function stagesOf({ stages }: z.output<typeof RolloutBody>): number[] {
  const isRising = stages.every((share, index) => index === 0 || share > (stages[index - 1] ?? 0));
  if (isRising && stages.at(-1) === 100) return stages;
  throw new Failure("invalid_request", "stages: must rise, and the last one must be 100");
}

/** Whose devices a body names. Fails with `invalid_request` unless it names a group or tags. */
export function selectorOf({ group, tags }: z.output<typeof RolloutBody>) {
  if ((group === null) !== (tags.length === 0)) return { group, tags: [...new Set(tags)].sort() };
  throw new Failure("invalid_request", "group: either a group or tags say which devices get it");
}

/** The gates of a body; those that it does not name are as by default. */
export const gatesOf = ({ gates }: z.output<typeof RolloutBody>): RolloutGates => ({
  confirmed_min: gates.confirmed_min ?? GATES_DEFAULT.confirmed_min,
  failed_max: gates.failed_max ?? GATES_DEFAULT.failed_max,
  crash_loops_max: gates.crash_loops_max ?? GATES_DEFAULT.crash_loops_max,
  inference_failures_max: gates.inference_failures_max ?? GATES_DEFAULT.inference_failures_max,
  latency_ratio_max:
    gates.latency_ratio_max === undefined
      ? GATES_DEFAULT.latency_ratio_max
      : gates.latency_ratio_max,
  score_shift_max:
    gates.score_shift_max === undefined ? GATES_DEFAULT.score_shift_max : gates.score_shift_max,
  stage_minutes: gates.stage_minutes ?? GATES_DEFAULT.stage_minutes,
});
