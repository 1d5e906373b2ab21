// Wire shapes of batches of edits, and of what listeners of a job's edits are told.

import { z } from "zod";
import { Annotation } from "./labeling.ts";

const editId = z.uuid().meta({ description: "the edit's id, as its client gave it" });

/** What became of one edit of a batch. */
export const EditResult = z
  .discriminatedUnion("status", [
    z.object({
      edit_id: editId,
      status: z.literal("applied"),
      revision: z.number().int().meta({
        description: "of the annotation after the edit; of a deleted one, its last",
      }),
      change_id: z
        .uuid()
        .meta({ description: "the change that it is part of, which can be undone" }),
    }),
    z.object({ edit_id: editId, status: z.literal("conflict"), current: Annotation }),
    z.object({ edit_id: editId, status: z.literal("gone") }),
    z.object({
      edit_id: editId,
      status: z.literal("refused"),
      code: z.string(),
      detail: z.string(),
    }),
  ])
  .meta({
    id: "EditResult",
    description:
      "`applied`, now or by an earlier request; `conflict`: the annotation is at another revision, " +
      "or the id of a new one is taken in the job; `gone`: the job has no such annotation; " +
      "`refused`: the edit breaks a rule",
  });
export type EditResult = z.infer<typeof EditResult>;

export const EditsAnswer = z
  .object({
    after_seq: z.number().int().meta({
      description: "the job's `edits_seq` before the batch: between both lie its edits alone",
    }),
    edits_seq: z.number().int().meta({ description: "the job's `edits_seq` after the batch" }),
    results: z.array(EditResult).meta({ description: "in the order of the request" }),
  })
  .meta({ id: "EditsAnswer" });
export type EditsAnswer = z.infer<typeof EditsAnswer>;

/** Data of the event `edit`. */
export const EditEvent = z.object({
  /** The job's `edits_seq` before the commit: whoever knows less has missed something. */
  after_seq: z.number().int(),
  edits_seq: z.number().int(),
  /** Null where a node reported. */
  actor_id: z.uuid().nullable(),
  /** What a batch of edits changed, where it is little; else listeners read the difference. */
  rows: z.array(Annotation).optional(),
  deleted: z.array(z.uuid()).optional(),
});
export type EditEvent = z.infer<typeof EditEvent>;

/** Data of the event `presence`: where somebody is who listens. */
export const PresenceEvent = z.object({
  /** The socket: a person may have several. */
  listener_id: z.string(),
  actor_id: z.uuid(),
  frame_id: z.string().nullable(),
  /** Whether the socket was closed. */
  left: z.boolean(),
});
export type PresenceEvent = z.infer<typeof PresenceEvent>;
