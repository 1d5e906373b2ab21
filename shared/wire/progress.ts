// Live progress: the envelope of every message on a progress WebSocket.

import { z } from "zod";

export const EVENT_TYPES = [
  "snapshot",
  "state",
  "log",
  "batch",
  "epoch",
  "per_class",
  "checkpoint",
  "system",
  "eta",
  "error",
  "edit",
  "presence",
  "end",
] as const;

/** One event of a topic. `seq` has no gaps: whoever saw `seq` n asks for what came `after` n. */
export const ProgressEvent = z
  .object({
    v: z.literal(1),
    topic: z.string().meta({ example: "label:6f1c…" }),
    seq: z.number().int(),
    ts: z.iso.datetime(),
    type: z.enum(EVENT_TYPES).meta({
      description:
        "`snapshot` first, with the topic's whole state; `batch` may be left out for slow readers, " +
        "nothing else is; `presence` has no number of its own; `end` is the last",
    }),
    data: z.record(z.string(), z.unknown()),
  })
  .meta({ id: "ProgressEvent" });
export type ProgressEvent = z.infer<typeof ProgressEvent>;

export const Ticket = z
  .object({
    ticket: z.string(),
    url: z.string().meta({
      description:
        "path of the WebSocket with the ticket, on the host that was asked; add &after=<seq>",
    }),
    expires_at: z.iso.datetime(),
  })
  .meta({ id: "Ticket" });
export type Ticket = z.infer<typeof Ticket>;
