// What the images of an exported dataset are called: safe in any archive reader, and no two of them
// alike where case does not count.

import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import type { ExportNames } from "../../shared/tasks/tasks.ts";
import { exportStem, exportSuffix, withoutExtension } from "../../shared/wire/labeling.ts";

type NamedVideo = Pick<ExportManifest["videos"][number], "filename" | "video_id" | "still">;

/** Gives the name of a video's frame, without an extension, by its index. */
export type NameOf = (index: number) => string;

/**
 * The names of each video's frames. Those that are alike all carry what tells their videos apart,
 * and an import knows them again by that.
 */
export function imageNames(videos: readonly NamedVideo[], names: ExportNames): NameOf[] {
  const isPath = ({ still }: NamedVideo) => names === "original" && still === true;
  const clips = videos.filter((video) => !isPath(video));
  const stems = uniqueStems(clips);
  const stemOf = new Map(clips.map((video, index) => [video, stems[index] ?? ""]));
  const paths = uniquePaths(videos.filter(isPath), stems);
  return videos.map((video) => {
    const path = paths.get(video);
    const stem = stemOf.get(video);
    return path === undefined ? (index) => `${stem}_${String(index).padStart(6, "0")}` : () => path;
  });
}

/** Stems of the names of frames; `imageNames` puts their indices behind them. */
export function uniqueStems(videos: readonly NamedVideo[]): string[] {
  const alike = Map.groupBy(videos, ({ filename }) => exportStem(filename).toLowerCase());
  const taken = new Set<string>();
  return videos.map(({ filename, video_id }) => {
    const stem = exportStem(filename);
    const isAlone = alike.get(stem.toLowerCase())?.length === 1;
    return firstFree(isAlone ? stem : `${stem}${exportSuffix(video_id)}`, (name) => {
      const isFree = !taken.has(name.toLowerCase());
      if (isFree) taken.add(name.toLowerCase());
      return isFree;
    });
  });
}

/** The paths of stills as they came, which are no names of frames of these stems. */
function uniquePaths(
  stills: readonly NamedVideo[],
  stems: readonly string[],
): Map<NamedVideo, string> {
  const wanted = stills.map(({ filename }) => safePath(filename));
  const alike = Map.groupBy(wanted, (path) => path.toLowerCase());
  const taken = new Set<string>();
  const ofFrames = new Set(stems.map((stem) => stem.toLowerCase()));
  const isOfFrames = (path: string) => {
    const [, stem] = /^(.*)_\d{6,}$/s.exec(path) ?? [];
    return stem !== undefined && ofFrames.has(stem);
  };
  return new Map(
    stills.map((video, index): [NamedVideo, string] => {
      const path = wanted[index] ?? "";
      const key = path.toLowerCase();
      const isAlone = alike.get(key)?.length === 1 && !isOfFrames(key);
      const unique = firstFree(
        isAlone ? path : `${path}${exportSuffix(video.video_id)}`,
        (name) => {
          const isFree = !taken.has(name.toLowerCase()) && !isOfFrames(name.toLowerCase());
          if (isFree) taken.add(name.toLowerCase());
          return isFree;
        },
      );
      return [video, unique];
    }),
  );
}

/** The name, or the first of it with a number behind it that is free. */
function firstFree(wanted: string, take: (name: string) => boolean): string {
  let name = wanted;
  for (let count = 2; !take(name); count++) name = `${wanted}-${count}`;
  return name;
}

/** Bytes of a folder's or file's name: file systems have 255, extensions and suffixes included. */
const PART_BYTES_MAX = 200;
/** What Windows does not take in names, and what ends a line of a list or begins a path. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
const UNSAFE = /[\x00-\x1f\x7f<>:"|?*\\]/g;
const RESERVED = /^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i;
/** Folders that readers of YOLO take for theirs, wherever they stand in a path. */
const OF_FORMATS = /^(images|labels)$/i;

/** A file's path without its extension, each part of it a safe name. */
function safePath(filename: string): string {
  const parts = filename.normalize("NFC").split(/[/\\]/);
  const name = withoutExtension(parts.pop() ?? "");
  const folders = parts.filter((part) => !/^\.{0,2}$/.test(part)).map(safeFolder);
  return [...folders, safePart(name) || "image"].join("/");
}

function safePart(part: string): string {
  const plain = part.replace(UNSAFE, "_").replace(/^[\s.]+|[\s.]+$/g, "");
  let short = plain;
  while (Buffer.byteLength(short) > PART_BYTES_MAX) short = [...short].slice(0, -1).join("");
  return RESERVED.test(short) ? `_${short}` : short;
}

/** A folder is never called as a file is: one of them may be beside it. */
function safeFolder(part: string): string {
  const safe = safePart(part) || "_";
  if (OF_FORMATS.test(safe)) return `_${safe}`;
  const isFile = withoutExtension(safe) !== safe || /\.(txt|xml|json)$/i.test(safe);
  return isFile ? safe.replaceAll(".", "_") : safe;
}

/** Extensions that tell the kind of a file to the readers of datasets, by the one it gets else. */
const EXTENSIONS: Record<string, RegExp> = {
  ".jpg": /\.jpe?g$/i,
  ".png": /\.png$/i,
  ".webp": /\.webp$/i,
  ".tif": /\.tiff?$/i,
};

/** The extension of a still's file: its own, where that says what the file is. */
export const extensionOf = (
  { filename }: NamedVideo,
  { names, kind }: { names: ExportNames; kind: string },
): string => (names === "original" ? (EXTENSIONS[kind]?.exec(filename)?.[0] ?? kind) : kind);
