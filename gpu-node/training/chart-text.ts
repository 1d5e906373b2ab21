// Text in drawings, set in a font that comes with the packages: a bare machine has no font at all,
// and every machine's charts look alike.

import * as fs from "node:fs/promises";
import { createRequire } from "node:module";
import sharp from "sharp";

export interface TextStyle {
  x: number;
  /** Ordinate of the baseline. */
  y: number;
  /** Pixels of the font's em. */
  size: number;
  colour?: string;
  anchor?: "start" | "middle" | "end";
  bold?: boolean;
  /** Degrees about x, y. */
  turn?: number;
}

/** Writes text as SVG. */
export interface ChartText {
  write(text: string, style: TextStyle): string;
  /** The width of a text in a regular weight, in the unit of `size`. */
  widthOf(text: string, size: number): number;
}

const FAMILY = "DejaVu Sans";
const REGULAR = "dejavu-fonts-ttf/ttf/DejaVuSans.ttf";
const BOLD = "dejavu-fonts-ttf/ttf/DejaVuSans-Bold.ttf";
const CHARACTERS_MAX = 200;

// SVG is XML 1.0: it has no control characters, not even escaped.
const plain = (text: string) =>
  text.replace(/\p{Cc}|[\ud800-\udfff]|[\ufffe\uffff]/gu, " ").slice(0, CHARACTERS_MAX);
const escaped = (text: string) =>
  plain(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
const rounded = (value: number) => Number(value.toFixed(2));

/** Text as SVG in the packaged font, which the process must have opened: see `chartText`. */
export function textSvg(text: string, style: TextStyle): string {
  const { x, y, size, colour = "#1f2328", anchor = "start", bold = false, turn } = style;
  const [left, top] = [rounded(x), rounded(y)];
  const turned = turn ? ` transform="rotate(${turn} ${left} ${top})"` : "";
  return (
    `<text x="${left}" y="${top}" fill="${colour}" font-family="${FAMILY}" ` +
    `font-size="${size}" text-anchor="${anchor}"${bold ? ' font-weight="bold"' : ""}${turned}>` +
    `${escaped(text)}</text>`
  );
}

let opened: Promise<ChartText> | undefined;

/** The packaged font, opened once a process. */
export function chartText(): Promise<ChartText> {
  opened ??= openFont();
  return opened;
}

async function openFont(): Promise<ChartText> {
  const { resolve } = createRequire(import.meta.url);
  for (const name of [REGULAR, BOLD]) {
    // Whoever draws text from a file makes its font known to all SVG of the process.
    const text = { text: ".", font: FAMILY, fontfile: resolve(name) };
    await sharp({ text }).png().toBuffer();
  }
  const widths = advanceWidths(await fs.readFile(resolve(REGULAR)));
  return {
    write: textSvg,
    widthOf: (text, size) => {
      const ems = [...plain(text)].map((character) => widths(character.codePointAt(0) ?? 0));
      return size * ems.reduce((sum, em) => sum + em, 0);
    },
  };
}

/** A character without a glyph is drawn as a box of its number, about as wide as the em. */
const BOX_EM = 1;

/** How far each character moves the pen, in em, from a TrueType file's `cmap` and `hmtx`. */
function advanceWidths(file: Buffer): (codePoint: number) => number {
  const tables = new Map<string, number>();
  for (let index = 0; index < file.readUInt16BE(4); index++) {
    const at = 12 + index * 16;
    tables.set(file.toString("latin1", at, at + 4), file.readUInt32BE(at + 8));
  }
  const startOf = (name: string): number => {
    const start = tables.get(name);
    if (start === undefined) throw new Error(`the packaged font has no ${name} table`);
    return start;
  };
  const unitsPerEm = file.readUInt16BE(startOf("head") + 18);
  const metrics = file.readUInt16BE(startOf("hhea") + 34);
  const advances = startOf("hmtx");
  const glyphOf = glyphIndex(file, startOf("cmap"));
  return (codePoint) => {
    const glyph = glyphOf(codePoint);
    if (glyph === 0) return BOX_EM;
    // Glyphs after the last metric are as wide as that one.
    return file.readUInt16BE(advances + 4 * Math.min(glyph, metrics - 1)) / unitsPerEm;
  };
}

/** A character's glyph by the file's segment mapping (format 4, of Unicode); 0 is none. */
function glyphIndex(file: Buffer, cmap: number): (codePoint: number) => number {
  const subtables = Array.from({ length: file.readUInt16BE(cmap + 2) }, (_, index) => {
    return cmap + file.readUInt32BE(cmap + 4 + index * 8 + 4);
  });
  const start = subtables.find((at) => file.readUInt16BE(at) === 4);
  if (start === undefined) throw new Error("the packaged font maps no characters");
  const bytes = file.readUInt16BE(start + 6);
  const [ends, begins] = [start + 14, start + 16 + bytes];
  const [deltas, offsets] = [begins + bytes, begins + 2 * bytes];
  return (codePoint) => {
    for (let at = 0; at < bytes; at += 2) {
      if (file.readUInt16BE(ends + at) < codePoint) continue;
      const begin = file.readUInt16BE(begins + at);
      if (begin > codePoint) return 0;
      const delta = file.readUInt16BE(deltas + at);
      const offset = file.readUInt16BE(offsets + at);
      if (offset === 0) return (codePoint + delta) & 0xffff;
      const glyph = file.readUInt16BE(offsets + at + offset + 2 * (codePoint - begin));
      return glyph === 0 ? 0 : (glyph + delta) & 0xffff;
    }
    return 0;
  };
}
