// Draws its argument as the charts do and writes the image to standard output: in a process of its
// own, whose fonts the test chooses.

import sharp from "sharp";
import { chartText } from "../../gpu-node/training/chart-text.ts";

const { write } = await chartText();
const drawn = write(process.argv[2] ?? "", { x: 2, y: 26, size: 24, colour: "#000000" });
const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="300" height="36">${drawn}</svg>`;
process.stdout.write(
  await sharp(Buffer.from(svg)).flatten({ background: "#ffffff" }).png().toBuffer(),
);
