// A clip for the demo: the user's own, else real pedestrians out of a Debian package that is
// downloaded once and not installed, else one that is drawn here.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import sharp from "sharp";

/** A video for the demo. */
export interface Clip {
  path: string;
  /** Where it is from, for people. */
  origin: string;
  /** The box of an object on its first frame, where one is known. */
  example?: [x1: number, y1: number, x2: number, y2: number];
}

const PACKAGE = "opencv-doc";
const MEMBER = "./usr/share/doc/opencv-doc/examples/data/vtest.avi";
const SHA256 = "45cddc9490be69345cbdab64ca583be65987e864ca408038e648db99e10516cf";
const DOWNLOAD_MS = 5 * 60_000;

/** The clip to use; what is fetched or drawn stays in the folder. */
export async function demoClip(
  folder: string,
  given: string | undefined,
  say: (line: string) => void,
): Promise<Clip> {
  if (given !== undefined) {
    const path = resolve(given);
    if (!statSync(path, { throwIfNoEntry: false })?.isFile()) {
      throw new Error(`${path}: no such file`);
    }
    return { path, origin: "your own" };
  }
  mkdirSync(folder, { recursive: true });
  const real = join(folder, "vtest.avi");
  if (!existsSync(real)) {
    say(`Downloading the Debian package ${PACKAGE} for its clip (96 MB, once, not installed) …`);
    try {
      await fetchClip(folder, real);
    } catch (thrown) {
      say(`It could not be had (${(thrown as Error).message}); drawing a clip instead.`);
      return drawClip(join(folder, "drawn.mp4"));
    }
  }
  const origin = `vtest.avi of Debian's ${PACKAGE} package: real pedestrians, 768×576`;
  return { path: real, origin };
}

async function fetchClip(folder: string, to: string) {
  const work = mkdtempSync(join(folder, "download-"));
  try {
    await command("apt-get", ["download", PACKAGE], { cwd: work });
    const archive = readdirSync(work).find((name) => name.endsWith(".deb"));
    if (!archive) throw new Error("apt-get downloaded nothing");
    const tar = await command("dpkg-deb", ["--fsys-tarfile", archive], { cwd: work });
    const clip = await command("tar", ["-xO", MEMBER], { cwd: work, input: tar });
    const digest = createHash("sha256").update(clip).digest("hex");
    if (digest !== SHA256) throw new Error("the package holds another clip than expected");
    await writeFile(join(work, "clip"), clip);
    renameSync(join(work, "clip"), to);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** Runs a program to its end; returns what it wrote. */
function command(
  program: string,
  args: readonly string[],
  { cwd, input }: { cwd: string; input?: Buffer },
): Promise<Buffer> {
  return new Promise((done, fail) => {
    const child = spawn(program, args, { cwd, timeout: DOWNLOAD_MS });
    const output: Buffer[] = [];
    let problem = "";
    child.stdout.on("data", (chunk: Buffer) => output.push(chunk));
    child.stderr.on("data", (chunk: Buffer) => {
      problem = String(chunk).trim().split("\n").at(-1) ?? "";
    });
    child.on("error", fail);
    child.stdin.on("error", () => {});
    child.stdin.end(input);
    child.on("close", (code) => {
      if (code === 0) done(Buffer.concat(output));
      else fail(new Error(`${program} ended with ${code}: ${problem}`));
    });
  });
}

const WIDTH = 640;
const HEIGHT = 360;
const FRAMES = 60;

/** Discs and squares that wander over a plain ground: two seconds of 30 frames each. */
async function drawClip(path: string): Promise<Clip> {
  const origin = "drawn by the demo itself: discs and squares, nothing real";
  const clip: Clip = { path, origin, example: EXAMPLE };
  if (existsSync(path)) return clip;
  const frames: Buffer[] = [];
  for (let frame = 0; frame < FRAMES; frame++) {
    frames.push(
      await sharp(Buffer.from(frameSvg(frame)))
        .removeAlpha()
        .raw()
        .toBuffer(),
    );
  }
  const size = `${WIDTH}x${HEIGHT}`;
  const raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", "30", "-i", "pipe:0"];
  const encoded = ["-c:v", "mpeg4", "-q:v", "2", "-movflags", "+faststart", `${path}.new.mp4`];
  await command("ffmpeg", ["-nostdin", "-v", "error", "-y", ...raw, ...encoded], {
    cwd: join(path, ".."),
    input: Buffer.concat(frames),
  });
  renameSync(`${path}.new.mp4`, path);
  return clip;
}

/** The first disc on the first frame. */
const EXAMPLE: NonNullable<Clip["example"]> = [294, 275, 346, 327];

/** The drawn clip's frame of this index, as SVG. */
function frameSvg(frame: number): string {
  const at = (phase: number, span: number) =>
    Math.round((Math.sin(frame / 20 + phase) * 0.4 + 0.5) * span);
  const discs = [0, 1, 2, 3].map(
    (one) =>
      `<circle cx="${at(one * 1.7, WIDTH)}" cy="${at(one * 2.3 + 1, HEIGHT)}" r="26" ` +
      `fill="rgb(${200 - one * 8},${60 + one * 6},40)"/>`,
  );
  const squares = [0, 1].map(
    (one) =>
      `<rect x="${at(one * 2.9 + 2, WIDTH - 60)}" y="${at(one * 1.1 + 3, HEIGHT - 60)}" width="48" ` +
      `height="48" fill="rgb(40,90,${180 + one * 20})"/>`,
  );
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}">` +
    `<rect width="100%" height="100%" fill="#b8b4a8"/>${[...discs, ...squares].join("")}</svg>`
  );
}
