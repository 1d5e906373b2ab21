// A job compared with another whose annotations are taken as the truth, over the frames that both
// have looked at.

import { type ClassImage, classFigures } from "../../../../shared/detector/average-precision.ts";
import { figuresOf, overallFigures } from "../../../../shared/detector/detection-figures.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import type { JobComparison } from "../../../../shared/wire/labeling.ts";
import type { Database } from "../../../http/database.ts";
import type { JobRow } from "../jobs/jobs.ts";
import { annotationsOnBoth, type BothFrame, tooMany } from "./frames-of-both.ts";

/** Pairs of a box and a truth of its class on one frame, each of which is looked at ten times. */
const PAIRS_MAX = 5_000_000;

/**
 * The figures of a job by the annotations of another. Fails with `invalid_request` where the jobs
 * are of two projects, have no frame in common, or are too large to compare at once.
 */
export async function compareJobs(
  database: Database,
  job: JobRow,
  truth: JobRow,
): Promise<JobComparison> {
  const { frames, ...size } = await annotationsOnBoth(database, {
    job,
    other: truth,
    thresholds: [0, truth.threshold],
    parameter: "truth_job_id",
  });
  const images = imagesOf(frames);
  const pairs = [...images.values()]
    .flat()
    .reduce((sum, { truths, detections }) => sum + truths.length * detections.length, 0);
  if (pairs > PAIRS_MAX) throw tooMany(`${PAIRS_MAX} pairs of a box and a truth on one frame`);
  const perClass = [...images]
    .map(([name, own]) => ({ name, ...classFigures(own, job.threshold) }))
    .sort((one, other) => other.truths - one.truths || (one.name < other.name ? -1 : 1));
  return {
    job_id: job.id,
    truth_job_id: truth.id,
    threshold: job.threshold,
    frames: size.both,
    frames_only_in_job: size.job - size.both,
    frames_only_in_truth: size.other - size.both,
    overall: overallFigures(perClass),
    per_class: perClass.map((one) => ({ class: one.name, ...figuresOf(one) })),
  };
}

/** What the frames hold, by class. */
function imagesOf(frames: readonly BothFrame[]): Map<string, ClassImage[]> {
  const images = new Map<string, ClassImage[]>();
  for (const frame of frames) {
    const own = new Map<
      string,
      { truths: Bbox[]; detections: ClassImage["detections"][number][] }
    >();
    const of = (name: string) => {
      const known = own.get(name) ?? { truths: [], detections: [] };
      own.set(name, known);
      return known;
    };
    for (const [name, x1, y1, x2, y2] of frame.others) of(name).truths.push([x1, y1, x2, y2]);
    for (const [name, x1, y1, x2, y2, confidence] of frame.own) {
      of(name).detections.push({ bbox: [x1, y1, x2, y2], confidence });
    }
    for (const [name, image] of own) {
      const all = images.get(name);
      if (all) all.push(image);
      else images.set(name, [image]);
    }
  }
  return images;
}
