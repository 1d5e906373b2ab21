// Which frame of a project an image's name stands for. A name that stands for several is refused,
// never guessed. Pure.

import { exportStem, exportSuffix } from "../../../../shared/wire/labeling.ts";
import { parseFrameId } from "../../../../shared/wire/vision.ts";
import { baseName, imageName, stemOf } from "./labels.ts";

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

/** What an image's name stands for: a frame, several (by their files' names), or none. */
export type FoundFrame = VideoFrame | { among: string[] } | null;

/** Whether a name stands for one frame. */
export const isFrame = (found: FoundFrame): found is VideoFrame =>
  found !== null && "video" in found;

type Index = ReadonlyMap<string, readonly ProjectVideo[]>;

/** Videos by the names that each has; a name may be of several. */
function indexBy(
  videos: readonly ProjectVideo[],
  namesOf: (video: ProjectVideo) => readonly string[],
): Index {
  const index = new Map<string, ProjectVideo[]>();
  for (const video of videos) {
    for (const name of new Set(namesOf(video))) {
      const same = index.get(name);
      if (same) same.push(video);
      else index.set(name, [video]);
    }
  }
  return index;
}

/** How many folders two paths share, counted from their ends. */
function sharedFolders(one: string, other: string): number {
  const [left, right] = [one.split("/").reverse(), other.split("/").reverse()];
  let shared = 1;
  while (shared < left.length && left[shared] === right[shared]) shared += 1;
  return shared - 1;
}

/** The one of these videos whose folders are most like those of a name, or all that are as like. */
function nearest(videos: readonly ProjectVideo[], name: string): readonly ProjectVideo[] {
  if (videos.length < 2) return videos;
  const shared = videos.map(({ filename }) => sharedFolders(imageName(filename), name));
  const max = Math.max(...shared);
  return videos.filter((_, index) => shared[index] === max);
}

/**
 * What finds the frame that an image's name stands for: the frame that an export of ours names for
 * it; else the still of this path or, where it alone has it, of this file name; else what an export
 * of ours calls so (`<video>_<six digits>`), or the only still called so but for its extension.
 */
export function frameFinder(
  videos: readonly ProjectVideo[],
): (name: string, frameId?: string) => FoundFrame {
  const byId = new Map(videos.map((video) => [video.id, video]));
  const stills = videos.filter(({ frame_count: count }) => count === 1);
  const byName = indexBy(stills, ({ filename }) => [baseName(imageName(filename))]);
  const byStem = indexBy(stills, ({ filename }) => [stemOf(imageName(filename))]);
  const byExport = indexBy(videos, ({ id, filename }) => {
    const stem = exportStem(filename);
    return [stem, stem + exportSuffix(id)];
  });
  const exported = (name: string): VideoFrame[] => {
    const [, stem = "", digits] = /^(.+)_(\d{6,})$/s.exec(stemOf(name)) ?? [];
    const frame = Number(digits);
    const found = (byExport.get(stem) ?? []).filter(({ frame_count: count }) => frame < count);
    return found.map((video) => ({ video, frame }));
  };
  return (name, frameId) => {
    const told = frameId === undefined ? null : parseFrameId(frameId);
    const own = told && byId.get(told.videoId);
    if (own && told.index < own.frame_count) return { video: own, frame: told.index };
    const still = (video: ProjectVideo): VideoFrame => ({ video, frame: 0 });
    const named = nearest(byName.get(baseName(name)) ?? [], name);
    if (named.length > 0) return oneOf(named.map(still));
    const alike = nearest(byStem.get(stemOf(name)) ?? [], name);
    return oneOf([...exported(name), ...alike.map(still)]);
  };
}

function oneOf(found: readonly VideoFrame[]): FoundFrame {
  const [first] = found;
  if (found.length < 2) return first ?? null;
  return { among: found.map(({ video }) => video.filename) };
}
