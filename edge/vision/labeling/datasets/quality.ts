// How good a dataset is to train on, by rules: figures, warnings, recommended settings. Pure. The
// counts cover all annotated frames; frames that the split of a run leaves out have a field of
// their own.

import { editDistance } from "../../../../shared/detector/vocabulary.ts";
import type { DatasetInclude, DatasetReport } from "../../../../shared/wire/dataset-report.ts";
import {
  BATCH_SMALL,
  EPOCH_STEPS_MIN,
  IMAGE_SIZE_DEFAULT,
  IMAGE_SIZE_SMALL_OBJECTS,
  VAL_SHARE_DEFAULT,
} from "../../../../shared/wire/training.ts";
import { counted } from "./labels.ts";

/** Frames with a class that let it be learned well. */
const FRAMES_ADVISED = 100;
const IMBALANCE_MAX = 10;
/** A box is small below this share of its frame; so many of them call for larger images. */
export const SMALL_AREA = 0.01;
const SMALL_SHARE = 0.25;
/** Instances that a class needs; below the second it is hardly learned at all. */
const INSTANCES_ADVISED = 20;
const INSTANCES_MIN = 10;

/**
 * By annotated frames, half-open: a tier holds from its own number to the next one's. `batch` is
 * the largest power of two of images whose training step at 640 px fits a GPU of 24 GB.
 */
const TIERS = [
  { from: 0, variant: "det26n", augmentation: "aggressive", epochs: 150, batch: 32 },
  { from: 50, variant: "det26n", augmentation: "standard", epochs: 100, batch: 32 },
  { from: 200, variant: "det26s", augmentation: "standard", epochs: 100, batch: 16 },
  { from: 1_000, variant: "det26m", augmentation: "standard", epochs: 100, batch: 8 },
] as const;

export interface ClassCount {
  class: string;
  count: number;
  /** Frames that it is on. */
  frames: number;
}

export interface DatasetCounts {
  annotatedFrames: number;
  /** With background frames. */
  totalFrames: number;
  /** Frames that the split of a run leaves out, and those of them with annotations. */
  leftOutFrames: number;
  leftOutAnnotatedFrames: number;
  /** Frames that are no part of the dataset, as an annotation on them is pending. */
  pendingFrames: number;
  /** Annotations smaller than `SMALL_AREA`. */
  small: number;
  /** Boxes at most a pixel wide or high. */
  tiny: number;
  /** Boxes, to the pixel, that two annotations of different classes have. */
  inTwoClasses: number;
  images: {
    /** Names of images that are the same, or nearly, by group. */
    alike: readonly (readonly string[])[];
    /** Images that look alike and that the split does not keep together: there are too many. */
    unsplit: number;
  };
  /** In index order. */
  classes: readonly ClassCount[];
}

type Warning = DatasetReport["warnings"][number];

/** The report of a job's dataset. */
export function qualityReport(
  { jobId, include }: { jobId: string; include: DatasetInclude },
  counts: DatasetCounts,
  notTrainable: string | null,
): DatasetReport {
  const total = counts.classes.reduce((sum, { count }) => sum + count, 0);
  // Equals keep the order of the classes.
  const balance = counts.classes.toSorted((one, other) => other.count - one.count);
  const present = balance.filter(({ count }) => count > 0);
  const [commonest, rarest] = [present[0], present.at(-1)];
  const smallShare = total === 0 ? 0 : counts.small / total;
  return {
    job_id: jobId,
    annotated_frames: counts.annotatedFrames,
    total_frames: counts.totalFrames,
    left_out_frames: counts.leftOutFrames,
    left_out_annotated_frames: counts.leftOutAnnotatedFrames,
    pending_frames: counts.pendingFrames,
    total_annotations: total,
    class_count: counts.classes.length,
    imbalance_ratio: commonest && rarest ? commonest.count / rarest.count : null,
    small_object_share: smallShare,
    class_balance: balance.map(({ class: className, count, frames }) => ({
      class: className,
      count,
      percentage: total === 0 ? 0 : (100 * count) / total,
      annotated_frames: frames,
    })),
    warnings: [
      ...(total === 0 ? [NO_ANNOTATIONS] : []),
      ...leftOutFrames(counts),
      ...pendingFrames(counts),
      ...fewFrames(counts.classes),
      ...imbalance(commonest, rarest),
      ...smallObjects(smallShare, counts.small),
      ...rareClass(rarest),
      ...emptyClasses(counts.classes, total),
      ...similarClasses(counts.classes),
      ...similarImages(counts.images),
      ...doubtfulBoxes(counts),
    ],
    recommended: { job_id: jobId, ...recommended(counts, smallShare), include },
    not_trainable: notTrainable,
  };
}

function recommended({ annotatedFrames, totalFrames }: DatasetCounts, smallShare: number) {
  const tier = TIERS.findLast(({ from }) => annotatedFrames >= from) ?? TIERS[0];
  const { variant, epochs, augmentation, batch } = tier;
  const image_size = smallShare >= SMALL_SHARE ? IMAGE_SIZE_SMALL_OBJECTS : IMAGE_SIZE_DEFAULT;
  // Memory of a step grows with the pixels of its images.
  const fitting = batch * (IMAGE_SIZE_DEFAULT / image_size) ** 2;
  const enough = Math.max(BATCH_SMALL, (totalFrames * (1 - VAL_SHARE_DEFAULT)) / EPOCH_STEPS_MIN);
  const batch_size = 2 ** Math.floor(Math.log2(Math.min(fitting, enough)));
  return { variant, epochs, batch_size, image_size, augmentation };
}

const quoted = (name: string) => JSON.stringify(name);
const rounded = (value: number) => Math.round(value * 10) / 10;

const NO_ANNOTATIONS: Warning = {
  code: "no_annotations",
  severity: "severe",
  message: "There is no annotation to learn from: label frames, or lower the job's threshold.",
  data: {},
};

/** The warning of frames that a run does not use, as they lie beside its validation frames. */
function leftOutFrames({ leftOutFrames: frames, ...counts }: DatasetCounts): Warning[] {
  if (frames === 0) return [];
  const annotated = counts.leftOutAnnotatedFrames;
  return [
    {
      code: "left_out_frames",
      severity: "advice",
      message:
        `Not trained on: ${counted(frames, "frame")}, ${annotated} of them annotated, within the ` +
        "gap between the two sides of the split of a single video.",
      data: { frames, annotated_frames: annotated },
    },
  ];
}

/** The warning of frames that a dataset of accepted annotations lacks. */
function pendingFrames({ pendingFrames: frames }: DatasetCounts): Warning[] {
  if (frames === 0) return [];
  return [
    {
      code: "pending_frames",
      severity: "advice",
      message:
        `Left out: ${counted(frames, "frame")} with a pending annotation. Accept or reject what ` +
        "is on them.",
      data: { frames },
    },
  ];
}

function fewFrames(classes: readonly ClassCount[]): Warning[] {
  const few = classes.filter(({ count, frames }) => count > 0 && frames < FRAMES_ADVISED);
  if (few.length === 0) return [];
  const named = few.map(({ class: className, frames }) => `${quoted(className)} ${frames}`);
  return [
    {
      code: "few_frames",
      severity: "advice",
      message:
        `Few annotated frames: ${named.join(", ")}. ` +
        `${FRAMES_ADVISED} or more per class are advised.`,
      data: {
        advised: FRAMES_ADVISED,
        classes: few.map(({ class: className, frames }) => ({ class: className, frames })),
      },
    },
  ];
}

function imbalance(commonest: ClassCount | undefined, rarest: ClassCount | undefined): Warning[] {
  if (!commonest || !rarest) return [];
  const ratio = commonest.count / rarest.count;
  if (ratio < IMBALANCE_MAX) return [];
  return [
    {
      code: "class_imbalance",
      severity: "warning",
      message:
        `${quoted(commonest.class)} is ${rounded(ratio)} times as frequent as ` +
        `${quoted(rarest.class)}: label more of the rare one.`,
      data: {
        ratio,
        most: { class: commonest.class, count: commonest.count },
        rarest: { class: rarest.class, count: rarest.count },
      },
    },
  ];
}

function smallObjects(share: number, count: number): Warning[] {
  if (share < SMALL_SHARE) return [];
  return [
    {
      code: "small_objects",
      severity: "warning",
      message:
        `${rounded(100 * share)} % of the objects are smaller than 1 % of the frame: ` +
        `train at ${IMAGE_SIZE_SMALL_OBJECTS} px.`,
      data: { share, count, image_size: IMAGE_SIZE_SMALL_OBJECTS },
    },
  ];
}

function rareClass(rarest: ClassCount | undefined): Warning[] {
  if (!rarest || rarest.count >= INSTANCES_ADVISED) return [];
  const { class: className, count } = rarest;
  return [
    {
      code: "rare_class",
      severity: count < INSTANCES_MIN ? "severe" : "warning",
      message:
        `${quoted(className)} has only ${count} ${count === 1 ? "instance" : "instances"}: ` +
        `about ${INSTANCES_MIN} to ${INSTANCES_ADVISED} per class are needed.`,
      data: { class: className, count, needed: INSTANCES_ADVISED },
    },
  ];
}

/** The warning of classes without annotations, with which the imbalance would be infinite. */
function emptyClasses(classes: readonly ClassCount[], total: number): Warning[] {
  const empty = classes.filter(({ count }) => count === 0).map((one) => one.class);
  if (empty.length === 0 || total === 0) return [];
  return [
    {
      code: "empty_class",
      severity: "warning",
      message: `Without any annotation, and so never found: ${empty.map(quoted).join(", ")}.`,
      data: { classes: empty },
    },
  ];
}

/** Pairs and groups that a warning names. */
const PAIRS_SHOWN = 10;
/** Classes whose names are compared, each with each. */
const COMPARED_MAX = 300;
/** Letters of a word that may differ from another's by a slip. */
const SLIP_LENGTH_MIN = 5;

/** The words of a name, whatever its case and whatever stands between them. */
const wordsOf = (name: string) =>
  name
    .normalize("NFC")
    .toLowerCase()
    .split(/[\s_]+|(?<=\p{L})-(?=\p{L})/u)
    .filter((word) => word !== "");

/** Whether one name may be the other mistyped: by case, spaces or plural, or by one letter. */
function isLike(one: readonly string[], other: readonly string[]): boolean {
  const [a, b] = [one.join(""), other.join("")];
  if (a === b) return a !== "";
  if (`${a}s` === b || `${b}s` === a) return a.length > 1 && b.length > 1;
  if (one.length !== other.length) return false;
  // Names that are numbered or lettered, such as lane 1 and lane 2, differ on purpose.
  const differing = one.flatMap((word, index) => (word === other[index] ? [] : [index]));
  const [index = -1, ...more] = differing;
  const [mine = "", theirs = ""] = [one[index], other[index]];
  const isWord = (word: string) => word.length >= SLIP_LENGTH_MIN && /^\p{L}+$/u.test(word);
  return more.length === 0 && isWord(mine) && isWord(theirs) && editDistance(mine, theirs, 1) === 1;
}

/** The warning of classes that may be one. */
function similarClasses(classes: readonly ClassCount[]): Warning[] {
  const compared = classes
    .slice(0, COMPARED_MAX)
    .map((one) => ({ ...one, words: wordsOf(one.class) }));
  const pairs = compared.flatMap((one, index) =>
    compared
      .slice(index + 1)
      .flatMap((other) => (isLike(one.words, other.words) ? [[one, other]] : [])),
  );
  if (pairs.length === 0) return [];
  const named = pairs
    .slice(0, PAIRS_SHOWN)
    .map((pair) => pair.map((one) => `${quoted(one.class)} (${one.count})`).join(" and "));
  return [
    {
      code: "similar_classes",
      severity: "warning",
      message: `May be one class, mistyped: ${named.join("; ")}.`,
      data: { pairs: pairs.slice(0, PAIRS_SHOWN).map((pair) => pair.map((one) => one.class)) },
    },
  ];
}

/** The warnings of images that are the same, or nearly. */
function similarImages({ alike, unsplit }: DatasetCounts["images"]): Warning[] {
  const images = alike.reduce((sum, names) => sum + names.length, 0);
  const shown = alike.slice(0, PAIRS_SHOWN).map((names) => names.slice(0, PAIRS_SHOWN));
  const [first = []] = shown;
  const warnings: Warning[] = [];
  if (images > 0) {
    warnings.push({
      code: "similar_images",
      severity: "advice",
      message:
        `${images} images are the same as others or look alike, such as ` +
        `${first.slice(0, 2).map(quoted).join(" and ")}. Each group is on one side of the split.`,
      data: { images, groups: shown },
    });
  }
  if (unsplit > 0) {
    warnings.push({
      code: "similar_images",
      severity: "warning",
      message:
        `${unsplit} images look alike, as those of a fixed camera: they are too many to be on one ` +
        "side of the split, so that the figures of a run may be too good. Measure on other scenes.",
      data: { images: unsplit, groups: [] },
    });
  }
  return warnings;
}

/** The warnings of boxes that are likely mistakes. */
function doubtfulBoxes({ tiny, inTwoClasses }: DatasetCounts): Warning[] {
  const warnings: Warning[] = [];
  if (inTwoClasses > 0) {
    warnings.push({
      code: "two_classes",
      severity: "warning",
      message: `${counted(inTwoClasses, "box")} of one object ${inTwoClasses === 1 ? "is" : "are"} there in two classes: reject one of each.`,
      data: { boxes: inTwoClasses },
    });
  }
  if (tiny > 0) {
    warnings.push({
      code: "tiny_boxes",
      severity: "warning",
      message: `${counted(tiny, "box")} ${tiny === 1 ? "is" : "are"} at most a pixel wide or high: a slip of the hand?`,
      data: { boxes: tiny },
    });
  }
  return warnings;
}
