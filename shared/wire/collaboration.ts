// Wire shapes of people who label together: comments on annotations, and how far
// two of them agree.

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

const share = () => z.number().min(0).max(1);

const AgreementFigures = z.object({
  annotations: z.number().int().meta({ description: "boxes of the job" }),
  other_annotations: z.number().int().meta({ description: "boxes of the other job" }),
  matched: z.number().int().meta({ description: "pairs of a box of either job" }),
  agreement: share()
    .nullable()
    .meta({
      description:
        "boxes that are matched, of all: 2 · `matched` / (`annotations` + `other_annotations`), the F1 " +
        "score of either job by the other; null without a box",
    }),
  mean_iou: share().nullable().meta({
    description: "mean overlap of the matched pairs; null without one",
  }),
});

export const FrameAgreement = AgreementFigures.pick({
  annotations: true,
  other_annotations: true,
  matched: true,
}).extend({
  frame_id: z.string(),
  agreement: share().meta({ description: "share of its boxes that are matched" }),
});
export type FrameAgreement = z.infer<typeof FrameAgreement>;

export const JobAgreement = z
  .object({
    job_id: z.uuid(),
    with_job_id: z.uuid().meta({ description: "the other job" }),
    iou: z.number().meta({ description: "overlap from which boxes were matched" }),
    frames: z.number().int().meta({ description: "labeled by both: those that are compared" }),
    frames_only_in_job: z.number().int().meta({ description: "left out: only the job has them" }),
    frames_only_in_other: z
      .number()
      .int()
      .meta({ description: "left out: only the other job has them" }),
    overall: AgreementFigures,
    per_class: z
      .array(AgreementFigures.extend({ class: z.string() }))
      .meta({ description: "classes with a box on either side, most boxes first" }),
    confusions: z
      .array(
        z.object({
          class: z.string().meta({ description: "class in the job" }),
          other_class: z.string().meta({ description: "class in the other job" }),
          count: z.number().int(),
        }),
      )
      .meta({
        description:
          "pairs of boxes of different classes that are the same object by their overlap, and have " +
          "no partner of their own class; the most frequent first",
      }),
    frames_agreeing: z.number().int().meta({
      description: "of `frames`, those with the same boxes, or without any, in both jobs",
    }),
    frames_differing: z.array(FrameAgreement).meta({
      description: "the other frames, the least agreement first; at most 100",
    }),
  })
  .meta({ id: "JobAgreement" });
export type JobAgreement = z.infer<typeof JobAgreement>;
