// Sides of the split that an archive of labels names for its images: by the lists beside its
// labels, by data.yaml, by the names of its documents, or by its folders. Pure.

import { parse } from "yaml";
import { withoutExtension } from "../../../../shared/wire/labeling.ts";
import type { ArchiveText } from "./archive.ts";
import { baseName, counted, folderOf, imageBeside, imageName, stemOf } from "./labels.ts";
import { type Side, strictestSide } from "./split.ts";

const SIDE_OF_WORD: Readonly<Record<string, Side>> = {
  train: "train",
  training: "train",
  val: "val",
  valid: "val",
  validation: "val",
  test: "test",
  testing: "test",
};
const WORDS = Object.keys(SIDE_OF_WORD).join("|");
const FILLERS = "images?|imgs?|labels?|annotations?|set|data";
/** A folder of a side, such as `train`, `val2017`, `test_images` or `labels-train`. */
const FOLDER = new RegExp(
  `^(?:(?:${FILLERS})[_.-])?(${WORDS})(?:20\\d\\d)?(?:[_.-]?(?:${FILLERS}))?$`,
);

/** The side that a folder or a subset is called after, such as `Validation`; null for all else. */
export function sideNamed(name: string): Side | null {
  const word = FOLDER.exec(name.toLowerCase())?.[1];
  return word === undefined ? null : (SIDE_OF_WORD[word] ?? null);
}

/** The only one of several; null where there are none, or two. */
function onlyOne<One>(all: Iterable<One>): One | null {
  const [one, ...others] = new Set(all);
  return one !== undefined && others.length === 0 ? one : null;
}

/** Sides of the folders that an image lies in. */
const sidesOfPath = (image: string): Side[] =>
  folderOf(image)
    .split("/")
    .flatMap((folder) => sideNamed(folder) ?? []);

/** The side of the folders that an image lies in; null where they name none, or two. */
export const sideOfPath = (image: string): Side | null => onlyOne(sidesOfPath(image));

/** The side that a document's name has a word for, such as `instances_val2017.json`. */
export function sideOfDocument(file: string): Side | null {
  const words = baseName(file)
    .toLowerCase()
    .split(/[_.-]/)
    .map((word) => word.replace(/20\d\d$/, ""));
  return onlyOne(
    words.flatMap((word) => (Object.hasOwn(SIDE_OF_WORD, word) ? (SIDE_OF_WORD[word] ?? []) : [])),
  );
}

/** A list of the images of a side, such as Pascal VOC's ImageSets/Main/train.txt. */
const SIDE_LIST = new RegExp(`(^|/)(autosplit_)?(${WORDS})\\.txt$`, "i");
const YAML = /\.ya?ml$/i;

/**
 * The sides that an archive names for its images: lists come before data.yaml's folders, those
 * before what the labels name, and folders last. What is named otherwise elsewhere is noted.
 */
export function archiveSides(
  texts: readonly ArchiveText[],
  { images, sides = new Map() }: { images: readonly string[]; sides?: ReadonlyMap<string, Side> },
): { sides: Map<string, Side>; notes: string[] } {
  const paths = texts.filter(({ name }) => YAML.test(name)).flatMap(yamlPaths);
  const listed = listedSides(texts, images, paths);
  const folders = sideFolders(paths);
  const named = new Map<string, Side>();
  const count = { listed: listed.disputed.size, unclear: 0, overruled: 0 };
  for (const image of images) {
    const own = sidesOfPath(image);
    const side =
      listed.sides.get(image) ?? sideByFolders(image, folders) ?? sides.get(image) ?? onlyOne(own);
    if (side) named.set(image, side);
    else if (own.length > 0) count.unclear += 1;
    if (side && own.some((other) => other !== side)) count.overruled += 1;
  }
  const notes: [number, string][] = [
    [count.listed, "listed for two sides: on the more held-out one"],
    [count.unclear, "in folders of two sides: on none"],
    [
      count.overruled,
      "on another side than a folder's name: lists, data.yaml and labels come first",
    ],
  ];
  return {
    sides: named,
    notes: notes.flatMap(([number, text]) =>
      number > 0 ? [`${counted(number, "image")} ${text}`] : [],
    ),
  };
}

/** A path that a data.yaml names for a side, in the form of an image's. */
interface SidePath {
  path: string;
  side: Side;
}

/** The paths of a data.yaml: folders of images, or lists of them. */
function yamlPaths({ name, text }: ArchiveText): SidePath[] {
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
    return paths.flatMap((path) =>
      typeof path === "string" ? [{ path: pathBeside(name, path.trim()), side }] : [],
    );
  });
}

/** A list by its name; a folder with a slash at its end, empty where it tells no images apart. */
const pathBeside = (document: string, path: string): string =>
  /\.txt$/i.test(path)
    ? imageBeside(document, path)
    : // A file of any name stands for the images in the folder.
      folderOf(imageBeside(document, `${path}/any`));

/** Sides by image, and the images for which two sides are named. */
interface ListedSides {
  sides: Map<string, Side>;
  disputed: Set<string>;
}

/** Sides by the lists of an archive: a path, or a name without its extension, a line. */
function listedSides(
  texts: readonly ArchiveText[],
  images: readonly string[],
  paths: readonly SidePath[],
): ListedSides {
  const listed: ListedSides = { sides: new Map(), disputed: new Set() };
  const named = new Map(paths.map(({ path, side }) => [path, side]));
  const lists = texts.flatMap(({ name, text }) => {
    const side = named.get(imageName(name)) ?? (SIDE_LIST.test(name) ? sideOfDocument(name) : null);
    return side ? [{ side, text }] : [];
  });
  if (lists.length === 0) return listed;
  const find = imageIndex(images);
  for (const { side, text } of lists) {
    for (const line of text.split("\n")) {
      const image = line.trim() && find(imageName(line.trim()));
      if (!image) continue;
      const known = listed.sides.get(image) ?? side;
      if (known !== side) listed.disputed.add(image);
      listed.sides.set(image, strictestSide([known, side]));
    }
  }
  return listed;
}

/**
 * Images by the lines of a list: by their whole paths, by paths from further outside, and by names
 * without folders where one image alone is called so.
 */
function imageIndex(images: readonly string[]): (path: string) => string | null {
  /** Null: several images. */
  const byPath = new Map<string, string | null>();
  const byName = new Map<string, string | null>();
  const add = (index: typeof byPath, key: string, image: string) => {
    const other = index.get(key);
    index.set(key, other === undefined || other === image ? image : null);
  };
  const bare = (path: string) => folderOf(path) + withoutExtension(path);
  for (const image of images) {
    for (const path of new Set([image, bare(image)])) add(byPath, path, image);
    for (const name of new Set([baseName(image), stemOf(image)])) add(byName, name, image);
  }
  const byWhole = (path: string) => byPath.get(path) ?? byPath.get(bare(path));
  return (path) => {
    for (let rest = path; ; rest = rest.slice(rest.indexOf("/") + 1)) {
      const found = byWhole(rest);
      if (found) return found;
      if (!rest.includes("/")) break;
    }
    // A line with folders names the image in those, and none of its name elsewhere.
    return path.includes("/") ? null : (byName.get(path) ?? byName.get(stemOf(path)) ?? null);
  };
}

/** The folders of data.yaml with their side; null where it names two. */
function sideFolders(paths: readonly SidePath[]): Map<string, Side | null> {
  const folders = new Map<string, Side | null>();
  for (const { path, side } of paths) {
    if (!path.endsWith("/")) continue;
    folders.set(path, (folders.get(path) ?? side) === side ? side : null);
  }
  return folders;
}

/**
 * The side of the outermost folder around an image that data.yaml names, the longest of those that
 * begin there. A data.yaml may lie further inside or outside than its paths say.
 */
function sideByFolders(image: string, folders: ReadonlyMap<string, Side | null>): Side | null {
  if (folders.size === 0) return null;
  const parts = folderOf(image).split("/").slice(0, -1);
  for (let from = 0; from < parts.length; from++) {
    for (let to = parts.length; to > from; to--) {
      const side = folders.get(`${parts.slice(from, to).join("/")}/`);
      if (side !== undefined) return side;
    }
  }
  return null;
}
