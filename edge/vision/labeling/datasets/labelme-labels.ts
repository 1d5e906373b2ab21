// LabelMe's JSON as labels: a file an image, with boxes, polygons, circles and masks.

import { z } from "@hono/zod-openapi";
import { type MaskBudget, maskBudget, ringOfRows } from "../../../../shared/detector/rings.ts";
import { Failure } from "../../../../shared/errors.ts";
import { PIXELS_MAX, pixels } from "../../../../shared/shapes.ts";
import { ClassName } from "../classes.ts";
import { pngRuns } from "./gray-png.ts";
import {
  count,
  counted,
  countNotes,
  distinct,
  ELLIPSE_CORNERS,
  ellipseRing,
  IMPORT_LABELS_MAX,
  imageBeside,
  imageOfText,
  type Label,
  type Labels,
  maskFailure,
  NO_AREAS,
  ringShape,
  sumOf,
  unitOf,
} from "./labels.ts";

const FILE_NAME_MAX = 4_096;
const POINTS_MAX = maskBudget().numbers / 2;
const side = () => z.number().min(0).max(PIXELS_MAX).nullish();

const Shape = z.object({
  label: ClassName,
  points: z.array(z.tuple([pixels(), pixels()])).max(POINTS_MAX),
  /** Files of the first versions have polygons alone, and do not name them. */
  shape_type: z.string().max(100).nullish(),
  /** A PNG of the box that `points` are, as base64. */
  mask: z.string().nullish(),
  group_id: z.unknown(),
  flags: z.unknown(),
  description: z.unknown(),
});
type Shape = z.output<typeof Shape>;

const Labelme = z.object({
  imagePath: z.string().max(FILE_NAME_MAX).nullish(),
  imageWidth: side(),
  imageHeight: side(),
  flags: z.unknown(),
  shapes: z.array(Shape).max(IMPORT_LABELS_MAX),
});

/** Whether a JSON document is a file of LabelMe's. */
export const isLabelme = (document: unknown): boolean =>
  typeof document === "object" &&
  document !== null &&
  "shapes" in document &&
  Array.isArray(document.shapes) &&
  ("imagePath" in document || "imageHeight" in document);

/** A file of LabelMe's: its image and shapes, with what of it is not taken. */
export interface LabelmeFile {
  name: string;
  /** Empty where the file names none. */
  image: string;
  labels: Omit<Label, "image">[];
  /** Shapes that are not taken, by their kind. */
  leftOut: Map<string, number>;
  /** What is told of shapes and of the image besides, by its field. */
  lost: Map<string, number>;
  circles: number;
}

/** What a file of LabelMe's holds. Fails with `invalid_request`. */
export function labelmeFile(name: string, document: unknown, budget: MaskBudget): LabelmeFile {
  const parsed = Labelme.safeParse(document);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const detail = `${name}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}`;
    throw new Failure("invalid_request", detail);
  }
  const { imagePath, imageWidth, imageHeight, flags, shapes } = parsed.data;
  const unit = unitOf(imageWidth ?? undefined, imageHeight ?? undefined);
  const leftOut = new Map<string, number>();
  const lost = new Map<string, number>();
  count(lost, "flags", Number(isFlagged(flags)));
  const labels = shapes.flatMap((shape, index) => {
    const kind = shape.shape_type ?? "polygon";
    const found = shapeOf(shape, kind, { where: `${name}: shapes.${index}`, budget });
    if (!found) {
      count(leftOut, kind);
      return [];
    }
    count(lost, "group_id", Number(shape.group_id != null));
    count(lost, "flags", Number(isFlagged(shape.flags)));
    count(lost, "description", Number(Boolean(shape.description)));
    return [{ class: shape.label, ...found, unit, confidence: null }];
  });
  return {
    name,
    image: imagePath ? imageBeside(name, imagePath) : "",
    labels,
    leftOut,
    lost,
    circles: shapes.filter(({ shape_type: kind }) => kind === "circle").length,
  };
}

const isFlagged = (flags: unknown): boolean =>
  typeof flags === "object" && flags !== null && Object.values(flags).includes(true);

/** The box or mask of a shape; null for kinds without an area. */
function shapeOf(
  { points, mask }: Shape,
  kind: string,
  { where, budget }: { where: string; budget: MaskBudget },
): Pick<Label, "box" | "polygon"> | null {
  const refusal = (problem: string) => new Failure("invalid_request", `${where}: ${problem}`);
  const [first, second] = points;
  const isPair = points.length === 2 && first !== undefined && second !== undefined;
  if (kind === "circle") {
    if (!isPair) throw refusal("a circle must have its center and a point of its edge");
    const radius = Math.hypot(second[0] - first[0], second[1] - first[1]);
    return ringShape(where, [ellipseRing(first, [radius, radius])], budget);
  }
  if (kind === "mask") {
    if (!isPair || !mask) throw refusal("a mask must have its PNG, and two corners");
    return { box: null, polygon: maskRing(mask, [first, second], { where, budget }) };
  }
  if (kind === "rectangle" && isPair) {
    const [[x1, y1], [x2, y2]] = [first, second];
    const [left, top, right, bottom] = [
      Math.min(x1, x2),
      Math.min(y1, y2),
      Math.max(x1, x2),
      Math.max(y1, y2),
    ];
    return { box: [left, top, right, bottom], polygon: null };
  }
  // Newer tools write a rectangle's four corners; `rotation` is X-AnyLabeling's turned one.
  if (/^(rectangle|oriented_rectangle|rotation)$/.test(kind) && points.length !== 4) {
    throw refusal(`a ${kind} must have ${kind === "rectangle" ? "two or " : ""}four corners`);
  }
  if (!/^(polygon|rectangle|oriented_rectangle|rotation)$/.test(kind)) return null;
  return ringShape(where, [points.flat()], budget);
}

/** The ring of a mask whose PNG fills a box, the last pixels of which belong to it. */
function maskRing(
  base64: string,
  corners: readonly [Shape["points"][number], Shape["points"][number]],
  { where, budget }: { where: string; budget: MaskBudget },
): number[] {
  const [[x1, y1], [x2, y2]] = corners.map(([x, y]) => [Math.trunc(x), Math.trunc(y)] as const) as [
    readonly [number, number],
    readonly [number, number],
  ];
  try {
    const runs = pngRuns(Buffer.from(base64, "base64"));
    const [height, width] = runs.size;
    if (x2 - x1 + 1 !== width || y2 - y1 + 1 !== height) {
      const detail = `${where}: its mask has ${width} × ${height} pixels, and its box other sides`;
      throw new Failure("invalid_request", detail);
    }
    const ring = ringOfRows(runs, budget) ?? [];
    return ring.map((value, index) => value + (index % 2 === 0 ? x1 : y1));
  } catch (thrown) {
    throw maskFailure(where, thrown);
  }
}

/**
 * The labels of LabelMe's files. An image is the one of `imagePath` or, where only that `isKnown`,
 * the one called as the file is.
 */
export function labelmeLabels(
  files: readonly LabelmeFile[],
  isKnown: (image: string) => boolean,
): Labels {
  const images: string[] = [];
  const leftOut = new Map<string, number>();
  const lost = new Map<string, number>();
  const labels = files.flatMap((file): Label[] => {
    const called = imageOfText(file.name);
    const isGiven = file.image !== "" && (isKnown(file.image) || !isKnown(called));
    const image = isGiven ? file.image : called;
    images.push(image);
    for (const [kind, number] of file.leftOut) count(leftOut, kind, number);
    for (const [kind, number] of file.lost) count(lost, kind, number);
    return file.labels.map((label) => ({ ...label, image }));
  });
  const circles = files.reduce((total, one) => total + one.circles, 0);
  const { images: once, notes } = distinct(images);
  return {
    images: once,
    labels,
    classes: [...new Set(labels.map((one) => one.class))],
    leftOut: sumOf(leftOut),
    notes: [
      ...notes,
      ...(circles > 0
        ? [`${counted(circles, "circle")} taken as polygons of ${ELLIPSE_CORNERS} corners`]
        : []),
      ...countNotes("told of shapes and images, and not taken", lost),
      ...countNotes(NO_AREAS, leftOut),
    ],
    frameIds: new Map(),
  };
}
