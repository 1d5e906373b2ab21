// Wire shape of an administrator's intervention in a task of a job or of a training run.

import { z } from "zod";

/** An administrator revoked a task, or purged its queue. */
export const TaskIntervention = z
  .object({
    kind: z.enum(["revoked", "purged"]).meta({
      description: "`revoked`: one task was revoked; `purged`: its queue was purged",
    }),
    task_id: z.uuid().meta({ description: "the task, or one of those that were dropped together" }),
    actor_id: z.uuid().meta({ description: "account of the administrator" }),
    at: z.iso.datetime().meta({ description: "when the administrator asked for it" }),
  })
  .meta({ id: "TaskIntervention" });
export type TaskIntervention = z.infer<typeof TaskIntervention>;
