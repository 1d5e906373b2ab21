// A video as a player shows it: its frames with their times and pixels, decoded by ffmpeg.

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { expect } from "vitest";
import { clipPath, TOOLS } from "./clips.ts";

export interface ShownVideo {
  width: number;
  height: number;
  /** Seconds of each frame. */
  times: number[];
  /** Red, green and blue of a pixel. */
  at(frame: number, x: number, y: number): number[];
}

/** Decodes a file, which has no other stream than one of images. */
export function shownVideo(file: Uint8Array): ShownVideo {
  const path = clipPath("shown.mp4");
  writeFileSync(path, file);
  const ffprobe = TOOLS?.ffprobe ?? "ffprobe";
  const shown = ["-show_entries", "stream=codec_type,width,height:frame=pts_time", "-of", "json"];
  const { streams, frames } = JSON.parse(
    execFileSync(ffprobe, ["-v", "error", ...shown, path]).toString(),
  );
  expect(streams).toMatchObject([{ codec_type: "video" }]);
  const [{ width, height }] = streams;
  const pixels = execFileSync(
    TOOLS?.ffmpeg ?? "ffmpeg",
    [
      ...["-v", "quiet", "-i", path, "-fps_mode", "passthrough"],
      ...["-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"],
    ],
    { maxBuffer: 1024 ** 3 },
  );
  expect(pixels.length).toBe(frames.length * width * height * 3);
  return {
    width,
    height,
    times: frames.map((frame: { pts_time: string }) => Number(frame.pts_time)),
    at: (frame, x, y) => {
      const from = ((frame * height + y) * width + x) * 3;
      return [...pixels.subarray(from, from + 3)];
    },
  };
}

/** The greatest difference of a channel of two colours. */
export const distance = (one: readonly number[], other: readonly number[]): number =>
  Math.max(...one.map((value, channel) => Math.abs(value - (other[channel] ?? 0))));
