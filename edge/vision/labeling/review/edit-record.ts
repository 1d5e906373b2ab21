// What an edit answers, for the routes that make one.

import { z } from "@hono/zod-openapi";
import type { EditCount } from "./changes.ts";

export const EditRecord = z.object({
  change_id: z.uuid().nullable().meta({ description: "null when nothing was to change" }),
  changed: z.number().int(),
});

/** What came of an edit, as the wire shows it. */
export const editRecord = ({ changeId, changed }: EditCount): z.infer<typeof EditRecord> => ({
  change_id: changeId,
  changed,
});
