// Agreement of two people who labeled the same frames in two jobs: neither is the truth, so every
// figure is the same from both sides.

import type { FrameAgreement, JobAgreement } from "../../../../shared/wire/collaboration.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import type { Database } from "../../../http/database.ts";
import {
  annotationsOnBoth,
  type BothFrame,
  type BoxRow,
  tooMany,
} from "../datasets/frames-of-both.ts";
import type { JobRow } from "../jobs/jobs.ts";
import { type LabeledBox, matchBoxes } from "./box-matching.ts";

/** Pairs of a box of either side on one frame, of all frames. */
const PAIRS_MAX = 5_000_000;
/** The same of a single frame, whose overlapping pairs are in memory at once. */
const FRAME_PAIRS_MAX = 500_000;
/** Frames that are listed. */
const DIFFERING_MAX = 100;

/** What either side has of a class, or of all, and how much of it matches. */
interface Tally {
  own: number;
  others: number;
  matched: number;
  /** Sum over the matched pairs. */
  iou: number;
}

const emptyTally = (): Tally => ({ own: 0, others: 0, matched: 0, iou: 0 });

/** Dice's coefficient, which is the F1 score of either side by the other; null without a box. */
const agreementOf = ({ own, others, matched }: Tally): number | null =>
  own + others === 0 ? null : (2 * matched) / (own + others);

const figuresOf = (tally: Tally) => ({
  annotations: tally.own,
  other_annotations: tally.others,
  matched: tally.matched,
  agreement: agreementOf(tally),
  mean_iou: tally.matched === 0 ? null : tally.iou / tally.matched,
});

/**
 * The agreement of two jobs on the frames that both have labeled. Fails with `invalid_request`
 * where the jobs are of two projects, have no frame in common, or are too large to compare at once.
 */
export async function jobAgreement(
  database: Database,
  { job, other, iouMin }: { job: JobRow; other: JobRow; iouMin: number },
): Promise<JobAgreement> {
  const { frames, ...size } = await annotationsOnBoth(database, {
    job,
    other,
    thresholds: [job.threshold, other.threshold],
    parameter: "with_job_id",
  });
  const pairs = frames.map(({ own, others }) => own.length * others.length);
  if (pairs.some((count) => count > FRAME_PAIRS_MAX)) {
    throw tooMany(`${FRAME_PAIRS_MAX} pairs of boxes on one frame`);
  }
  if (pairs.reduce((sum, count) => sum + count, 0) > PAIRS_MAX) {
    throw tooMany(`${PAIRS_MAX} pairs of boxes on their frames`);
  }
  const { total, perClass, confusions, differing } = tallied(frames, iouMin);
  return {
    job_id: job.id,
    with_job_id: other.id,
    iou: iouMin,
    frames: size.both,
    frames_only_in_job: size.job - size.both,
    frames_only_in_other: size.other - size.both,
    overall: figuresOf(total),
    per_class: [...perClass]
      .sort(
        ([name, one], [next, two]) =>
          two.own + two.others - one.own - one.others || (name < next ? -1 : 1),
      )
      .map(([name, tally]) => ({ class: name, ...figuresOf(tally) })),
    confusions: confusions.sort(
      (one, two) => two.count - one.count || (nameOf(one) < nameOf(two) ? -1 : 1),
    ),
    frames_agreeing: size.both - differing.length,
    frames_differing: differing.sort(byAgreement).slice(0, DIFFERING_MAX),
  };
}

const nameOf = (pair: JobAgreement["confusions"][number]) =>
  JSON.stringify([pair.class, pair.other_class]);

/** The least agreement first; of frames alike, those with more boxes. */
function byAgreement(one: FrameAgreement, two: FrameAgreement): number {
  const size = (frame: FrameAgreement) => frame.annotations + frame.other_annotations;
  return (
    one.agreement - two.agreement || size(two) - size(one) || (one.frame_id < two.frame_id ? -1 : 1)
  );
}

/** What the frames come to, by class, by pair of classes and by frame. */
function tallied(frames: readonly BothFrame[], iouMin: number) {
  const total = emptyTally();
  const perClass = new Map<string, Tally>();
  const confusions = new Map<string, JobAgreement["confusions"][number]>();
  const differing: FrameAgreement[] = [];
  for (const frame of frames) {
    const [own, others] = [frame.own.map(labeledBox), frame.others.map(labeledBox)];
    const { matched, confused } = matchBoxes(own, others, iouMin);
    const here = { ...emptyTally(), own: own.length, others: others.length };
    const classTally = (name: string) => {
      const tally = perClass.get(name) ?? emptyTally();
      perClass.set(name, tally);
      return tally;
    };
    for (const { class: name } of own) classTally(name).own += 1;
    for (const { class: name } of others) classTally(name).others += 1;
    for (const pair of matched) {
      for (const tally of [here, classTally(own[pair.own]?.class ?? "")]) {
        tally.matched += 1;
        tally.iou += pair.iou;
      }
    }
    for (const pair of confused) {
      const [name, otherName] = [own[pair.own]?.class ?? "", others[pair.other]?.class ?? ""];
      const confusion = { class: name, other_class: otherName, count: 0 };
      const known = confusions.get(nameOf(confusion)) ?? confusion;
      confusions.set(nameOf(known), { ...known, count: known.count + 1 });
    }
    total.own += here.own;
    total.others += here.others;
    total.matched += here.matched;
    total.iou += here.iou;
    const agreement = agreementOf(here) ?? 1;
    if (agreement === 1) continue;
    differing.push({
      frame_id: frameId(frame.videoId, frame.index),
      annotations: here.own,
      other_annotations: here.others,
      matched: here.matched,
      agreement,
    });
  }
  return { total, perClass, confusions: [...confusions.values()], differing };
}

const labeledBox = ([name, x1, y1, x2, y2]: BoxRow): LabeledBox => ({
  class: name,
  bbox: [x1, y1, x2, y2],
});
