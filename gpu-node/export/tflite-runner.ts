// Opens a TensorFlow Lite file in LiteRT, in a child process, to see what it gives. The child ends
// with the runner, with its signal, or with this process.

import { type ChildProcess, fork } from "node:child_process";
import { join } from "node:path";
import { PROTOTYPES } from "../../shared/detector/detector.ts";
import { anchorsOf, INPUT } from "../../shared/detector/detector-onnx.ts";
import { TaskFailure } from "../base/failure.ts";
import { type FileForm, type FileRunner, RuntimeMissing } from "./file-runner.ts";
import type { LitertAnswer, LitertImage } from "./litert-messages.ts";
import type { RawHeads } from "./verification.ts";

const PROGRAM = join(import.meta.dirname, "litert-main.ts");
const ERROR_CHARACTERS_MAX = 2_000;
/** The largest variant on the largest input takes minutes on a slow core. */
const ANSWER_SECONDS = 15 * 60;

/**
 * Opens a file. Fails with RuntimeMissing where LiteRT is not installed or does not start, with
 * `export_differs` where it does not answer in time, and otherwise with what LiteRT says of the
 * file.
 */
export async function openTfliteRunner(
  path: string,
  form: FileForm,
  { program = PROGRAM, answerSeconds = ANSWER_SECONDS } = {},
): Promise<FileRunner> {
  const child = new LitertChild(path, form.signal, { program, answerSeconds });
  try {
    const answer = await child.next();
    if (answer.type === "missing") {
      throw new RuntimeMissing(`LiteRT does not run here: ${answer.reason}`);
    }
    if (answer.type !== "ready") throw refusal(answer);
    return {
      runtime: answer.runtime,
      look: async (pixels) => {
        const [height, width] = form.size;
        const shape = [1, height, width, 3];
        const outputs = await child.ask({ input: INPUT, pixels: interleaved(pixels), shape });
        if (outputs.type !== "outputs") throw refusal(outputs);
        return headsOf(outputs.outputs, form);
      },
      close: () => child.end(),
    };
  } catch (thrown) {
    await child.end();
    throw thrown;
  }
}

const refusal = (answer: LitertAnswer) =>
  new Error(`LiteRT refuses the file: ${"reason" in answer ? answer.reason : answer.type}`);

const tooLate = (seconds: number) =>
  new TaskFailure("export_differs", `LiteRT gave no answer for the file within ${seconds} s`);

/** The child, which answers one question at a time. */
class LitertChild {
  readonly #child: ChildProcess;
  readonly #closed: Promise<void>;
  readonly #answerSeconds: number;
  #said = "";
  #failure: Error | null = null;
  #waiting: { resolve: (answer: LitertAnswer) => void; reject: (cause: Error) => void } | null =
    null;
  /** An answer that came before it was waited for. */
  #answer: LitertAnswer | null = null;

  constructor(
    path: string,
    signal: AbortSignal,
    { program, answerSeconds }: { program: string; answerSeconds: number },
  ) {
    this.#answerSeconds = answerSeconds;
    this.#child = fork(program, [path], {
      execArgv: ["--disable-warning=ExperimentalWarning"],
      serialization: "advanced",
      stdio: ["ignore", "ignore", "pipe", "ipc"],
      signal,
      killSignal: "SIGKILL",
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#said = (this.#said + text).slice(-ERROR_CHARACTERS_MAX);
    });
    this.#child.on("message", (answer: LitertAnswer) => {
      if (this.#waiting) this.#waiting.resolve(answer);
      else this.#answer = answer;
      this.#waiting = null;
    });
    this.#child.on("error", (cause) => this.#fail(cause));
    this.#closed = new Promise((resolve) => {
      this.#child.once("close", (code, by) => {
        const last = this.#said.trim().split("\n").at(-1) ?? "";
        this.#fail(new Error(`LiteRT's process ended (${by ?? code}): ${last}`));
        resolve();
      });
    });
  }

  /** Its next answer; fails where it ends without one, and ends it where none comes in time. */
  next(): Promise<LitertAnswer> {
    const answer = this.#answer;
    this.#answer = null;
    if (answer) return Promise.resolve(answer);
    if (this.#failure) return Promise.reject(this.#failure);
    const { promise, resolve, reject } = Promise.withResolvers<LitertAnswer>();
    this.#waiting = { resolve, reject };
    const limit = setTimeout(() => {
      this.#fail(tooLate(this.#answerSeconds));
      this.#child.kill("SIGKILL");
    }, this.#answerSeconds * 1_000);
    return promise.finally(() => clearTimeout(limit));
  }

  ask(image: LitertImage): Promise<LitertAnswer> {
    if (this.#child.connected) this.#child.send(image);
    return this.next();
  }

  /** Ends it, and waits until it is gone. */
  async end(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#closed;
  }

  #fail(cause: Error) {
    this.#failure ??= cause;
    this.#waiting?.reject(this.#failure);
    this.#waiting = null;
  }
}

/** Planes [3, height, width] as [height, width, 3]. */
function interleaved(planes: Float32Array): Float32Array<ArrayBuffer> {
  const plane = planes.length / 3;
  const pixels = new Float32Array(planes.length);
  for (let channel = 0; channel < 3; channel++) {
    for (let cell = 0; cell < plane; cell++) {
      pixels[cell * 3 + channel] = planes[channel * plane + cell] as number;
    }
  }
  return pixels;
}

/** The other way, for so many channels. */
function planesOf(pixels: Float32Array, channels: number): Float32Array {
  const plane = pixels.length / channels;
  const planes = new Float32Array(pixels.length);
  for (let cell = 0; cell < plane; cell++) {
    for (let channel = 0; channel < channels; channel++) {
      planes[channel * plane + cell] = pixels[cell * channels + channel] as number;
    }
  }
  return planes;
}

function headsOf(outputs: Readonly<Record<string, Float32Array>>, form: FileForm): RawHeads {
  const anchors = anchorsOf(form.size);
  const checked = (name: string, numbersOf: (values: Float32Array) => boolean) => {
    const values = outputs[name];
    if (!values) throw new Error(`the file gives no ${name}`);
    if (!numbersOf(values)) throw new Error(`${name} has ${values.length} numbers`);
    return values;
  };
  const [height, width] = form.size;
  const prototypesOf = (name: string) => {
    const count = (PROTOTYPES * height * width) / 16;
    const pixels = checked(name, ({ length }) => length === count);
    return { prototypes: planesOf(pixels, PROTOTYPES) };
  };
  if (form.output === "joined") {
    const rows = 4 + form.classes;
    const isWhole = ({ length }: Float32Array) =>
      length === rows * anchors || length === (rows + PROTOTYPES) * anchors;
    const heads = headsOfJoined(checked("output0", isWhole), form);
    return heads.masks ? { ...heads, ...prototypesOf("output1") } : heads;
  }
  const sized = (name: string, channels: number) =>
    checked(name, ({ length }) => length === channels * anchors);
  const heads = { boxes: sized("boxes", 4), scores: sized("scores", form.classes) };
  if (!outputs.masks) return heads;
  return { ...heads, masks: sized("masks", PROTOTYPES), ...prototypesOf("prototypes") };
}

/** Boxes of centre and size, as parts of the image, by rows; as corners in pixels, by anchors. */
function headsOfJoined(values: Float32Array, { size, classes }: FileForm): RawHeads {
  const anchors = anchorsOf(size);
  const [height, width] = size;
  const turned = (from: number, rows: number) => {
    const out = new Float32Array(rows * anchors);
    for (let row = 0; row < rows; row++) {
      for (let anchor = 0; anchor < anchors; anchor++) {
        out[anchor * rows + row] = values[(from + row) * anchors + anchor] as number;
      }
    }
    return out;
  };
  const boxes = turned(0, 4);
  for (let at = 0; at < boxes.length; at += 4) {
    const [x = 0, y = 0, across = 0, down = 0] = boxes.subarray(at, at + 4);
    const corners = [x - across / 2, y - down / 2, x + across / 2, y + down / 2];
    boxes.set(
      corners.map((value, side) => value * (side % 2 === 0 ? width : height)),
      at,
    );
  }
  const heads = { boxes, scores: turned(4, classes) };
  const rest = values.length / anchors - 4 - classes;
  return rest > 0 ? { ...heads, masks: turned(4 + classes, rest) } : heads;
}
