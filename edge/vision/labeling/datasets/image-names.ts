// Which frame of a project an image's name stands for. A name that stands for several is refused,
// never guessed. Pure.

import { exportStem, exportSuffix } from "../../../../shared/wire/labeling.ts";
import { parseFrameId } from "../../../../shared/wire/vision.ts";
import { baseName, folderOf, imageName, stemOf } from "./labels.ts";

/** A video of a project, or a still, which has one frame. */
export interface ProjectVideo extends Record<string, unknown> {
  id: string;
  filename: string;
  frame_count: number;
  width: number;
  height: number;
}

/** A frame of a video, by its index. */
export interface VideoFrame {
  video: ProjectVideo;
  frame: number;
}

/** How a name was found to stand for a frame, the surest way first. */
const WAYS = [
  "frame id",
  "path",
  "name",
  "name elsewhere",
  "like",
  "like elsewhere",
  "uploaded name",
  "like uploaded name",
] as const;
/** What Label Studio puts before the name of each file that is uploaded to it. */
const UPLOAD_PREFIX = /(^|\/)[0-9a-f]{8}-(?=[^/]+$)/;
type Way = (typeof WAYS)[number];

/** What an image's name stands for: a frame, several (by some of their names), or none. */
export type FoundFrame = (VideoFrame & { sureness: number }) | { among: string[] } | null;

/** Whether a name stands for one frame. */
export const isFrame = (found: FoundFrame): found is VideoFrame & { sureness: number } =>
  found !== null && "video" in found;

const NAMED_MAX = 6;

/** The path, then what is left of it without its first folder, and so on. */
function suffixesOf(path: string): string[] {
  const suffixes = [path];
  for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) {
    suffixes.push(path.slice(at + 1));
  }
  return suffixes;
}

/** Videos by their paths, and by all that paths end with, their last part in a form of its own. */
class PathIndex {
  readonly #whole = new Map<string, ProjectVideo[]>();
  readonly #suffix = new Map<string, ProjectVideo[]>();

  constructor(videos: readonly ProjectVideo[], formsOf: (video: ProjectVideo) => string[]) {
    for (const video of videos) {
      const folder = folderOf(imageName(video.filename));
      for (const form of new Set(formsOf(video))) {
        add(this.#whole, folder + form, video);
        for (const suffix of suffixesOf(folder + form)) add(this.#suffix, suffix, video);
      }
    }
  }

  /** Those of just this path. */
  at = (path: string): readonly ProjectVideo[] => this.#whole.get(path) ?? [];

  /** Those whose path ends with this one; else those of the longest path that it ends with. */
  near(path: string): readonly ProjectVideo[] {
    const within = this.#suffix.get(path);
    if (within) return within;
    for (const suffix of suffixesOf(path).slice(1)) {
      const whole = this.#whole.get(suffix);
      if (whole) return whole;
    }
    return [];
  }

  /** Those of this file name, in whatever folders. */
  anywhere = (path: string): readonly ProjectVideo[] => this.#suffix.get(baseName(path)) ?? [];
}

function add(index: Map<string, ProjectVideo[]>, key: string, video: ProjectVideo) {
  const known = index.get(key);
  if (known) known.push(video);
  else index.set(key, [video]);
}

/**
 * What finds the frame that an image's name stands for: the frame that an export of ours names for
 * it; else the still of this path; else of this file name; else what an export of ours calls so
 * (`<video>_<six digits>`), or the only still called so but for its extension; else what the name
 * stands for without the eight hex digits that Label Studio puts before it. Folders that contradict
 * a name's are of account only where no others agree with it.
 */
export function frameFinder(
  videos: readonly ProjectVideo[],
): (name: string, frameId?: string) => FoundFrame {
  const byId = new Map(videos.map((video) => [video.id, video]));
  const stills = videos.filter(({ frame_count: count }) => count === 1);
  const names = new PathIndex(stills, ({ filename }) => [baseName(imageName(filename))]);
  const stems = new PathIndex(stills, ({ filename }) => [stemOf(imageName(filename))]);
  const exports = new PathIndex(videos, ({ id, filename }) => {
    const stem = exportStem(filename);
    return [stem, stem + exportSuffix(id)];
  });
  /** Stills of a stem, and frames that exports call so; `look` says how folders are taken. */
  const like = (name: string, look: "near" | "anywhere"): VideoFrame[] => {
    const folder = folderOf(name);
    const [, stem, digits] = /^(.+)_(\d{6,})$/s.exec(stemOf(name)) ?? [];
    const frame = Number(digits);
    const exported = stem === undefined ? [] : exports[look](folder + stem);
    const alike = [...stems[look](name), ...stems[look](folder + stemOf(name))];
    const found = [
      ...exported
        .filter(({ frame_count: count }) => frame < count)
        .map((video) => ({ video, frame })),
      ...alike.map((video) => ({ video, frame: 0 })),
    ];
    return [...new Map(found.map((one) => [`${one.video.id}.${one.frame}`, one])).values()];
  };
  const stillsOf = (those: readonly ProjectVideo[]) => those.map((video) => ({ video, frame: 0 }));
  const uploaded = (name: string): FoundFrame => {
    const own = name.replace(UPLOAD_PREFIX, "$1");
    if (own === name) return null;
    return (
      oneOf(stillsOf(names.anywhere(own)), "uploaded name") ??
      oneOf(like(own, "anywhere"), "like uploaded name")
    );
  };
  return (name, frameId) => {
    const told = frameId === undefined ? null : parseFrameId(frameId);
    const own = told && byId.get(told.videoId);
    if (own && told.index < own.frame_count) {
      return oneOf([{ video: own, frame: told.index }], "frame id");
    }
    return (
      oneOf(stillsOf(names.at(name)), "path") ??
      oneOf(stillsOf(names.near(name)), "name") ??
      oneOf(stillsOf(names.anywhere(name)), "name elsewhere") ??
      oneOf(like(name, "near"), "like") ??
      oneOf(like(name, "anywhere"), "like elsewhere") ??
      uploaded(name)
    );
  };
}

const surenessOf = (way: Way): number => WAYS.length - WAYS.indexOf(way);

/**
 * What finds a name's frame by two finders: the surer one's, and the first one's of both. What the
 * first one finds by its path or name is meant, unless the second one is told its frame's id.
 */
export const firstOf =
  (
    first: (name: string, frameId?: string) => FoundFrame,
    second: (name: string, frameId?: string) => FoundFrame,
  ) =>
  (name: string, frameId?: string): FoundFrame => {
    const found = first(name, frameId);
    if (found && !isFrame(found)) return found;
    const other = second(name, frameId);
    if (!found) return other;
    if (!other || !isFrame(other)) return found;
    const surenessMin =
      found.sureness >= surenessOf("name") ? surenessOf("frame id") : found.sureness + 1;
    return other.sureness >= surenessMin ? other : found;
  };

function oneOf(found: readonly VideoFrame[], way: Way): FoundFrame {
  const [first] = found;
  if (!first) return null;
  if (found.length === 1) return { ...first, sureness: surenessOf(way) };
  return { among: found.slice(0, NAMED_MAX).map(({ video }) => video.filename) };
}
