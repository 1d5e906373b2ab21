// COCO's instances as labels, with their masks: polygons, and run lengths as numbers or packed.

import { z } from "@hono/zod-openapi";
import {
  BrokenMask,
  boxAround,
  isRectangle,
  type MaskBudget,
  maskBudget,
  ringOfPolygons,
  ringOfRunLengths,
} from "../../../../shared/detector/rings.ts";
import { Failure } from "../../../../shared/errors.ts";
import { PIXELS_MAX, pixels } from "../../../../shared/shapes.ts";
import { ClassName } from "../classes.ts";
import {
  CLASSES_MAX,
  counted,
  distinct,
  IMPORT_FILES_MAX,
  IMPORT_LABELS_MAX,
  type Label,
  type Labels,
  stem,
  unitOf,
} from "./labels.ts";

const Pixels = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const Id = z.number().min(-Number.MAX_SAFE_INTEGER).max(Number.MAX_SAFE_INTEGER);
const side = () => z.number().positive().max(PIXELS_MAX).optional();
/** Numbers of one mask, and characters of a packed one: a budget bounds all of them together. */
const MASK_MAX = maskBudget().numbers;
const Segmentation = z.union([
  z
    .array(
      z
        .array(pixels())
        .max(MASK_MAX)
        .refine(({ length }) => length % 2 === 0, "must be x and y in turn"),
    )
    .max(MASK_MAX),
  z.object({
    size: z.tuple([Pixels, Pixels]),
    counts: z.union([z.string().max(MASK_MAX), z.array(Pixels).max(MASK_MAX)]),
  }),
]);
/** Characters of a file's name, with the folders it lies in. */
const FILE_NAME_MAX = 4_096;

/** The parts of a COCO document that say what lies where. */
export const Coco = z.object({
  images: z
    .array(
      z.object({
        id: Id,
        file_name: z.string().max(FILE_NAME_MAX),
        /** The size that boxes are given in; the frame's own when omitted. */
        width: side(),
        height: side(),
      }),
    )
    .max(IMPORT_FILES_MAX),
  categories: z.array(z.object({ id: Id, name: ClassName })).max(CLASSES_MAX),
  annotations: z
    .array(
      z.object({
        image_id: Id,
        category_id: Id,
        bbox: z
          .tuple([pixels(), pixels(), pixels(), pixels()])
          .optional()
          .meta({ description: "the box around the mask when omitted" }),
        segmentation: Segmentation.nullish().meta({
          description:
            "polygons, or run lengths as numbers or packed; kept as one ring, which visits several " +
            "pieces and holes over bridges of no width",
        }),
        iscrowd: z
          .union([z.literal(0), z.literal(1), z.boolean()])
          .optional()
          .meta({
            description:
              "a crowd is no object: it is left out, and counted. A mark to `ignore` is of no " +
              "account, as it is of none to pycocotools, which takes a crowd's in its place",
          }),
      }),
    )
    .max(IMPORT_LABELS_MAX),
});
type CocoAnnotation = z.output<typeof Coco>["annotations"][number];

/** Whoever compares with the job, as pycocotools would with the document, is to know. */
const NO_OBJECTS = "no single objects, so a comparison counts what is found there as wrong";

/** The labels of a document; `where` names it in failures. Fails with `invalid_request`. */
export function cocoLabels(
  coco: z.output<typeof Coco>,
  where = "coco",
  budget: MaskBudget = maskBudget(),
): Labels {
  const images = new Map(coco.images.map((image) => [image.id, image]));
  if (images.size < coco.images.length) {
    throw new Failure("invalid_request", `${where}.images: an id is there twice`);
  }
  const names = new Map(coco.categories.map(({ id, name }) => [id, name]));
  const labels = coco.annotations.flatMap((one, index): Label[] => {
    if (one.iscrowd) return [];
    const image = images.get(one.image_id);
    const className = names.get(one.category_id);
    if (image === undefined || className === undefined) {
      const what =
        image === undefined ? `image_id ${one.image_id}` : `category_id ${one.category_id}`;
      throw new Failure("invalid_request", `${where}.annotations: ${what} is not listed`);
    }
    const field = `${where}.annotations.${index}`;
    const { width, height } = image;
    const size = one.segmentation && "size" in one.segmentation ? one.segmentation.size : null;
    if (size && width && height && (size[0] !== height || size[1] !== width)) {
      throw new Failure("invalid_request", `${field}.segmentation: is of another size`);
    }
    const polygon = maskOf(one, field, budget);
    const box = boxOf(one, polygon);
    if (!box) throw new Failure("invalid_request", `${field}: has neither a bbox nor a mask`);
    return [
      {
        file: stem(image.file_name),
        class: className,
        box,
        // A rectangle around nothing but itself is how exports write a box where masks are wanted.
        polygon: polygon && isRectangle(polygon) ? null : polygon,
        unit: unitOf(width, height),
      },
    ];
  });
  const { files, notes } = distinct(coco.images.map(({ file_name }) => stem(file_name)));
  const crowds = coco.annotations.length - labels.length;
  return {
    files,
    labels,
    classes: [...new Set(coco.categories.map(({ name }) => name))],
    leftOut: crowds,
    notes: [
      ...notes,
      ...(crowds > 0 ? [`${counted(crowds, "crowd region")} left out: ${NO_OBJECTS}`] : []),
    ],
  };
}

function boxOf({ bbox }: CocoAnnotation, polygon: number[] | null): Label["box"] | null {
  if (!bbox) return polygon && boxAround(polygon);
  const [x, y, width, height] = bbox;
  return [x, y, x + width, y + height];
}

function maskOf({ segmentation }: CocoAnnotation, field: string, budget: MaskBudget) {
  if (!segmentation) return null;
  try {
    return Array.isArray(segmentation)
      ? ringOfPolygons(segmentation, budget)
      : ringOfRunLengths(segmentation, budget);
  } catch (thrown) {
    if (!(thrown instanceof BrokenMask)) throw thrown;
    throw new Failure("invalid_request", `${field}.segmentation: ${thrown.message}`);
  }
}
