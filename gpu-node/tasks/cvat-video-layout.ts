// The layout "CVAT for video 1.1": a folder for each video with annotations.xml, as CVAT's task of
// that video takes it, and images/frame_<six digits>. Frames have their index in the video. CVAT
// draws a track between its shapes on a line, and keeps it until it is `outside`: so it is on the
// next frame of the dataset on which the job has no shape of it.

import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import { type ExportedTrack, tracksOf } from "./export-tracks.ts";
import {
  type Annotation,
  type ExportedImage,
  type Layout,
  outlineOf,
  pixels,
  ringOf,
  xmlText,
} from "./layout.ts";

/** A video's images so far, in the order of their indices. */
type Images = ExportedImage[];

/** Where a shape of a track stands, and whether the track is outside from there on. */
interface TrackPoint {
  frame: number;
  isOutside: boolean;
  shape: Annotation;
}

/** What the points of a track depend on besides. */
interface VideoFrames {
  /** The next frame of the dataset after each. */
  next: ReadonlyMap<number, number>;
  frameCount: number;
}

/**
 * The points of a track: each of its shapes, and the first frame without one after it. Annotations
 * without a track end on the next frame of the video, as CVAT writes them.
 */
function pointsOf(
  { shapes, isTracked }: ExportedTrack,
  { next, frameCount }: VideoFrames,
): TrackPoint[] {
  return [...shapes].flatMap(([frame, shape]) => {
    const point = { frame, isOutside: false, shape };
    const end = (isTracked ? next.get(frame) : undefined) ?? frame + 1;
    if (shapes.has(end) || end >= frameCount) return [point];
    return [point, { frame: end, isOutside: true, shape }];
  });
}

function pointXml({ frame, isOutside, shape }: TrackPoint, isPolygon: boolean): string {
  const head = `frame="${frame}" keyframe="1" outside="${Number(isOutside)}" occluded="0"`;
  if (!isPolygon) {
    const [x1, y1, x2, y2] = shape.bbox.map(pixels);
    const corners = `xtl="${x1}" ytl="${y1}" xbr="${x2}" ybr="${y2}"`;
    return `    <box ${head} ${corners} z_order="0"></box>`;
  }
  const ring = (outlineOf(shape, { rectangles: true }) ?? []).map(pixels);
  const points = ring.flatMap((x, at) => (at % 2 === 0 ? [`${x},${ring[at + 1]}`] : []));
  return `    <polygon ${head} points="${points.join(";")}" z_order="0"></polygon>`;
}

function trackXml(track: ExportedTrack, frames: VideoFrames, classes: readonly string[]) {
  // A track is of one kind of shape: beside masks a box is its rectangle.
  const isPolygon = [...track.shapes.values()].some(ringOf);
  return [
    `  <track id="${track.id}" label="${xmlText(classes[track.classIndex] ?? "")}" source="manual">`,
    ...pointsOf(track, frames).map((point) => pointXml(point, isPolygon)),
    "  </track>",
  ];
}

function documentOf(images: Images, classes: readonly string[]): string {
  const [first] = images;
  if (!first) return "";
  const { sequence, width, height } = first;
  const next = new Map(images.map(({ index }, at) => [index, images[at + 1]?.index ?? index + 1]));
  const frames = { next, frameCount: sequence.frameCount };
  const labels = classes.map(
    (name) => `<label><name>${xmlText(name)}</name><attributes></attributes></label>`,
  );
  const task = [
    `<name>${xmlText(sequence.filename)}</name>`,
    `<size>${sequence.frameCount}</size>`,
    "<mode>interpolation</mode>",
    "<overlap>0</overlap>",
    "<start_frame>0</start_frame>",
    `<stop_frame>${sequence.frameCount - 1}</stop_frame>`,
    "<frame_filter></frame_filter>",
    `<labels>${labels.join("")}</labels>`,
    `<original_size><width>${width}</width><height>${height}</height></original_size>`,
    `<source>${xmlText(sequence.filename)}</source>`,
  ];
  return [
    '<?xml version="1.0" encoding="utf-8"?>',
    "<annotations>",
    "  <version>1.1</version>",
    `  <meta><task>${task.join("")}</task></meta>`,
    ...tracksOf(images).flatMap((track) => trackXml(track, frames, classes)),
    "</annotations>",
    "",
  ].join("\n");
}

/** The layout of CVAT's videos. A video's labels are held in memory until the end. */
export function cvatVideoLayout({ classes }: ExportManifest): Layout {
  const videos = new Map<string, Images>();
  return {
    imagePath: ({ name, sequence, index }) => {
      const extension = name.slice(name.lastIndexOf("."));
      return `${sequence.name}/images/frame_${String(index).padStart(6, "0")}${extension}`;
    },
    add: async (image) => {
      const images = videos.get(image.sequence.name);
      if (images) images.push(image);
      else videos.set(image.sequence.name, [image]);
    },
    end: async (zip) => {
      for (const [name, images] of videos)
        await zip.add(`${name}/annotations.xml`, documentOf(images, classes));
    },
  };
}
