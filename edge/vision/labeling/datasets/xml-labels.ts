// Pascal VOC's and CVAT's XML as labels.

import { parseXml, XmlElement } from "@rgrove/parse-xml";
import { maskBudget } from "../../../../shared/detector/rings.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import { sideNamed } from "./archive-sides.ts";
import {
  baseName,
  boxShape,
  count,
  counted,
  countNotes,
  distinct,
  folderOf,
  imageBeside,
  imageName,
  imageOfText,
  type Label,
  type Labels,
  NO_AREAS,
  oneSideEach,
  ringShape,
  sumOf,
  unitOf,
} from "./labels.ts";

/** A file of an archive, by its name there. */
export interface XmlFile {
  name: string;
  root: XmlElement;
}

const refusal = (file: string, problem: string) =>
  new Failure("invalid_request", `${file}: ${problem}`);

/** Elements of one document, all of which are in memory at once. */
const ELEMENTS_MAX = 200_000;

/**
 * The root of an XML document. Fails with `invalid_request`; no entity but XML's own is known. Take
 * what is needed of it before the next one is opened: it has many times the size of its text.
 */
export function openXml(name: string, text: string): XmlFile {
  let elements = 0;
  for (let at = text.indexOf("<"); at >= 0; at = text.indexOf("<", at + 1)) {
    if (text[at + 1] !== "/") elements += 1;
  }
  if (elements > ELEMENTS_MAX) throw refusal(name, `has over ${ELEMENTS_MAX} elements: split it`);
  try {
    const { root } = parseXml(text);
    if (root) return { name, root };
  } catch (thrown) {
    const [why = ""] = (thrown as Error).message.split("\n");
    throw refusal(name, `is no XML: ${why.slice(0, 200)}`);
  }
  throw refusal(name, "is no XML");
}

/** The elements in an element, or those of a name. */
export const childrenOf = (parent: XmlElement, name?: string): XmlElement[] =>
  parent.children.filter(
    (child): child is XmlElement =>
      child instanceof XmlElement && (name === undefined || child.name === name),
  );
/** The first element of a name in an element. */
export const childOf = (parent: XmlElement | undefined, name: string): XmlElement | undefined =>
  parent && childrenOf(parent, name)[0];
/** The text of the first element of a name in an element, without blanks around it. */
export const textOf = (parent: XmlElement | undefined, name: string): string =>
  childOf(parent, name)?.text.trim() ?? "";

/** Characters of a number; no tool writes one so long. */
const NUMBER_CHARACTERS_MAX = 64;
const DECIMAL = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;

/** Decimal digits as a number; not a number for all else. */
export const numberOf = (text: string): number =>
  text.length <= NUMBER_CHARACTERS_MAX && DECIMAL.test(text) ? Number(text) : Number.NaN;

/** The side of an image in pixels; none where it is missing or 0, as some tools write it. */
export const sideOf = (text: string): number | undefined => {
  const side = numberOf(text);
  return side > 0 && Number.isFinite(side) ? side : undefined;
};

/** An object's box, where one is told, and its outline. */
function shapeOf(
  box: Bbox | null,
  outline: Pick<Label, "box" | "polygon"> | null,
  rotation: number,
): Pick<Label, "box" | "polygon"> {
  if (!box) return outline ?? { box: null, polygon: [] };
  const polygon = outline?.polygon?.length ? outline.polygon : null;
  return polygon ? { box, polygon } : boxShape(box, rotation);
}

const BOX_FORM = "a box must be four numbers";

/** A box of numbers, in the order of its corners. */
function orderedBox(file: string, [x1, y1, x2, y2]: Bbox): Bbox {
  if (![x1, y1, x2, y2].every(Number.isFinite)) throw refusal(file, BOX_FORM);
  return [Math.min(x1, x2), Math.min(y1, y2), Math.max(x1, x2), Math.max(y1, y2)];
}

/** A file of Pascal VOC: its image and objects, with pixels as it counts them. */
export interface VocFile {
  name: string;
  image: string;
  unit: Label["unit"];
  objects: {
    class: string;
    /** Corners as they are written: a box may end before it begins. */
    corners: Label["box"];
    /** Degrees, clockwise, by which the box is turned. */
    rotation: number;
    rings: number[][];
  }[];
  /** Objects of shapes that are not taken. */
  leftOut: number;
}

/**
 * The image of a document; none where it names none. A document may name it with the folders in
 * which it lies itself.
 */
function imageIn(document: string, name: string): string {
  if (name === "") return "";
  const [folder, own] = [folderOf(imageName(document)), folderOf(imageName(name))];
  if (own === "" || !`/${folder}`.endsWith(`/${own}`)) return imageBeside(document, name);
  return `${folder}${baseName(imageName(name))}`;
}

/** What an XML document of Pascal VOC holds. Fails with `invalid_request`. */
export function vocFile({ name, root }: XmlFile): VocFile {
  const size = childOf(root, "size");
  const all = childrenOf(root, "object");
  // Boxes that roLabelImg turned: their angles are written by several rules.
  const taken = all.filter((object) => !childOf(object, "robndbox") || childOf(object, "bndbox"));
  return {
    name,
    image: imageIn(name, textOf(root, "filename")),
    unit: unitOf(sideOf(textOf(size, "width")), sideOf(textOf(size, "height"))),
    leftOut: all.length - taken.length,
    objects: taken.map((object) => {
      const className = textOf(object, "name");
      if (className === "") throw refusal(name, "an object has no name");
      const rings = childrenOf(object, "polygon").map((polygon) =>
        childrenOf(polygon).map((point) => numberOf(point.text.trim())),
      );
      const corners = cornersOf(name, childOf(object, "bndbox"));
      if (!corners && rings.length === 0) {
        throw refusal(name, "an object has neither a bndbox nor a polygon");
      }
      return { class: className, corners, rotation: rotationOf(object), rings };
    }),
  };
}

/** The degrees by which CVAT turned an object's box, which it writes among its attributes. */
function rotationOf(object: XmlElement): number {
  const attributes = childrenOf(childOf(object, "attributes") ?? object, "attribute");
  const own = attributes.find((attribute) => textOf(attribute, "name") === "rotation");
  const degrees = own ? numberOf(textOf(own, "value")) : 0;
  // Another tool's own attribute may be called so.
  return Number.isFinite(degrees) ? degrees : 0;
}

/**
 * Where a side of a VOC box lies whose pixels count from `first`. One under a pixel wide may end
 * before it begins; only where it cannot be such a one are its ends swapped.
 */
const sideBetween = (min: number, max: number, first: number): [start: number, end: number] =>
  min - first <= max ? [min - first, max] : [max - first, min];

function boxBetween([x1, y1, x2, y2]: Bbox, first: number): Bbox {
  const [[left, right], [top, bottom]] = [sideBetween(x1, x2, first), sideBetween(y1, y2, first)];
  return [left, top, right, bottom];
}

/**
 * Labels of Pascal VOC, a file an image. Pixels are counted from 1 and a box's last one belongs to
 * it, as in the VOC devkit; where any box begins before 1 the files are of a tool that counts from
 * 0, and are read so. An image is the one of `filename` or, where only that `isKnown`, the one
 * called as the file is.
 */
export function vocLabels(files: readonly VocFile[], isKnown: (file: string) => boolean): Labels {
  const zero = files.some(({ objects }) =>
    objects.some(({ corners }) => corners && Math.min(corners[0], corners[1]) < 1),
  );
  const first = zero ? 0 : 1;
  const budget = maskBudget();
  const images: string[] = [];
  const labels = files.flatMap(({ name, image: given, unit, objects }) => {
    const called = imageOfText(name);
    const isGiven = given !== "" && (isKnown(given) || !isKnown(called));
    const image = isGiven ? given : called;
    images.push(image);
    return objects.map(({ class: className, corners, rotation, rings }): Label => {
      const shifted = rings.map((ring) => ring.map((value) => value - first));
      const box = corners && boxBetween(corners, first);
      const outline = shifted.length > 0 ? ringShape(name, shifted, budget) : null;
      const shape = shapeOf(box, outline, rotation);
      return { image, class: className, ...shape, unit, confidence: null };
    });
  });
  const { images: once, notes } = distinct(images);
  const from = zero ? ["pixels of the VOC boxes count from 0, since some begin there"] : [];
  const leftOut = files.reduce((total, one) => total + one.leftOut, 0);
  const turned = leftOut > 0 ? [`${counted(leftOut, "turned box")} left out (robndbox)`] : [];
  return {
    images: once,
    labels,
    classes: classesOf(labels),
    leftOut,
    notes: [...notes, ...from, ...turned],
    frameIds: new Map(),
  };
}

const classesOf = (labels: readonly Label[]) => [...new Set(labels.map((one) => one.class))];

function cornersOf(file: string, bndbox: XmlElement | undefined): Label["box"] | null {
  if (!bndbox) return null;
  const [x1, y1, x2, y2] = ["xmin", "ymin", "xmax", "ymax"].map((name) =>
    numberOf(textOf(bndbox, name)),
  );
  const corners = [x1, y1, x2, y2] as Bbox;
  if (!corners.every(Number.isFinite)) throw refusal(file, BOX_FORM);
  return corners;
}

/** What CVAT draws besides boxes and polygons; a tag is of an image, and no shape of it. */
const TAG = "tag";

/** Labels of CVAT for images 1.1: its boxes and polygons; other shapes are named and counted. */
export function cvatLabels({ name: file, root }: XmlFile): Labels {
  const budget = maskBudget();
  const images = childrenOf(root, "image");
  const leftOut = new Map<string, number>();
  const labels = images.flatMap((image) => {
    const { name = "", width = "", height = "" } = image.attributes;
    return childrenOf(image).flatMap((shape): Label[] => {
      const own = shape.attributes;
      const ring = shape.name === "polygon" ? (own.points ?? "").split(/[;,]/).map(numberOf) : null;
      if (!ring && shape.name !== "box") {
        if (shape.name !== TAG) count(leftOut, shape.name);
        return [];
      }
      if (!own.label) throw refusal(file, "a shape has no label");
      const found = ring ? ringShape(file, [ring], budget) : cvatBox(file, own);
      return [
        {
          image: imageIn(file, name),
          class: own.label,
          ...found,
          unit: unitOf(sideOf(width), sideOf(height)),
          confidence: null,
        },
      ];
    });
  });
  const [task] = ["task", "project", "job"].flatMap(
    (kind) => childOf(childOf(root, "meta"), kind) ?? [],
  );
  const listed = childrenOf(childOf(task, "labels") ?? root, "label").map((label) =>
    textOf(label, "name"),
  );
  const { images: once, notes } = distinct(
    images.map(({ attributes }) => imageIn(file, attributes.name ?? "")),
  );
  const sides = images.flatMap(({ attributes: { name = "", subset = "" } }) => {
    const side = sideNamed(subset);
    return side ? [[imageIn(file, name), side] as const] : [];
  });
  return {
    images: once,
    labels,
    classes: [...new Set([...listed.filter((name) => name !== ""), ...classesOf(labels)])],
    leftOut: sumOf(leftOut),
    notes: [...notes, ...countNotes(NO_AREAS, leftOut)],
    frameIds: new Map(),
    sides: oneSideEach(sides),
  };
}

/** A box by CVAT's attributes; one that is turned is a polygon. */
export function cvatBox(
  file: string,
  { xtl = "", ytl = "", xbr = "", ybr = "", rotation = "0" }: XmlElement["attributes"],
): Pick<Label, "box" | "polygon"> {
  const box = orderedBox(file, [xtl, ytl, xbr, ybr].map(numberOf) as Bbox);
  const degrees = numberOf(rotation);
  if (!Number.isFinite(degrees)) throw refusal(file, "a rotation must be a number of degrees");
  return boxShape(box, degrees);
}
