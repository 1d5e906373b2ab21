// The lists in which our exports name the frame of each image: an import knows the images again by
// them, whatever the files are called.

import type { ArchiveText } from "./archive.ts";
import { imageBeside, imageName, stemOf } from "./labels.ts";

/** Where an export lists its images with their frames. */
export const FRAME_LIST = /(^|\/)frames\.csv$/i;

/** A list of images with their frames, `image,frame_id` a line. */
interface FrameList {
  /** Where it lies. */
  folder: string;
  /** Frames by the path of their image, without its extension: as it is, and without a split. */
  byPath: Map<string, string>;
  byPathInSplit: Map<string, string>;
  /** Frames by the file name alone; null where several have it. */
  byStem: Map<string, string | null>;
}

const withoutSuffix = (path: string) => path.replace(/\.[^./]*$/, "");

/** The lists of an archive. */
export class FrameLists {
  readonly #lists: readonly FrameList[];
  /** Images by what comes before the digits at the end of their paths. */
  #numbered: Map<string, Map<number, string>> | null = null;

  constructor(texts: readonly ArchiveText[]) {
    this.#lists = texts
      .filter(({ name: file }) => FRAME_LIST.test(file))
      .map(({ name: file, text }) => frameList(imageBeside(file, ""), text))
      // The nearest list comes first.
      .toSorted((one, other) => other.folder.length - one.folder.length);
  }

  /**
   * Frames of images: by the path, or where the images were moved, by a file name that is the only
   * one. Labels that are texts lie in folders by split, as images do, and have no extension.
   */
  named(
    images: readonly string[],
    { hasExtension }: { hasExtension: boolean },
  ): [string, string][] {
    return images.flatMap((image): [string, string][] => {
      const list = this.#lists.find(({ folder }) => image.startsWith(folder));
      const own = list ? image.slice(list.folder.length) : image;
      const frameId =
        (hasExtension ? list?.byPathInSplit.get(withoutSuffix(own)) : list?.byPath.get(own)) ??
        list?.byStem.get(stemOf(own));
      return frameId ? [[image, frameId]] : [];
    });
  }

  /** Images that are called by a number after this path, by their numbers, in ascending order. */
  numbered(path: string): Map<number, string> {
    this.#numbered ??= this.#byNumber();
    const images = this.#numbered.get(path) ?? [];
    return new Map([...images].toSorted(([one], [other]) => one - other));
  }

  #byNumber(): Map<string, Map<number, string>> {
    const all = new Map<string, Map<number, string>>();
    for (const { folder, byPath } of this.#lists) {
      for (const own of byPath.keys()) {
        const [image, path = "", digits] = /^(.*\D)?(\d{6,})$/s.exec(folder + own) ?? [];
        if (image === undefined) continue;
        const known = all.get(path);
        if (known) known.set(Number(digits), image);
        else all.set(path, new Map([[Number(digits), image]]));
      }
    }
    return all;
  }
}

function frameList(folder: string, text: string): FrameList {
  const byPath = new Map<string, string>();
  const byPathInSplit = new Map<string, string>();
  const byStem = new Map<string, string | null>();
  for (const line of text.split("\n")) {
    const comma = line.lastIndexOf(",");
    const path = line.slice(0, Math.max(comma, 0));
    const frameId = line.slice(comma + 1).trim();
    byPath.set(withoutSuffix(imageName(path)), frameId);
    const inSplit = path.replace(/^images\/(train|val|test)\//, "");
    byPathInSplit.set(withoutSuffix(imageName(inSplit)), frameId);
    const stem = stemOf(imageName(path));
    byStem.set(stem, byStem.has(stem) ? null : frameId);
  }
  return { folder, byPath, byPathInSplit, byStem };
}
