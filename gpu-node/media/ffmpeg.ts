// Runs ffmpeg and ffprobe over files of strangers: only the file itself may be read, only known
// containers and decoders are opened, no network exists, and memory, time and output are bounded.
// What may be in the file is media.ts's concern.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { accessSync, constants, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { promisify } from "node:util";
import { scrub } from "../base/log.ts";

/** What was found on this machine. It crosses to child processes as JSON. */
export interface Tools {
  ffmpeg: string;
  ffprobe: string;
  /** Such as `5.1.9-0+deb12u1`. */
  version: string;
  /** Programs that wrap each run, with their arguments, outermost first. */
  wrap: string[];
  path: string;
  threads: number;
}

export type Demuxer = "mov" | "matroska" | "avi";

/** Address space of one run; no image that is taken needs more. */
const MEMORY_BYTES_MAX = 6 * 1024 ** 3;
export const PIXELS_MAX = 8192 * 8192;
/** No run is idle for longer. */
const STALL_MS_MAX = 60_000;
const STDERR_LINES_MAX = 40;
const LINE_LENGTH_MAX = 2_000;
/** Video codecs that are decoded; no audio is. */
export const CODECS = [
  ...["h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mpeg1video", "mpeg2video", "h263", "mjpeg"],
  ...["msmpeg4v2", "msmpeg4v3", "prores", "dnxhd", "ffv1", "rawvideo", "huffyuv", "utvideo", "png"],
];
/** Decoders whose names are not their codec's. */
const DECODERS = [...CODECS, "libdav1d", "libaom-av1", "msmpeg4"];

function findProgram(name: string, path: string): string | null {
  for (const folder of path.split(delimiter)) {
    const program = join(folder, name);
    try {
      accessSync(program, constants.X_OK);
      return program;
    } catch {
      // Not in this folder.
    }
  }
  return null;
}

/** How long a program may take to start, milliseconds: on a busy machine it is tried again. */
const START_MS = [5_000, 20_000, 60_000];

/** What a program prints; null where it fails, and where it does not end in any of the times. */
async function printedBy(
  program: string,
  args: readonly string[],
  startMs: readonly number[],
): Promise<string | null> {
  for (const timeout of startMs) {
    try {
      const options = { timeout, killSignal: "SIGKILL" } as const;
      return (await promisify(execFile)(program, args, options)).stdout;
    } catch (thrown) {
      if (!(thrown as { killed?: boolean }).killed) return null;
    }
  }
  return null;
}

/**
 * What wraps a run: a network namespace without a network, an end with its parent, and limits; each
 * where the machine has it and allows it. In this order, since entering a namespace forgets the
 * parent.
 */
async function findWrappers(path: string, startMs: readonly number[]): Promise<string[]> {
  const wrap: string[] = [];
  const works = async (program: string, args: readonly string[]) =>
    (await printedBy(program, args, startMs)) !== null;
  const [unshare, setpriv, prlimit] = ["unshare", "setpriv", "prlimit"].map((name) =>
    findProgram(name, path),
  );
  if (unshare && (await works(unshare, ["--net", "true"]))) wrap.push(unshare, "--net");
  const atEnd = ["--pdeathsig=KILL", "--no-new-privs"];
  if (setpriv && (await works(setpriv, [...atEnd, "true"]))) wrap.push(setpriv, ...atEnd);
  const limits = [`--as=${MEMORY_BYTES_MAX}`, "--core=0", "--nofile=256"];
  if (prlimit && (await works(prlimit, [...limits, "true"]))) wrap.push(prlimit, ...limits);
  return wrap;
}

/** ffmpeg and ffprobe of 5.1 or newer on the path, or null. Tests give other times. */
export async function findTools(
  path: string,
  threads: number,
  startMs: readonly number[] = START_MS,
): Promise<Tools | null> {
  const ffmpeg = findProgram("ffmpeg", path);
  const ffprobe = findProgram("ffprobe", path);
  if (!ffmpeg || !ffprobe) return null;
  const text = await printedBy(ffmpeg, ["-version"], startMs);
  const [, version, major = "0", minor = "0"] =
    /^ffmpeg version n?((\d+)\.(\d+)\S*)/.exec(text ?? "") ?? [];
  if (!version || Number(major) * 100 + Number(minor) < 501) return null;
  const wrap = await findWrappers(path, startMs);
  return { ffmpeg, ffprobe, version, wrap, path, threads: Math.min(4, Math.max(1, threads)) };
}

/** Options before an input that keep a stranger's file from reaching anything but itself. */
export const containerLimits = (demuxer: Demuxer): string[] => [
  ...["-protocol_whitelist", "file,pipe", "-format_whitelist", "mov,matroska,avi"],
  ...["-max_streams", "64", "-f", demuxer],
];

/** The same for decoding. ffprobe refuses files whose audio it may not open, so it goes without. */
export const inputLimits = (tools: Tools, demuxer: Demuxer, pixelsMax: number): string[] => [
  ...containerLimits(demuxer),
  ...["-codec_whitelist", DECODERS.join(","), "-max_pixels", String(pixelsMax)],
  ...["-threads", String(tools.threads)],
];

export interface Run {
  stdout: Readable;
  /** Null unless it is fed. */
  stdin: Writable | null;
  /** The last lines it said that were not taken by `onLine`. */
  said(): string[];
  /** Resolves at its end: null when it ended well, else why not. */
  ended: Promise<string | null>;
  /** Ends it now; resolves when it is gone. */
  stop(): Promise<void>;
}

export interface RunOptions {
  signal?: AbortSignal | undefined;
  wallSeconds: number;
  /** Shorter, for tests. */
  stallMs?: number;
  /** It reads what the caller writes to its standard input. */
  isFed?: boolean;
  /** Takes lines of the standard error; false leaves one to `said`. */
  onLine?: (line: string) => boolean;
}

/** Starts one of the programs. Its output must be read, or it is taken for stalled. */
export function start(
  tools: Tools,
  program: "ffmpeg" | "ffprobe",
  args: readonly string[],
  options: RunOptions,
): Run {
  const [command = "", ...wrapped] = [...tools.wrap, tools[program], ...args];
  const child = spawn(command, wrapped, {
    stdio: [options.isFed ? "pipe" : "ignore", "pipe", "pipe"],
    env: { PATH: tools.path, LC_ALL: "C", MALLOC_ARENA_MAX: "2" },
  });
  const said: string[] = [];
  const { stdin, stdout, stderr } = child;
  if (!stdout || !stderr) throw new Error("the program has no output");
  eachLine(stderr, (line) => {
    if (options.onLine?.(line)) return;
    said.push(scrub(line));
    if (said.length > STDERR_LINES_MAX) said.shift();
  });
  let reason: string | null = null;
  const end = (why: string) => {
    reason ??= why;
    child.kill("SIGKILL");
  };
  const { stallMs = STALL_MS_MAX } = options;
  const stalled = () => end(`it made no progress for ${stallMs / 1_000} s`);
  const watch = watchStall(child, stallMs, stalled);
  const wall = setTimeout(
    () => end(`it took longer than ${options.wallSeconds} s`),
    options.wallSeconds * 1_000,
  );
  const abort = () => end("it was cancelled");
  if (options.signal?.aborted) abort();
  options.signal?.addEventListener("abort", abort);
  const ended = new Promise<string | null>((resolve) => {
    const finish = (why: string | null) => {
      clearTimeout(wall);
      clearInterval(watch);
      options.signal?.removeEventListener("abort", abort);
      resolve(reason ?? why);
    };
    child.once("error", (error) => finish(error.message));
    child.once("close", (code, signal) => {
      if (code === 0) finish(null);
      else finish(signal ? `it was ended by ${signal}` : `exit status ${code}`);
    });
  });
  const stop = async () => {
    end("it was stopped");
    stdin?.destroy();
    stdout.destroy();
    await ended;
  };
  return { stdout, stdin, said: () => said, ended, stop };
}

/**
 * Calls when the program neither said nor read anything for too long while its reader wanted more,
 * and while it had something to read. On the way to a late frame it reads and decodes for minutes
 * without a word.
 */
function watchStall(child: ChildProcess, stallMs: number, onStall: () => void): NodeJS.Timeout {
  let seen = -1;
  let still = 0;
  const interval = stallMs / 12;
  let lines = 0;
  child.stderr?.on("data", () => {
    lines += 1;
  });
  const timer = setInterval(() => {
    const { stdin, stdout } = child;
    // Bytes that wait here mean that the reader is slow, not the program; none mean that it is the
    // one who feeds it.
    const isHungry = stdin !== null && !stdin.writableEnded && stdin.writableLength === 0;
    const waiting = isHungry || (stdout !== null && stdout.readableLength > 0);
    const now = lines + readSoFar(stdout) + bytesReadBy(child.pid);
    still = now === seen && !waiting ? still + interval : 0;
    seen = now;
    if (still >= stallMs) onStall();
  }, interval);
  timer.unref();
  return timer;
}

/** What a process has read so far, by the kernel's account; 0 where that is not told. */
function bytesReadBy(pid: number | undefined): number {
  try {
    const [, bytes] = /^rchar: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, "latin1")) ?? [];
    return Number(bytes ?? 0);
  } catch {
    return 0;
  }
}

const read = new WeakMap<Readable, number>();

/** Counts what a reader took; whoever reads a run's output calls it for each chunk. */
export function countRead(stream: Readable, bytes: number) {
  read.set(stream, (read.get(stream) ?? 0) + bytes);
}

const readSoFar = (stream: Readable | null) => (stream ? (read.get(stream) ?? 0) : 0);

/** Hands over each line, cut at a length that nothing of ours reaches. */
function eachLine(stream: Readable, take: (line: string) => void) {
  let rest = "";
  stream.setEncoding("latin1");
  stream.on("data", (chunk: string) => {
    const lines = (rest + chunk).split(/[\r\n]+/);
    rest = (lines.pop() ?? "").slice(-LINE_LENGTH_MAX);
    for (const line of lines) if (line) take(line.slice(0, LINE_LENGTH_MAX));
  });
  stream.on("end", () => {
    if (rest) take(rest);
  });
}

/** The lines of a run's output, and its end; a line that is too long ends it. */
export async function* linesOf(run: Run): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of run.stdout) {
    const bytes = chunk as Buffer;
    countRead(run.stdout, bytes.length);
    const lines = (rest + bytes.toString("latin1")).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > LINE_LENGTH_MAX) throw new Error("a line of the output is too long");
    yield* lines;
  }
  if (rest) yield rest;
}

/** All that a run prints, up to a limit. */
export async function outputOf(run: Run, bytesMax: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of run.stdout) {
    chunks.push(chunk as Buffer);
    bytes += (chunk as Buffer).length;
    countRead(run.stdout, (chunk as Buffer).length);
    if (bytes > bytesMax) {
      await run.stop();
      throw new Error("the output is too long");
    }
  }
  return Buffer.concat(chunks);
}
