// A segmenter of the tests: it knows the words red, green and blue and finds what has that colour.
// Other words make its process wait, crash or hang, as a test wants.

import { existsSync, writeFileSync } from "node:fs";
import type { RgbImage } from "../../gpu-node/media/image.ts";
import { PromptUnknown } from "../../gpu-node/segmenters/failures.ts";
import { encodeRle } from "../../gpu-node/segmenters/masks.ts";
import type {
  Detection,
  DetectOptions,
  EncodedImage,
  Exemplar,
  Segmenter,
  SegmenterInfo,
  TextPrompt,
} from "../../gpu-node/segmenters/segmenter.ts";
import type { Bbox } from "../../shared/tasks/tasks.ts";

const COLOURS = ["red", "green", "blue"] as const;
/** What else they are called: some of a colour, or several. */
const WORDS: Readonly<Record<string, string[]>> = {
  crimson: ["red"],
  colour: [...COLOURS],
};

export const RECTANGLES: SegmenterInfo = {
  name: "rectangles",
  title: "Rectangles (tests)",
  licence: "none",
  device: "cpu",
  text: "closed",
  vocabulary: COLOURS,
  meanings: {},
  exemplar: "any_image",
  points: true,
  limits: [],
};

interface HeldImage extends EncodedImage {
  image: RgbImage;
}

/** Which pixels are of a colour: its channel is high, the others are low. */
function maskOf({ data, width, height }: RgbImage, channel: number): Uint8Array {
  const mask = new Uint8Array(width * height);
  for (let pixel = 0; pixel < mask.length; pixel++) {
    const [own = 0, one = 0, other = 0] = [0, 1, 2].map(
      (shift) => data[pixel * 3 + ((channel + shift) % 3)],
    );
    mask[pixel] = own > 120 && one < 110 && other < 110 ? 1 : 0;
  }
  return mask;
}

function boxOf(mask: Uint8Array, width: number): Bbox | null {
  let [x1, y1, x2, y2] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, 0, 0];
  mask.forEach((on, pixel) => {
    if (!on) return;
    const [x, y] = [pixel % width, Math.floor(pixel / width)];
    [x1, y1, x2, y2] = [Math.min(x1, x), Math.min(y1, y), Math.max(x2, x + 1), Math.max(y2, y + 1)];
  });
  return x2 > x1 ? [x1, y1, x2, y2] : null;
}

function find(image: RgbImage, channel: number, { masks, runs }: DetectOptions): Detection[] {
  const mask = maskOf(image, channel);
  const bbox = boxOf(mask, image.width);
  if (!bbox) return [];
  const [x1, y1, x2, y2] = bbox;
  const polygon = masks ? [x1, y1, x2, y1, x2, y2, x1, y2] : null;
  const rle = masks && runs ? { rle: encodeRle(mask, image.width, image.height) } : {};
  return [{ bbox, confidence: 0.9, polygon, ...rle }];
}

/**
 * `hold <path>`: says by a file that it waits, and goes on once `<path>.go` is there. `<path>.told`
 * says that the process has heard of a cancel.
 */
async function obey(word: string) {
  const [verb, path = ""] = word.split(" ");
  if (verb === "crash") process.kill(process.pid, "SIGSEGV");
  if (verb === "exit") {
    process.stderr.write("cuda fault at https://store.example/x?X-Amz-Signature=abcdef\n");
    process.exit(7);
  }
  if (verb === "hang" || verb === "hold") writeFileSync(path, String(process.pid));
  // Neither a message nor a signal handler of its own gets through.
  if (verb === "hang") for (;;) Math.sqrt(2);
  if (verb === "hold") {
    // The process's own listener was there first: it has heard by then.
    process.on("message", ({ type }: { type: string }) => {
      if (type === "cancel") writeFileSync(`${path}.told`, "");
    });
    while (!existsSync(`${path}.go`)) await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Counts what it did, for tests that hold it. */
export interface Rectangles extends Segmenter {
  encoded: number;
  disposed: number;
}

export function openRectangles(): Rectangles {
  const segmenter: Rectangles = {
    info: RECTANGLES,
    encoded: 0,
    disposed: 0,
    resolve: (text): TextPrompt => {
      const word = text.split(" ")[0] ?? "";
      const known = [...COLOURS, "crash", "exit", "hang", "hold"].includes(word as "red");
      const ids = known ? [word] : WORDS[word];
      if (!ids) throw new PromptUnknown(text, { title: RECTANGLES.title, nearest: ["red"] });
      return { kind: "text", text, ids, warning: text === "red car" ? "car" : null };
    },
    encode: async (image): Promise<HeldImage> => {
      segmenter.encoded += 1;
      const { width, height } = image;
      const dispose = () => {
        segmenter.disposed += 1;
      };
      return { image, width, height, dispose };
    },
    describe: async (encoded) => {
      const { image } = encoded as HeldImage;
      const sums = [0, 1, 2].map((channel) =>
        image.data.reduce((sum, value, at) => (at % 3 === channel ? sum + value : sum), 1),
      );
      const length = Math.hypot(...sums);
      return Float32Array.from(sums, (sum) => sum / length);
    },
    prepareExemplar: async (examples): Promise<Exemplar> => ({ kind: "exemplar", examples }),
    detect: async (encoded, prompts, options) => {
      const { image } = encoded as HeldImage;
      const found: Detection[][] = [];
      for (const prompt of prompts) {
        if (prompt.kind === "exemplar") {
          found.push(find(image, colourOf(prompt), options));
          continue;
        }
        await obey(prompt.text);
        const channels = prompt.ids.map((id) => COLOURS.indexOf(id as "red"));
        found.push(channels.flatMap((channel) => find(image, channel, options)));
      }
      return found;
    },
    segment: async (encoded, { points, box }) => {
      const { image } = encoded as HeldImage;
      const [x, y] = box
        ? [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2]
        : [points[0]?.x, points[0]?.y];
      const at = Math.floor(y ?? 0) * image.width + Math.floor(x ?? 0);
      return [0, 1, 2]
        .map((channel) => maskOf(image, channel))
        .filter((mask) => mask[at] === 1)
        .map((mask) => ({ mask, score: 0.8 }));
    },
    dispose: async () => {},
  };
  return segmenter;
}

/** The channel that dominates the example. */
function colourOf({ examples }: Exemplar): number {
  const [example] = examples;
  if (!example) return -1;
  const { image, bbox } = example;
  const [x1, y1, x2, y2] = bbox ?? [0, 0, image.width, image.height];
  const at = (Math.floor((y1 + y2) / 2) * image.width + Math.floor((x1 + x2) / 2)) * 3;
  const pixel = [...image.data.subarray(at, at + 3)];
  return pixel.indexOf(Math.max(...pixel));
}
