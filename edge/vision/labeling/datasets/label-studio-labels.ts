// Label Studio's JSON exports as labels: rectangles, polygons, ellipses and brush strokes of an
// annotation. The short form, JSON-MIN, has the same values under the names of its controls.

import { z } from "@hono/zod-openapi";
import { type MaskBudget, maskBudget } from "../../../../shared/detector/rings.ts";
import { Failure } from "../../../../shared/errors.ts";
import { PIXELS_MAX } from "../../../../shared/shapes.ts";
import { ClassName } from "../classes.ts";
import { ringOfBrush } from "./label-studio-brush.ts";
import { taskImage } from "./label-studio-paths.ts";
import {
  CLASSES_MAX,
  count,
  counted,
  countNotes,
  distinct,
  ELLIPSE_CORNERS,
  ellipseRing,
  IMPORT_FILES_MAX,
  IMPORT_LABELS_MAX,
  type Label,
  type Labels,
  maskFailure,
  NO_AREAS,
  ringShape,
  sumOf,
  turnedBox,
  unitOf,
} from "./labels.ts";

const side = () => z.number().int().min(1).max(PIXELS_MAX).nullish();
const Moment = z.union([z.string(), z.number()]).nullish();

/** One entry of a result: a shape, a label, or what is told of the shape besides. */
const Entry = z.object({
  id: z.union([z.string(), z.number()]).nullish(),
  type: z.string().max(100).default("shape"),
  original_width: side(),
  original_height: side(),
  image_rotation: z.number().nullish(),
  score: z.number().nullish(),
  value: z.record(z.string(), z.unknown()).default({}),
});
type Entry = z.output<typeof Entry>;

const Annotation = z.object({
  result: z.array(Entry).max(IMPORT_LABELS_MAX).nullish(),
  was_cancelled: z.boolean().nullish(),
  /** As the first versions called it. */
  skipped: z.boolean().nullish(),
  ground_truth: z.boolean().nullish(),
  created_at: Moment,
  updated_at: Moment,
  score: z.number().nullish(),
});
type Annotation = z.output<typeof Annotation>;
const Annotations = z.array(Annotation).nullish();

const Task = z.object({
  id: z.union([z.string(), z.number()]).nullish(),
  data: z.record(z.string(), z.unknown()),
  annotations: Annotations,
  /** As the first versions called them. */
  completions: Annotations,
  /** Some exports have their ids alone. */
  predictions: z.array(z.union([Annotation, z.number()])).nullish(),
});
type Task = z.output<typeof Task>;

const Tasks = z.array(Task).max(IMPORT_FILES_MAX);

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const LABELS = /labels$/i;

/** Whether a JSON document is an export of Label Studio's, in either form. */
export function isLabelStudio(document: unknown): document is Record<string, unknown>[] {
  if (!Array.isArray(document) || document.length === 0) return false;
  return document.every(
    (one) =>
      isObject(one) &&
      ((isObject(one.data) &&
        ("annotations" in one || "completions" in one || "predictions" in one)) ||
        "annotation_id" in one),
  );
}

/** JSON-MIN's rows as tasks: a row is an annotation. */
function tasksOf(rows: readonly Record<string, unknown>[]): unknown[] {
  const tasks = new Map<unknown, { annotations: unknown[] }>();
  const long: unknown[] = [];
  for (const [index, row] of rows.entries()) {
    if (isObject(row.data)) {
      long.push(row);
      continue;
    }
    const texts = Object.entries(row).filter(([, value]) => typeof value === "string");
    const { created_at, updated_at } = row;
    const annotation = { created_at, updated_at, result: entriesOf(row) };
    const id = row.id ?? `row ${index}`;
    const known = tasks.get(id);
    if (known) known.annotations.push(annotation);
    else {
      const task = { id, data: Object.fromEntries(texts), annotations: [annotation] };
      tasks.set(id, task);
    }
  }
  return [...long, ...tasks.values()];
}

/** The shapes of a row's controls. They have no ids: what draws and what labels lie alike. */
function entriesOf(row: Record<string, unknown>): unknown[] {
  return Object.entries(row).flatMap(([control, values]) =>
    (Array.isArray(values) ? (values as unknown[]) : []).filter(isObject).map((value) => ({
      ...("rle" in value ? {} : { id: JSON.stringify(GEOMETRY.map((name) => value[name])) }),
      type: Object.keys(value).find((key) => LABELS.test(key)) ?? control,
      original_width: value.original_width,
      original_height: value.original_height,
      value,
    })),
  );
}

const GEOMETRY = ["x", "y", "width", "height", "radiusX", "radiusY", "rotation", "points"];

/** What of an export was not taken as it stood. */
interface Tally {
  leftOut: Map<string, number>;
  /** What is told besides the shapes, by its kind. */
  lost: Map<string, number>;
  unlabeled: number;
  turned: number;
  several: number;
  ellipses: number;
}

/** The labels of a document, which is the file of an archive. Fails with `invalid_request`. */
export function labelStudioLabels(
  file: string,
  document: readonly Record<string, unknown>[],
  budget: MaskBudget = maskBudget(),
): Labels {
  const parsed = Tasks.safeParse(tasksOf(document));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const detail = `${file}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}`;
    throw new Failure("invalid_request", detail);
  }
  const tasks = parsed.data;
  const isPredicted =
    tasks.every((task) => annotationsOf(task).length === 0) &&
    tasks.some((task) => predictionsOf(task).length > 0);
  const tally: Tally = {
    leftOut: new Map(),
    lost: new Map(),
    unlabeled: 0,
    turned: 0,
    several: 0,
    ellipses: 0,
  };
  const images: string[] = [];
  const labels: Label[] = [];
  const counts = { skipped: 0, chosen: 0, unlabeled: 0, predicted: 0 };
  for (const [index, task] of tasks.entries()) {
    const where = `${file}: task ${task.id ?? index}`;
    const people = annotationsOf(task);
    const kept = people.filter((one) => !(one.was_cancelled || one.skipped));
    const predictions = predictionsOf(task);
    const among = isPredicted ? predictions : kept;
    const annotation = chosen(among);
    if (!isPredicted && predictions.length > 0) counts.predicted += 1;
    if (!annotation) {
      if (people.length > 0) counts.skipped += 1;
      else counts.unlabeled += 1;
      continue;
    }
    if (among.length > 1) counts.chosen += 1;
    const found = taskImage(task.data);
    if ("problem" in found) throw new Failure("invalid_request", `${where}: ${found.problem}`);
    images.push(found.image);
    const score = isPredicted ? (annotation.score ?? null) : null;
    const context = { image: found.image, where, budget, tally, isPredicted, score };
    labels.push(...regionsOf(annotation).flatMap((region) => regionLabels(region, context)));
  }
  const { images: once, notes } = distinct(images);
  return {
    images: once,
    labels,
    classes: [...new Set(labels.map((one) => one.class))].slice(0, CLASSES_MAX + 1),
    leftOut: sumOf(tally.leftOut) + tally.unlabeled + tally.turned,
    notes: [...notes, ...taskNotes(counts, isPredicted), ...shapeNotes(tally)],
    frameIds: new Map(),
  };
}

const annotationsOf = ({ annotations, completions }: Task) => annotations ?? completions ?? [];

const predictionsOf = ({ predictions }: Task) =>
  (predictions ?? []).filter((one) => typeof one === "object");

/** The ground truth, else the newest; among several ground truths the newest. */
function chosen(annotations: readonly Annotation[]): Annotation | undefined {
  const truths = annotations.filter((one) => one.ground_truth);
  const timeOf = ({ created_at, updated_at }: Annotation) => {
    const moment = updated_at ?? created_at ?? 0;
    const time = typeof moment === "number" ? moment : Date.parse(moment);
    return Number.isNaN(time) ? 0 : time;
  };
  // The later in the file, where both have the same time.
  return (truths.length > 0 ? truths : annotations).reduce<Annotation | undefined>(
    (best, one) => (best && timeOf(best) > timeOf(one) ? best : one),
    undefined,
  );
}

function taskNotes(
  counts: { skipped: number; chosen: number; unlabeled: number; predicted: number },
  isPredicted: boolean,
): string[] {
  const note = (number: number, noun: string, what: string) =>
    number > 0 ? [`${counted(number, noun)} ${what}`] : [];
  const from = isPredicted ? "predictions" : "annotations";
  return [
    ...(isPredicted ? ["predictions are taken, as no task has an annotation"] : []),
    ...note(
      counts.chosen,
      "task",
      `of several ${from}: the ground truth is taken, else the newest`,
    ),
    ...note(counts.predicted, "task", "with predictions, which are not taken"),
    ...note(counts.skipped, "task", "that people skipped not taken"),
    ...note(counts.unlabeled, "task", `without ${from} not taken`),
  ];
}

function shapeNotes({ leftOut, lost, unlabeled, turned, several, ellipses }: Tally): string[] {
  const note = (number: number, noun: string, what: string) =>
    number > 0 ? [`${counted(number, noun)} ${what}`] : [];
  return [
    ...note(several, "shape", "of several labels taken once for each"),
    ...note(ellipses, "ellipse", `taken as polygons of ${ELLIPSE_CORNERS} corners`),
    ...note(unlabeled, "shape", "without a label left out"),
    ...note(turned, "shape", "left out, drawn on an image that was turned in the editor"),
    ...countNotes("no shapes, and not taken", lost),
    ...countNotes(NO_AREAS, leftOut),
  ];
}

/** The entries of one shape: it has an id, by which labels and texts of other controls are its. */
function regionsOf({ result }: Annotation): Entry[][] {
  const regions = Map.groupBy(result ?? [], (entry) => entry.id ?? entry);
  return [...regions.values()];
}

interface RegionContext {
  image: string;
  where: string;
  budget: MaskBudget;
  tally: Tally;
  isPredicted: boolean;
  /** How sure a prediction is of all its shapes. */
  score: number | null;
}

/** A shape's labels as ours: one for each name; none where it has no name, or no area. */
function regionLabels(entries: Entry[], context: RegionContext): Label[] {
  const { image, tally, where } = context;
  const shaped = entries.find(({ value }) => kindOf(value) !== null);
  const names = namesOf(entries, where);
  for (const entry of entries) {
    const isLabel = Object.keys(entry.value).some((key) => LABELS.test(key));
    if (entry !== shaped && !isLabel && kindOf(entry.value) === null) count(tally.lost, entry.type);
  }
  if (!shaped) return [];
  const kind = kindOf(shaped.value);
  if (kind === "other") {
    count(tally.leftOut, shaped.type);
    return [];
  }
  if ((shaped.image_rotation ?? 0) % 360 !== 0) {
    tally.turned += 1;
    return [];
  }
  if (names.length === 0) {
    tally.unlabeled += 1;
    return [];
  }
  if (names.length > 1) tally.several += 1;
  if (kind === "ellipse") tally.ellipses += 1;
  const { original_width: width, original_height: height } = shaped;
  const shape = shapeOf(shaped, kind, context);
  const score = shaped.score ?? context.score;
  const isShare = score !== null && score >= 0 && score <= 1;
  return names.map((name) => ({
    image,
    class: name,
    ...shape,
    unit: unitOf(width ?? undefined, height ?? undefined) ?? { x: 1, y: 1 },
    confidence: context.isPredicted && isShare ? score : null,
  }));
}

/** The names of a shape, each once. */
function namesOf(entries: readonly Entry[], where: string): string[] {
  const listed = entries.flatMap(({ value }) =>
    Object.entries(value).flatMap(([key, names]) =>
      LABELS.test(key) && Array.isArray(names) ? (names as unknown[]) : [],
    ),
  );
  const names = listed.map((one) => {
    const name = ClassName.safeParse(one);
    if (name.success) return name.data;
    const given = JSON.stringify(one).slice(0, 50);
    throw new Failure("invalid_request", `${where}: a label is called ${given}, which is no name`);
  });
  return [...new Set(names)];
}

type Kind = "brush" | "ellipse" | "polygon" | "rectangle" | "other";

/** What a value draws; null where it draws nothing. */
function kindOf(value: Entry["value"]): Kind | null {
  if ("rle" in value) return "brush";
  if ("radiusX" in value) return "ellipse";
  if (Array.isArray(value.points)) return "polygon";
  if ("x" in value && "y" in value) {
    return "width" in value && "height" in value ? "rectangle" : "other";
  }
  return "sequence" in value || "vertices" in value ? "other" : null;
}

const Rle = z.array(z.int().min(0).max(255)).max(maskBudget().numbers);
const Points = z.array(z.tuple([z.number(), z.number()])).max(maskBudget().numbers / 2);

/** The shape of an entry, whose numbers are percent of the image's sides, in pixels. */
function shapeOf(
  { value, original_width: width, original_height: height }: Entry,
  kind: Exclude<Kind, "other"> | null,
  { where, budget }: RegionContext,
): Pick<Label, "box" | "polygon"> {
  const refusal = (problem: string) => new Failure("invalid_request", `${where}: ${problem}`);
  const [w, h] = [width ?? 1, height ?? 1];
  const number = (name: string): number => {
    const given = value[name];
    if (typeof given === "number" && Number.isFinite(given)) return given;
    throw refusal(`${name} of a shape must be a number`);
  };
  const rotation = "rotation" in value ? number("rotation") : 0;
  if ((rotation !== 0 || kind === "brush") && !(width && height)) {
    throw refusal("a turned shape, or a brush's, needs original_width and original_height");
  }
  if (kind === "polygon") {
    const points = Points.safeParse(value.points);
    if (!points.success) throw refusal("points of a polygon must be pairs of numbers");
    const ring = points.data.flatMap(([x, y]) => [(x / 100) * w, (y / 100) * h]);
    return ringShape(where, [ring], budget);
  }
  if (kind === "brush") {
    const rle = Rle.safeParse(value.rle);
    if (!rle.success) throw refusal("rle of a brush must be a list of bytes");
    try {
      return { box: null, polygon: ringOfBrush(rle.data, { width: w, height: h }, budget) ?? [] };
    } catch (thrown) {
      throw maskFailure(where, thrown);
    }
  }
  const [x, y] = [(number("x") / 100) * w, (number("y") / 100) * h];
  if (kind === "ellipse") {
    const radii = [(number("radiusX") / 100) * w, (number("radiusY") / 100) * h] as const;
    return ringShape(where, [ellipseRing([x, y], radii, rotation)], budget);
  }
  const [right, bottom] = [x + (number("width") / 100) * w, y + (number("height") / 100) * h];
  if (rotation % 360 === 0) return { box: [x, y, right, bottom], polygon: null };
  // It turns about its first corner, not its center.
  return ringShape(where, [turnedBox([x, y, right, bottom], rotation, [x, y])], budget);
}
