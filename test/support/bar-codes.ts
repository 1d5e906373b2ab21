// Barcodes that tests draw.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { prepareZXingModule, writeBarcode } from "zxing-wasm/writer";

const file = readFileSync(
  fileURLToPath(import.meta.resolve("zxing-wasm/writer/zxing_writer.wasm")),
);
prepareZXingModule({ overrides: { wasmBinary: new Uint8Array(file).buffer } });

/** A code as PNG, black on white. */
export async function writeCode(text: string, format: "QRCode" | "EAN13"): Promise<Buffer> {
  const { image, error } = await writeBarcode(text, { format, scale: 3 });
  if (!image) throw new Error(error);
  return Buffer.from(await image.arrayBuffer());
}
