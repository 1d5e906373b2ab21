// Clips that ffmpeg draws for the tests, each once a run.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findTools, type Tools } from "../../gpu-node/media/ffmpeg.ts";

export const TOOLS: Tools | null = await findTools(process.env.PATH ?? "", 2);

/** Tests that decode skip loudly without ffmpeg. */
export function toolsOrSay(): Tools | null {
  if (!TOOLS) process.stderr.write("SKIPPED: no ffmpeg here (apt-get install ffmpeg)\n");
  return TOOLS;
}

const folder = mkdtempSync(join(tmpdir(), "vantage-clips-"));
const remove = () => rmSync(folder, { recursive: true, force: true });
// Vitest ends its processes without an exit; a benchmark ends by one.
if (process.env.VITEST) (await import("vitest")).afterAll(remove);
else process.on("exit", remove);

/** A file of these ffmpeg arguments; it goes with the process. */
export function clip(name: string, ...args: readonly string[]): string {
  const path = join(folder, name);
  if (!existsSync(path)) {
    execFileSync(TOOLS?.ffmpeg ?? "ffmpeg", ["-v", "error", "-nostdin", "-y", ...args, path]);
  }
  return path;
}

/** Where a file of the test's own goes. */
export const clipPath = (name: string): string => join(folder, name);

const PATTERN = "testsrc2=s=320x180";
const X264 = ["-c:v", "libx264", "-pix_fmt", "yuv420p"];

/** 29.97 frames a second, B-frames, one key frame in 250. */
export const longGop = (seconds = 12) =>
  clip(
    `gop-${seconds}.mp4`,
    ...["-f", "lavfi", "-i", `${PATTERN}:r=30000/1001:d=${seconds}`, ...X264, "-bf", "3"],
    ...["-g", "250"],
  );

/** Frames at uneven times. */
export const variableRate = () =>
  clip(
    "vfr.mp4",
    ...[
      "-f",
      "lavfi",
      "-i",
      `${PATTERN}:r=25:d=4`,
      "-vf",
      "settb=1/90000,setpts='PTS+mod(N,5)*0.006/TB'",
    ],
    ...["-fps_mode", "vfr", ...X264, "-bf", "2", "-g", "30", "-video_track_timescale", "90000"],
    ...["-enc_time_base", "1:90000"],
  );

/** A red rectangle that moves right by 2 pixels a frame, and a green one that stands. */
export const rectangles = (seconds = 2) =>
  clip(
    `rectangles-${seconds}.mp4`,
    ...["-f", "lavfi", "-i", `color=c=black:s=160x120:r=10:d=${seconds}`],
    ...["-f", "lavfi", "-i", "color=c=red:s=30x20:r=10"],
    ...["-f", "lavfi", "-i", "color=c=0x00ff00:s=20x20:r=10", "-filter_complex"],
    "[0][1]overlay=x='10+2*n':y=20:shortest=1[a];[a][2]overlay=x=60:y=70:shortest=1",
    ...[...X264, "-crf", "10"],
  );
