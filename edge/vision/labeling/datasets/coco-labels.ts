// COCO's instances as labels, with their masks: polygons, and run lengths as numbers or packed.

import { z } from "@hono/zod-openapi";
import {
  boxAround,
  isRectangle,
  type MaskBudget,
  maskBudget,
  ringOfPolygons,
  ringOfRunLengths,
} from "../../../../shared/detector/rings.ts";
import { Failure } from "../../../../shared/errors.ts";
import { PIXELS_MAX, pixels } from "../../../../shared/shapes.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import { parseFrameId } from "../../../../shared/wire/vision.ts";
import { ClassName } from "../classes.ts";
import {
  CLASSES_MAX,
  counted,
  distinct,
  IMPORT_FILES_MAX,
  IMPORT_LABELS_MAX,
  imageBeside,
  type Label,
  type Labels,
  maskFailure,
  oneIdEach,
  turnedBox,
  unitOf,
} from "./labels.ts";
import { keyPointNotes } from "./yolo-labels.ts";

const Pixels = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const Id = z.number().min(-Number.MAX_SAFE_INTEGER).max(Number.MAX_SAFE_INTEGER);
/** 0 is how some tools write that they do not know it. */
const side = () => z.number().min(0).max(PIXELS_MAX).optional();
/** Numbers of one mask, and characters of a packed one: a budget bounds all of them together. */
const MASK_MAX = maskBudget().numbers;
const SEGMENTATION_FORM =
  "must be polygons, [[x1, y1, x2, y2, …], …], or run lengths with their size";
const Segmentation = z.union(
  [
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
  ],
  SEGMENTATION_FORM,
);
/** Some tools count scores in percent, or otherwise. */
const SCORE_MAX = 1_000_000;
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
        frame_id: z.unknown().optional().meta({
          description: "as our exports write it: the frame, whatever its file is called",
        }),
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
        score: z.number().min(-SCORE_MAX).max(SCORE_MAX).nullish().meta({
          description: "becomes its confidence, where it is one from 0 to 1",
        }),
        keypoints: z.unknown().optional().meta({ description: "not taken, and counted" }),
        attributes: z.unknown().optional().meta({
          description: "`rotation`: degrees, clockwise, by which CVAT turned the box",
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

/** Whether an annotation has key points. */
export const isPosed = ({ keypoints }: { keypoints?: unknown }): boolean =>
  Array.isArray(keypoints) && keypoints.length > 0;

/**
 * The labels of a document, which is a body's or the file of an archive that `where` names. Fails
 * with `invalid_request`.
 */
export function cocoLabels(
  coco: z.output<typeof Coco>,
  where = "coco",
  budget: MaskBudget = maskBudget(),
): Labels {
  const nameOf = (file: string) => imageBeside(where, file);
  const images = new Map(coco.images.map((image) => [image.id, image]));
  if (images.size < coco.images.length) {
    throw new Failure("invalid_request", `${where}.images: an id is there twice`);
  }
  const names = new Map(coco.categories.map(({ id, name }) => [id, name]));
  const other = coco.categories.find(({ id, name }) => names.get(id) !== name);
  if (other) {
    const both = `${JSON.stringify(other.name)} and ${JSON.stringify(names.get(other.id))}`;
    throw new Failure("invalid_request", `${where}.categories: id ${other.id} is ${both}`);
  }
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
    const shape = shapeOf(one, maskOf(one, field, budget));
    if (!shape) throw new Failure("invalid_request", `${field}: has neither a bbox nor a mask`);
    return [
      {
        image: nameOf(image.file_name),
        class: className,
        ...shape,
        unit: unitOf(width, height),
        confidence: isShare(one.score) ? one.score : null,
      },
    ];
  });
  const { images: once, notes } = distinct(coco.images.map(({ file_name }) => nameOf(file_name)));
  const crowds = coco.annotations.length - labels.length;
  const posed = coco.annotations.filter((one) => !one.iscrowd && isPosed(one)).length;
  const others = coco.annotations.filter(({ score }) => score != null && !isShare(score)).length;
  return {
    images: once,
    labels,
    classes: [...new Set(coco.categories.map(({ name }) => name))],
    leftOut: crowds,
    notes: [
      ...notes,
      ...keyPointNotes(posed),
      ...(others > 0 ? [`${counted(others, "score")} not taken: not from 0 to 1`] : []),
      ...(crowds > 0 ? [`${counted(crowds, "crowd region")} left out: ${NO_OBJECTS}`] : []),
    ],
    frameIds: oneIdEach(
      coco.images.flatMap(({ file_name, frame_id }) =>
        typeof frame_id === "string" && parseFrameId(frame_id)
          ? [[nameOf(file_name), frame_id] as const]
          : [],
      ),
    ),
  };
}

const isShare = (score: number | null | undefined): score is number =>
  score != null && score >= 0 && score <= 1;

/** The box and the mask of an object; null where it tells neither, nor key points. */
function shapeOf(
  one: CocoAnnotation,
  mask: number[] | null,
): Pick<Label, "box" | "polygon"> | null {
  const { bbox, segmentation } = one;
  // A rectangle around nothing but itself is how exports write a box where masks are wanted.
  const polygon = mask && isRectangle(mask) ? null : mask;
  if (!bbox) {
    if (mask) return { box: polygon ? null : boxAround(mask), polygon };
    // A mask without an area, or key points alone: left out, and counted.
    return segmentation || isPosed(one) ? { box: null, polygon: [] } : null;
  }
  const [x, y, width, height] = bbox;
  const box: Bbox = [x, y, x + width, y + height];
  const degrees = rotationOf(one);
  // A box alone was turned; beside a mask it is the one around it.
  return polygon || degrees % 180 === 0
    ? { box, polygon }
    : { box: null, polygon: turnedBox(box, degrees) };
}

/** The degrees by which CVAT turned a box; the attributes of other tools are their own. */
function rotationOf({ attributes }: CocoAnnotation): number {
  const isObject = typeof attributes === "object" && attributes !== null;
  const rotation = isObject && "rotation" in attributes ? attributes.rotation : 0;
  return typeof rotation === "number" && Number.isFinite(rotation) ? rotation : 0;
}

function maskOf({ segmentation }: CocoAnnotation, field: string, budget: MaskBudget) {
  if (!segmentation) return null;
  try {
    return Array.isArray(segmentation)
      ? ringOfPolygons(segmentation, budget)
      : ringOfRunLengths(segmentation, budget);
  } catch (thrown) {
    throw maskFailure(`${field}.segmentation`, thrown);
  }
}
