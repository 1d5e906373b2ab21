// Text in drawings. It is set in the machine's sans-serif where there is one; a bare machine has no
// font at all and would show nothing, so there it is drawn from a small table of dots.

import sharp from "sharp";

export interface TextStyle {
  x: number;
  /** Of the baseline. */
  y: number;
  size: number;
  colour?: string;
  anchor?: "start" | "middle" | "end";
  bold?: boolean;
  /** Degrees about x, y. */
  turn?: number;
}

export interface Lettering {
  write(text: string, style: TextStyle): string;
  /** About the width of a text, in the unit of `size`. */
  widthOf(text: string, size: number): number;
}

// SVG is XML 1.0: it has no control characters, not even escaped.
const plain = (text: string) =>
  text.replace(/\p{Cc}|[\ud800-\udfff]|[\ufffe\uffff]/gu, " ").slice(0, 200);
const escaped = (text: string) =>
  plain(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
const rounded = (value: number) => Number(value.toFixed(2));

const turned = ({ x, y, turn }: TextStyle, drawn: string) =>
  turn ? `<g transform="rotate(${turn} ${rounded(x)} ${rounded(y)})">${drawn}</g>` : drawn;

/** Set in a font of the machine's. */
export const SET: Lettering = {
  widthOf: (text, size) => plain(text).length * size * 0.58,
  write: (text, style) => {
    const { x, y, size, colour = "#1f2328", anchor = "start", bold = false } = style;
    return turned(
      style,
      `<text x="${rounded(x)}" y="${rounded(y)}" fill="${colour}" font-family="sans-serif" ` +
        `font-size="${size}" text-anchor="${anchor}"${bold ? ' font-weight="bold"' : ""}>` +
        `${escaped(text)}</text>`,
    );
  },
};

/** Rows of a letter, and the columns that one takes with the gap to the next. */
const ROWS = 7;
const COLUMNS = 6;
/** A dot's side at size 1: capitals are then as high as those of a font. */
const DOT = 0.1;

/** Five columns a letter from space to tilde, each a byte whose lowest bit is the top row. */
const DOTS = Buffer.from(
  "0000000000" +
    "00005f0000" +
    "0007000700" +
    "147f147f14" +
    "242a7f2a12" +
    "2313086462" +
    "3649562050" +
    "0008070300" +
    "001c224100" +
    "0041221c00" +
    "2a1c7f1c2a" +
    "08083e0808" +
    "0080703000" +
    "0808080808" +
    "0000606000" +
    "2010080402" +
    "3e5149453e" +
    "00427f4000" +
    "7249494946" +
    "2141494d33" +
    "1814127f10" +
    "2745454539" +
    "3c4a494931" +
    "4121110907" +
    "3649494936" +
    "464949291e" +
    "0000140000" +
    "0040340000" +
    "0008142241" +
    "1414141414" +
    "0041221408" +
    "0201590906" +
    "3e415d594e" +
    "7c1211127c" +
    "7f49494936" +
    "3e41414122" +
    "7f4141413e" +
    "7f49494941" +
    "7f09090901" +
    "3e41415173" +
    "7f0808087f" +
    "00417f4100" +
    "2040413f01" +
    "7f08142241" +
    "7f40404040" +
    "7f021c027f" +
    "7f0408107f" +
    "3e4141413e" +
    "7f09090906" +
    "3e4151215e" +
    "7f09192946" +
    "2649494932" +
    "03017f0103" +
    "3f4040403f" +
    "1f2040201f" +
    "3f4038403f" +
    "6314081463" +
    "0304780403" +
    "6159494d43" +
    "007f414141" +
    "0204081020" +
    "004141417f" +
    "0402010204" +
    "4040404040" +
    "0003070800" +
    "2054547840" +
    "7f28444438" +
    "3844444428" +
    "384444287f" +
    "3854545418" +
    "00087e0902" +
    "18a4a49c78" +
    "7f08040478" +
    "00447d4000" +
    "2040403d00" +
    "7f10284400" +
    "00417f4000" +
    "7c04780478" +
    "7c08040478" +
    "3844444438" +
    "fc18242418" +
    "18242418fc" +
    "7c08040408" +
    "4854545424" +
    "04043f4424" +
    "3c4040207c" +
    "1c2040201c" +
    "3c4030403c" +
    "4428102844" +
    "4c9090907c" +
    "4464544c44" +
    "0008364100" +
    "0000770000" +
    "0041360800" +
    "0201020402",
  "hex",
);

/** Without accents, and a question mark for what the table has not. */
const tabled = (text: string) =>
  plain(text)
    .normalize("NFKD")
    .replace(/\p{M}/gu, "")
    .replace(/[^ -~]/gu, "?");

/** Drawn from dots. */
export const DOTTED: Lettering = {
  widthOf: (text, size) => tabled(text).length * COLUMNS * DOT * size,
  write: (text, style) => {
    const { x, y, size, colour = "#1f2328", anchor = "start" } = style;
    const dot = DOT * size;
    const width = DOTTED.widthOf(text, size);
    const left = x - (anchor === "middle" ? width / 2 : anchor === "end" ? width : 0);
    let path = "";
    for (const [place, letter] of [...tabled(text)].entries()) {
      const at = (letter.charCodeAt(0) - 32) * 5;
      for (let column = 0; column < 5; column++) {
        for (let row = 0; row <= ROWS; row++) {
          if ((((DOTS[at + column] ?? 0) >> row) & 1) === 0) continue;
          const dotX = rounded(left + (place * COLUMNS + column) * dot);
          path += `M${dotX} ${rounded(y + (row - ROWS) * dot)}h${rounded(dot)}v${rounded(dot)}h${rounded(-dot)}z`;
        }
      }
    }
    return turned(style, `<path d="${path}" fill="${colour}"/>`);
  },
};

let found: Promise<Lettering> | undefined;

/** The lettering of this machine, found out once. */
export function lettering(): Promise<Lettering> {
  found ??= shows(SET).then((seen) => (seen ? SET : DOTTED));
  return found;
}

/** Whether letters leave a trace. */
export async function shows({ write }: Lettering): Promise<boolean> {
  const drawn = write("Ag", { x: 2, y: 26, size: 24, colour: "#000000" });
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="40" height="32">${drawn}</svg>`;
  const { data } = await sharp(Buffer.from(svg))
    .flatten({ background: "#ffffff" })
    .greyscale()
    .raw()
    .toBuffer({ resolveWithObject: true });
  return data.some((value) => value < 128);
}
