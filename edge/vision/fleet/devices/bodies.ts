// Bodies and parameters of requests about devices.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { INSTANT_FORM, parseInstant } from "../../../../shared/time.ts";
import {
  DEVICE_TAGS_MAX,
  INTERVAL_SECONDS,
  INTERVAL_SECONDS_MAX,
  INTERVAL_SECONDS_MIN,
} from "../../../../shared/wire/fleet.ts";
import { title } from "../../../http/texts.ts";

const WORD_FORM = "^[A-Za-z0-9][\\w.:-]{0,62}$";

/** A group or tag: one word, so that it fits into addresses and rules. */
const word = () =>
  z
    .string()
    .regex(
      new RegExp(WORD_FORM),
      "must be a word of 1 to 63 letters, digits, dots, colons, hyphens and underscores",
    );

export const Group = word().meta({ description: "the group's name" });
export const Tag = word().meta({ description: "a tag" });

const tags = () =>
  z
    .array(Tag)
    .max(DEVICE_TAGS_MAX)
    .transform((given) => [...new Set(given)])
    .meta({ description: "words to find it by" });
const group = () =>
  Group.nullable().meta({ description: "rollouts go to groups; null is no group" });
const project = () =>
  z
    .uuid()
    .nullable()
    .meta({ description: "where images that it sends along land; null takes none" });
const interval = () =>
  z
    .int()
    .min(INTERVAL_SECONDS_MIN)
    .max(INTERVAL_SECONDS_MAX)
    .meta({ description: "seconds between its heartbeats" });

/** A new device. */
export const DeviceBody = z.strictObject({
  name: title(),
  workspace_id: z.uuid().optional().meta({
    description: "whose; required where you are an engineer of several workspaces",
  }),
  group: group().default(null),
  tags: tags().default([]),
  project_id: project().default(null),
  interval_s: interval().default(INTERVAL_SECONDS),
});

/** What is to change of a device. */
export const DevicePatch = z.strictObject({
  name: title().optional(),
  group: group().optional(),
  tags: tags().optional(),
  project_id: project().optional(),
  interval_s: interval().optional(),
});

export const deviceParam = z.object({
  device_id: z.uuid().meta({ description: "the device's id" }),
});

/** An instant in a query; a date alone is its start in UTC. */
const instant = () =>
  z
    .string()
    .regex(new RegExp(`^${INSTANT_FORM}$`), "must be a date or datetime: 2026-01-31T05:20:00Z");

export const rangeQuery = {
  from: instant().optional().meta({ description: "only from this instant on" }),
  to: instant().optional().meta({ description: "only before this instant" }),
};

/** The range of a query in epoch milliseconds; fails with `invalid_request` for one without end. */
export function rangeOf({ from, to }: { from?: string | undefined; to?: string | undefined }): {
  from: number | undefined;
  to: number | undefined;
} {
  const bound = (given: string | undefined) =>
    given === undefined ? undefined : (parseInstant(given, "up") ?? undefined);
  const range = { from: bound(from), to: bound(to) };
  if (range.from !== undefined && range.to !== undefined && range.from >= range.to) {
    throw new Failure("invalid_request", "from: must be before to");
  }
  return range;
}
