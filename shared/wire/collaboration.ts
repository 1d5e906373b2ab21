// Wire shapes of people who label together: comments on annotations.

import { z } from "zod";

const instant = () => z.iso.datetime();

export const COMMENT_CHARACTERS_MAX = 2_000;

export const AnnotationComment = z
  .object({
    comment_id: z.uuid(),
    job_id: z.uuid(),
    annotation_id: z.uuid().meta({ description: "the annotation, which may be deleted by now" }),
    frame_id: z.string(),
    text: z.string(),
    author_id: z.uuid(),
    created_at: instant(),
    updated_at: instant().meta({ description: "when its text was last changed" }),
    resolved_at: instant().nullable().meta({ description: "null while it is open" }),
    resolved_by: z.uuid().nullable(),
  })
  .meta({ id: "AnnotationComment" });
export type AnnotationComment = z.infer<typeof AnnotationComment>;

export const AnnotationCommentPage = z
  .object({
    items: z.array(AnnotationComment),
    total: z.number().int(),
    offset: z.number().int(),
    limit: z.number().int(),
  })
  .meta({ id: "AnnotationCommentPage" });
