// Barcodes and QR codes on images, read by ZXing in WebAssembly. Its module comes from the disk: by
// itself the library would fetch it from the network.

import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { z } from "zod";
import { prepareZXingModule, readBarcodes } from "zxing-wasm/reader";
import { boxAround } from "../../shared/detector/rings.ts";
import { BAR_CODE_FORMATS, type BarCodeParameters } from "../../shared/workflow/blocks/images.ts";
import type { WorkflowObject } from "../../shared/workflow/values.ts";
import { clip, scaleBox } from "../media/geometry.ts";
import { fitSize, resize } from "../media/image.ts";
import { blockRun, type NodeImage } from "./node-image.ts";

type Format = (typeof BAR_CODE_FORMATS)[number];
const NAMES = {
  qr_code: "QRCode",
  data_matrix: "DataMatrix",
  aztec: "Aztec",
  pdf417: "PDF417",
  ean_13: "EAN13",
  ean_8: "EAN8",
  upc_a: "UPCA",
  upc_e: "UPCE",
  code_128: "Code128",
  code_93: "Code93",
  code_39: "Code39",
  itf: "ITF",
  codabar: "Codabar",
} as const satisfies Record<Format, string>;
/** What the library calls kinds and their variants, as it names their kind. */
const FORMAT_OF = new Map<string, Format>(
  BAR_CODE_FORMATS.map((format) => [NAMES[format], format]),
);

/** Codes of one image. */
const CODES_MAX = 200;
/** Pixels of the longest side that is looked at: this room's thread stands still meanwhile. */
const SIDE_MAX = 2_500;

let reader: Promise<unknown> | undefined;

/** Opens the library once in this process. */
function openReader(): Promise<unknown> {
  reader ??= readFile(
    fileURLToPath(import.meta.resolve("zxing-wasm/reader/zxing_reader.wasm")),
  ).then((file) =>
    prepareZXingModule({
      overrides: { wasmBinary: new Uint8Array(file).buffer },
      fireImmediately: true,
    }),
  );
  return reader;
}

/** What `barcode@1` does. */
export const barcode = blockRun<{ image: NodeImage }, z.output<typeof BarCodeParameters>>(
  async ({ inputs: { image }, parameters: { formats = BAR_CODE_FORMATS } }) => {
    await openReader();
    const { frame } = image;
    const longest = Math.max(frame.width, frame.height);
    const sides = fitSize(frame, Math.min(longest, SIDE_MAX));
    const { data, width, height } = await resize(image.pixels, sides);
    const rgba = new Uint8ClampedArray(width * height * 4).fill(255);
    for (let from = 0, to = 0; from < data.length; from += 3, to += 4) {
      rgba.set(data.subarray(from, from + 3), to);
    }
    const read = await readBarcodes(
      { data: rgba, width, height, colorSpace: "srgb" },
      { formats: formats.map((format) => NAMES[format]), maxNumberOfSymbols: CODES_MAX },
    );
    const objects = read.flatMap(({ format, symbology, position, text }): WorkflowObject[] => {
      const kind = FORMAT_OF.get(format) ?? FORMAT_OF.get(symbology);
      const corners = [
        position.topLeft,
        position.topRight,
        position.bottomRight,
        position.bottomLeft,
      ];
      const box = boxAround(corners.flatMap(({ x, y }) => [x, y]));
      // Linear codes may be read along one row, which is no box.
      const wide = ([x1, y1, x2, y2]: typeof box) =>
        [x1, y1, Math.max(x2, x1 + 1), Math.max(y2, y1 + 1)] as typeof box;
      const bbox = clip(scaleBox(wide(box), frame.width / width, frame.height / height), frame);
      if (!bbox || !kind) return [];
      return [{ class: kind, confidence: 1, bbox, data: { text, format: kind } }];
    });
    const texts = objects.map(({ data: told }) => String(told?.text));
    return { outputs: { detections: { frame, objects }, texts } };
  },
);
