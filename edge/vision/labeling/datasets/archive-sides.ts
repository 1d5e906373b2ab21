// Sides of the split that an archive of labels tells for its images: by the lists beside its
// labels, by the names of its documents, or by its folders. Pure.

import { parse } from "yaml";
import { withoutExtension } from "../../../../shared/wire/labeling.ts";
import type { ArchiveText } from "./archive.ts";
import { baseName, counted, folderOf, imageBeside, imageName, stemOf } from "./labels.ts";
import { type Side, strictestSide } from "./split.ts";

const SIDE_OF_NAME: Readonly<Record<string, Side>> = {
  train: "train",
  training: "train",
  val: "val",
  valid: "val",
  validation: "val",
  test: "test",
};
/** A side in the words of tools, such as `Validation` or `train2017`; null for all else. */
export const sideNamed = (name: string): Side | null => {
  const word = name.toLowerCase().replace(/20\d\d$/, "");
  return Object.hasOwn(SIDE_OF_NAME, word) ? (SIDE_OF_NAME[word] ?? null) : null;
};

/** Sides of the folders that an image lies in, each once. */
const sidesOfPath = (image: string): Set<Side> =>
  new Set(
    folderOf(image)
      .split("/")
      .flatMap((folder) => sideNamed(folder) ?? []),
  );

/** The side of the folders that an image lies in; null where they name none, or two. */
export function sideOfPath(image: string): Side | null {
  const [side, ...others] = sidesOfPath(image);
  return side !== undefined && others.length === 0 ? side : null;
}

/** The side that a document's name tells for all its images, such as `instances_val2017.json`. */
export const sideOfDocument = (file: string): Side | null =>
  sideNamed(
    baseName(file)
      .replace(/\.[^.]*$/, "")
      .split(/[_.-]/)
      .at(-1) ?? "",
  );

/** Sides by image, of several that a source tells the most held-out one. */
class ToldSides {
  readonly sides = new Map<string, Side>();
  /** Images of which two sides were told. */
  readonly disputed = new Set<string>();

  add(image: string, side: Side | null) {
    if (side === null) return;
    const known = this.sides.get(image) ?? side;
    if (known !== side) this.disputed.add(image);
    this.sides.set(image, strictestSide([known, side]));
  }
}

/** A list of the images of a side, such as Pascal VOC's ImageSets/Main/train.txt. */
const SIDE_LIST = /(^|\/)(train|val|valid|validation|test)\.txt$/i;
const YAML = /\.ya?ml$/i;

/**
 * The sides that an archive tells for its images beyond those that its labels tell: lists come
 * before data.yaml's paths, and these before what the labels tell and before folders.
 */
export function archiveSides(
  texts: readonly ArchiveText[],
  { images, sides = new Map() }: { images: readonly string[]; sides?: ReadonlyMap<string, Side> },
): { sides: Map<string, Side>; notes: string[] } {
  const listed = listedSides(texts, images);
  const told = new Map<string, Side>();
  let unclear = 0;
  const folders = texts.filter(({ name }) => YAML.test(name)).flatMap(yamlFolders);
  for (const image of images) {
    const side =
      listed.sides.get(image) ??
      sideByFolders(image, folders) ??
      sides.get(image) ??
      sideOfPath(image);
    if (side) told.set(image, side);
    else if (sidesOfPath(image).size > 1) unclear += 1;
  }
  const disputed = [...listed.disputed].length;
  return {
    sides: told,
    notes: [
      ...(disputed > 0
        ? [`${counted(disputed, "image")} listed for two sides: on the more held-out one`]
        : []),
      ...(unclear > 0 ? [`${counted(unclear, "image")} in folders of two sides: on none`] : []),
    ],
  };
}

/** Images by their paths, and by their names where one image alone is called so. */
function imageIndex(images: readonly string[]): (path: string) => string | null {
  const whole = new Map<string, string | null>();
  const stems = new Map<string, string | null>();
  const add = (index: typeof whole, key: string, image: string) =>
    index.set(key, index.has(key) && index.get(key) !== image ? null : image);
  const bare = (path: string) => folderOf(path) + withoutExtension(path);
  for (const image of images) {
    for (const path of new Set([image, bare(image)])) add(whole, path, image);
    for (const stem of new Set([baseName(image), stemOf(image)])) add(stems, stem, image);
  }
  return (path) => {
    for (const form of [path, bare(path)]) {
      const found = whole.get(form) ?? stems.get(baseName(form));
      if (found) return found;
    }
    return null;
  };
}

/** Sides by the lists of an archive: a path, or a name without its extension, a line. */
function listedSides(texts: readonly ArchiveText[], images: readonly string[]): ToldSides {
  const told = new ToldSides();
  const lists = texts.filter(({ name }) => SIDE_LIST.test(name));
  if (lists.length === 0) return told;
  const find = imageIndex(images);
  for (const { name, text } of lists) {
    const side = sideOfDocument(name);
    for (const line of text.split("\n")) {
      const image = line.trim() && find(imageName(line.trim()));
      if (image) told.add(image, side);
    }
  }
  return told;
}

/** A folder of images that data.yaml names for a side, as images are named, with a slash. */
interface SideFolder {
  folder: string;
  side: Side;
}

/** The folders of a data.yaml; those that tell no images apart are left out. */
function yamlFolders({ name, text }: ArchiveText): SideFolder[] {
  let document: unknown;
  try {
    document = parse(text, { logLevel: "error" });
  } catch {
    // What is no YAML is refused where its classes are read.
    return [];
  }
  if (typeof document !== "object" || document === null) return [];
  return Object.entries(document).flatMap(([key, value]) => {
    const side = sideNamed(key);
    const paths: unknown[] = Array.isArray(value) ? value : [value];
    if (side === null) return [];
    return paths.flatMap((path): SideFolder[] => {
      if (typeof path !== "string" || /\.txt$/i.test(path)) return [];
      // A file of any name stands for the images in the folder.
      const folder = folderOf(imageBeside(name, `${path.trim()}/any`));
      return folder === "" ? [] : [{ folder, side }];
    });
  });
}

/** The side of the longest folder that an image lies in; null where two sides have that one. */
function sideByFolders(image: string, folders: readonly SideFolder[]): Side | null {
  const around = folders.filter(({ folder }) => `/${image}`.includes(`/${folder}`));
  const longest = Math.max(...around.map(({ folder }) => folder.length));
  const sides = new Set(
    around.filter(({ folder }) => folder.length === longest).map(({ side }) => side),
  );
  const [side, ...others] = sides;
  return side !== undefined && others.length === 0 ? side : null;
}
