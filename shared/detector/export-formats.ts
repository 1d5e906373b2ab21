// The formats of models as files, with what each can be asked for, and how far a file's answers may
// lie from its model's. The first of each list is what is made where nothing is asked.

export const MODEL_EXPORT_FORMATS = ["onnx", "coreml", "tflite", "tensorrt", "roboflow"] as const;
export type ModelExportFormat = (typeof MODEL_EXPORT_FORMATS)[number];

export const MODEL_EXPORT_OUTPUTS = ["end_to_end", "raw", "joined"] as const;
export type ModelExportOutput = (typeof MODEL_EXPORT_OUTPUTS)[number];

/**
 * Precision of the weights; in int8, and in fp16 of ONNX and Core ML, of the maps, too, which
 * TFLite's fp16 leaves single. The last convolutions of the branches stay single in all of them.
 */
export const EXPORT_PRECISIONS = ["fp32", "fp16", "int8"] as const;
export type ExportPrecision = (typeof EXPORT_PRECISIONS)[number];

/** A file that a runtime opens, a zip around one, or what was built for one GPU. */
export const EXPORT_ARTIFACTS = ["file", "bundle", "engine"] as const;
export type ExportArtifact = (typeof EXPORT_ARTIFACTS)[number];

interface FormatEntry {
  precisions: readonly [ExportPrecision, ...ExportPrecision[]];
  outputs: readonly [ModelExportOutput, ...ModelExportOutput[]];
  artifacts: readonly [ExportArtifact, ...ExportArtifact[]];
  /** Whether more than one image a run can be asked for. */
  batches: boolean;
  /** End of the file's name. */
  extension: string;
}

export const EXPORT_FORMATS_TABLE: Readonly<Record<ModelExportFormat, FormatEntry>> = {
  onnx: {
    precisions: ["fp32", "fp16", "int8"],
    outputs: ["end_to_end", "raw"],
    artifacts: ["file"],
    batches: true,
    extension: "onnx",
  },
  coreml: {
    precisions: ["fp16"],
    outputs: ["raw"],
    artifacts: ["file"],
    batches: false,
    extension: "mlpackage.zip",
  },
  tflite: {
    precisions: ["fp32", "fp16", "int8"],
    outputs: ["joined", "raw"],
    artifacts: ["file"],
    batches: false,
    extension: "tflite",
  },
  tensorrt: {
    precisions: ["fp16", "fp32", "int8"],
    outputs: ["end_to_end", "raw"],
    artifacts: ["bundle", "engine"],
    batches: true,
    extension: "tensorrt.zip",
  },
  roboflow: {
    precisions: ["fp32"],
    outputs: ["end_to_end"],
    artifacts: ["bundle"],
    batches: false,
    extension: "roboflow.zip",
  },
};

/**
 * What Ultralytics makes of a file of raw heads, and what it reads instead, for people. Its reader
 * of Core ML wants outputs that no package made here has.
 */
export function ultralyticsNote(format: ModelExportFormat): string {
  const { outputs } = EXPORT_FORMATS_TABLE[format];
  const read = outputs.find((output) => output !== "raw");
  const instead = read ? `it reads files of the output ${read}` : "it reads no such file made here";
  return `Ultralytics takes raw heads for something else, without an error; ${instead}`;
}

/** What is allowed between a file and the model's predictor, both on a CPU. */
export interface ExportTolerance {
  /** Pixels of an input of up to 640 pixels a side. */
  box: number;
  /** The same of all objects but one in a hundred, or but one of fewer; null: as the worst. */
  boxP99: number | null;
  /** By how much a score may differ; 1 is any. */
  score: number;
  /** By which average precision may be lower, of many objects; null: it is not measured. */
  accuracyDrop: { map50: number; map50_95: number } | null;
  /** By which the mean score of objects may differ, as a share; null: it is not looked at. */
  confidenceShift: number | null;
  /** Bounds for a segmentation model's masks. */
  masks: MaskTolerance;
}

interface MaskTolerance {
  /** Root mean square of differences over that of the model's numbers. */
  prototypes: number;
  coefficients: number;
  /** The least mean overlap of the masks of objects that both find. */
  iouMin: number;
}

/**
 * Single precision: both sum the same products; processors whose kernels take a batch in another
 * order may round the sums otherwise (where this was written, batches of 1 and 4 and one or two
 * threads gave equal numbers). A thousandth of a pixel is 16 steps of such a number around 640; a
 * fault, such as another anchor, stride or class, is off by whole pixels. Half precision and int8:
 * figures of objects alone, on which people act; what integers lose shows in the average precision.
 * At an IoU of 0.5 a tenth of a pixel may decide on an object: half precision was seen to lose
 * 0.003 there, and nothing of the mean over all IoUs. Its boxes: of the 1,486 objects that a
 * detector of blood cells has on 87 images, 99 of 100 moved by at most 0.035 pixels and two unsure
 * ones by 0.13 and 0.15. So all but one in a hundred have the tenth of a pixel that is asked for,
 * and the worst has twice what was seen.
 *
 * Masks were measured on detectors of generated weights alone, since none is trained here: their
 * prototypes and weights were off by 7e-7 of their size in single precision, 4e-4 in half and 0.023
 * in int8, and the masks of int8 overlapped by 0.995. Bounds leave room for deeper, trained ones. A
 * fault, such as channels in another order, is off by 1 and more; of int8 the masks decide, where
 * a cell of four pixels is a fifth of a small object's.
 */
export const EXPORT_TOLERANCES: Readonly<Record<ExportPrecision, ExportTolerance>> = {
  fp32: {
    box: 1e-3,
    boxP99: null,
    score: 1e-5,
    accuracyDrop: null,
    confidenceShift: null,
    masks: { prototypes: 1e-4, coefficients: 1e-4, iouMin: 0.99 },
  },
  fp16: {
    box: 0.3,
    boxP99: 0.1,
    score: 1e-2,
    accuracyDrop: { map50: 0.01, map50_95: 0.001 },
    confidenceShift: 0.05,
    masks: { prototypes: 1e-2, coefficients: 1e-2, iouMin: 0.97 },
  },
  int8: {
    box: 3,
    boxP99: null,
    score: 1,
    accuracyDrop: { map50: 0.01, map50_95: 0.01 },
    confidenceShift: 0.05,
    masks: { prototypes: 0.5, coefficients: 0.5, iouMin: 0.8 },
  },
};

const BOX_SIDE = 640;

/**
 * Pixels by which a box may differ on an input of this size: steps of numbers grow with the
 * numbers, so that larger inputs are allowed in proportion.
 */
export const boxTolerance = (precision: ExportPrecision, size: readonly [number, number]): number =>
  EXPORT_TOLERANCES[precision].box * growth(size);

const growth = (size: readonly [number, number]) => Math.max(1, Math.max(...size) / BOX_SIDE);

/** What one object may cost of average precision, times the number of objects, and at most. */
const OBJECT_DROP = { share: 1.2, max: 0.1 } as const;

/**
 * By which a figure of average precision may be lower. Of few objects a drop by one of them is no
 * word on the file. COCO reads the precision at 101 recalls, so where a class of n objects loses
 * its last-ranked one, of C classes, the mean falls by ceil(100 / n) / (101 * C): by .0693 for 16
 * objects of one class and .0644 for 8 of each of two, where 1 / `truths` is .0625. A fifth more
 * covers these; just short of a hundred objects of a class the step may be twice 1 / `truths`, and
 * misses. Of very few objects one is all there is: more than a tenth is never allowed.
 */
export function accuracyDropMax(
  precision: ExportPrecision,
  figure: "map50" | "map50_95",
  truths: number,
): number {
  const ofOne = Math.min(OBJECT_DROP.max, OBJECT_DROP.share / truths);
  return Math.max(EXPORT_TOLERANCES[precision].accuracyDrop?.[figure] ?? 0, ofOne);
}

/** What is measured of a file beside its model. */
export interface ExportFigures {
  box_difference_max: number;
  /** Null where nobody looked. */
  box_difference_p99: number | null;
  score_difference_max: number;
  confidence_ratio: number | null;
  accuracy: {
    /** Objects that people labeled. */
    truths: number;
    map50: number;
    map50_95: number;
    model_map50: number;
    model_map50_95: number;
  } | null;
  /** Null of a model without masks, and where nobody looked. */
  masks: { prototype_error: number; coefficient_error: number; iou: number | null } | null;
}

/** What misses its tolerance, each with its figure, for people; none where all is within it. */
export function missesOf(
  figures: ExportFigures,
  { precision, size }: { precision: ExportPrecision; size: readonly [number, number] },
): string[] {
  const { score: scoreMax, boxP99, accuracyDrop, confidenceShift } = EXPORT_TOLERANCES[precision];
  const { box_difference_max: box, box_difference_p99: p99, accuracy } = figures;
  const { score_difference_max: score, masks } = figures;
  const { confidence_ratio: ratio } = figures;
  const boxMax = boxTolerance(precision, size);
  const misses: string[] = [];
  // Written so that what is no number misses, too.
  if (!(box <= boxMax))
    misses.push(`boxes by ${box.toPrecision(3)} pixels (${boxMax} are allowed)`);
  if (boxP99 !== null && p99 !== null && !(p99 <= boxP99 * growth(size))) {
    const allowed = boxP99 * growth(size);
    misses.push(`boxes of 1 in 100 by ${p99.toPrecision(3)} pixels (${allowed} are allowed)`);
  }
  if (!(score <= scoreMax)) {
    misses.push(`scores by ${score.toPrecision(3)} (${scoreMax} is allowed)`);
  }
  if (confidenceShift !== null && ratio !== null && !(Math.abs(ratio - 1) <= confidenceShift)) {
    misses.push(
      `scores on average by a factor of ${ratio.toPrecision(3)} (1 ± ${confidenceShift})`,
    );
  }
  if (masks) misses.push(...maskMisses(masks, EXPORT_TOLERANCES[precision].masks));
  if (accuracyDrop === null || !accuracy) return misses;
  for (const name of ["map50", "map50_95"] as const) {
    const drop = accuracy[`model_${name}`] - accuracy[name];
    const dropMax = accuracyDropMax(precision, name, accuracy.truths);
    if (drop <= dropMax) continue;
    misses.push(`${name} by ${drop.toPrecision(3)} (${Number(dropMax.toPrecision(3))} is allowed)`);
  }
  return misses;
}

function maskMisses(
  { prototype_error, coefficient_error, iou }: NonNullable<ExportFigures["masks"]>,
  { prototypes, coefficients, iouMin }: MaskTolerance,
): string[] {
  const misses: string[] = [];
  const shares = [
    ["prototypes of masks", prototype_error, prototypes],
    ["weights of prototypes", coefficient_error, coefficients],
  ] as const;
  for (const [what, error, max] of shares) {
    // What is no number misses, too.
    if (error <= max) continue;
    misses.push(`${what} by ${error.toPrecision(3)} of their size (${max} is allowed)`);
  }
  if (iou !== null && !(iou >= iouMin)) {
    misses.push(`masks overlap by ${iou.toPrecision(3)} on average (${iouMin} is needed)`);
  }
  return misses;
}
