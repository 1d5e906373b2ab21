// Charts as SVG: axes with round numbers, lines, bars and cells. What is drawn from a run's figures
// is `figures.ts`'s; this file knows nothing of training. It is our own by decision: of the same
// figures, echarts' confusion matrix lacked the counts, and its titles collided.

import type { ChartText } from "./chart-text.ts";

/** Told apart also by people who see fewer colours (Okabe and Ito). */
export const COLOURS = [
  ...["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b59f00"],
] as const;
export const colourOf = (index: number): string => COLOURS[index % COLOURS.length] as string;

const INK = "#1f2328";
const FAINT = "#6e7781";
const GRID = "#e7eaee";
const FRAME = "#c9d1d9";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Series {
  x: ArrayLike<number>;
  y: ArrayLike<number>;
  colour: string;
  name?: string;
  /** A thin line behind the others. */
  faint?: boolean;
}

const short = (value: number) => Number(value.toFixed(2));

/** Round numbers that span a range, at most `count` steps of them. */
export function ticks(min: number, max: number, count = 5): number[] {
  const span = max - min || Math.abs(max) || 1;
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  const first = Math.ceil(min / step - 1e-9);
  const last = Math.floor(max / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first) + 1 }, (_, at) => (first + at) * step);
}

/** A number as people read it. */
export function numberText(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(1).replace("+", "");
  return String(Number(value.toPrecision(4)));
}

export const PADDING = 0.05;

export interface Range {
  min: number;
  max: number;
}

/** The range of all finite values, with some room around it, which ends at `floor`. */
export function rangeOf(
  lists: readonly ArrayLike<number>[],
  padding = PADDING,
  floor = Number.NEGATIVE_INFINITY,
): Range {
  let [min, max] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const list of lists) {
    for (let at = 0; at < list.length; at++) {
      const value = list[at] as number;
      if (!Number.isFinite(value)) continue;
      min = Math.min(min, value);
      max = Math.max(max, value);
    }
  }
  if (min > max) return { min: 0, max: 1 };
  const room = (max - min || Math.abs(max) || 1) * padding;
  return { min: Math.max(floor, min - room), max: max + room };
}

export interface PanelOptions {
  title: string;
  x: Range;
  y: Range;
  xLabel?: string;
  yLabel?: string;
  /** Ticks at whole numbers only. */
  wholeX?: boolean;
}

/** A chart's area with its axes. Coordinates of what it draws are those of the data. */
export class Panel {
  readonly #text: ChartText;
  readonly #inner: Box;
  readonly #options: PanelOptions;
  #drawn: string[] = [];

  constructor(text: ChartText, outer: Box, options: PanelOptions) {
    this.#text = text;
    this.#options = options;
    const [left, below] = [options.yLabel ? 66 : 50, options.xLabel ? 46 : 30];
    const { x, y, width, height } = outer;
    this.#inner = { x: x + left, y: y + 34, width: width - left - 16, height: height - 34 - below };
    this.#axes(outer);
  }

  get inner(): Box {
    return this.#inner;
  }

  x(value: number): number {
    const { min, max } = this.#options.x;
    return this.#inner.x + ((value - min) / (max - min || 1)) * this.#inner.width;
  }

  y(value: number): number {
    const { min, max } = this.#options.y;
    const { y, height } = this.#inner;
    return y + height - ((value - min) / (max - min || 1)) * height;
  }

  #axes(outer: Box) {
    const { title, xLabel, yLabel, wholeX } = this.#options;
    const { x, y, width, height } = this.#inner;
    const { write } = this.#text;
    const middle = x + width / 2;
    this.draw(`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="#ffffff"/>`);
    for (const value of ticks(this.#options.y.min, this.#options.y.max)) {
      const at = short(this.y(value));
      this.draw(`<path d="M${x} ${at}h${width}" stroke="${GRID}"/>`);
      const style = { x: x - 7, y: at + 4, size: 11, colour: FAINT, anchor: "end" } as const;
      this.draw(write(numberText(value), style));
    }
    for (const value of ticks(this.#options.x.min, this.#options.x.max, 6)) {
      if (wholeX && !Number.isInteger(value)) continue;
      const at = short(this.x(value));
      this.draw(`<path d="M${at} ${y}v${height}" stroke="${GRID}"/>`);
      const style = {
        x: at,
        y: y + height + 17,
        size: 11,
        colour: FAINT,
        anchor: "middle",
      } as const;
      this.draw(write(numberText(value), style));
    }
    const frame = `x="${x}" y="${y}" width="${width}" height="${height}"`;
    this.draw(`<rect ${frame} fill="none" stroke="${FRAME}"/>`);
    const bold = { size: 14, bold: true, anchor: "middle", colour: INK } as const;
    this.draw(write(title, { ...bold, x: middle, y: outer.y + 22 }));
    const label = { size: 12, anchor: "middle", colour: FAINT } as const;
    if (xLabel) this.draw(write(xLabel, { ...label, x: middle, y: y + height + 36 }));
    const side = { x: outer.x + 16, y: y + height / 2, turn: -90 };
    if (yLabel) this.draw(write(yLabel, { ...label, ...side }));
  }

  draw(svg: string) {
    this.#drawn.push(svg);
  }

  line({ x, y, colour, faint = false }: Series, options: { points?: boolean } = {}) {
    let path = "";
    let pen = "M";
    const dots: string[] = [];
    for (let at = 0; at < x.length; at++) {
      const [left, top] = [this.x(x[at] as number), this.y(y[at] as number)];
      if (!Number.isFinite(left) || !Number.isFinite(top)) {
        pen = "M";
        continue;
      }
      path += `${pen}${short(left)} ${short(top)}`;
      pen = "L";
      if (options.points) dots.push(`<circle cx="${short(left)}" cy="${short(top)}" r="2.6"/>`);
    }
    const stroke = `stroke="${colour}" stroke-width="${faint ? 1.2 : 2}"`;
    const opacity = faint ? ' stroke-opacity="0.45"' : "";
    this.draw(`<path d="${path}" fill="none" ${stroke}${opacity} stroke-linejoin="round"/>`);
    if (dots.length > 0) this.draw(`<g fill="${colour}">${dots.join("")}</g>`);
  }

  /** Names of series in a corner of the area. */
  legend(
    entries: readonly { name: string; colour: string }[],
    corner: "above" | "below" = "below",
  ) {
    const { x, y, width, height } = this.#inner;
    const wide = Math.max(...entries.map(({ name }) => this.#text.widthOf(name, 12))) + 34;
    const high = entries.length * 18 + 10;
    const left = x + width - wide - 10;
    const top = corner === "above" ? y + 10 : y + height - high - 10;
    const rect = `x="${short(left)}" y="${short(top)}" width="${short(wide)}" height="${high}"`;
    this.draw(`<rect ${rect} rx="4" fill="#ffffff" fill-opacity="0.9" stroke="${FRAME}"/>`);
    for (const [at, { name, colour }] of entries.entries()) {
      const line = top + 19 + at * 18;
      const key = `M${short(left + 8)} ${short(line - 4)}h14`;
      this.draw(`<path d="${key}" stroke="${colour}" stroke-width="3"/>`);
      this.draw(this.#text.write(name, { x: left + 28, y: line, size: 12, colour: INK }));
    }
  }

  svg(): string {
    return this.#drawn.join("");
  }
}

/** Between white and a deep blue. */
export function shade(share: number): string {
  const at = Math.max(0, Math.min(1, share));
  const mix = (from: number, to: number) => Math.round(from + (to - from) * at ** 0.8);
  return `rgb(${mix(255, 8)},${mix(255, 64)},${mix(255, 129)})`;
}

/** Counts of points on a square grid, as cells from white to dark; x and y are within 0 to 1. */
export function cells(panel: Panel, points: readonly (readonly [number, number])[], side = 40) {
  const counts = new Float64Array(side * side);
  const cellOf = (value: number) => Math.max(0, Math.min(side - 1, Math.floor(value * side)));
  for (const [x, y] of points) {
    const at = cellOf(y) * side + cellOf(x);
    counts[at] = (counts[at] ?? 0) + 1;
  }
  const max = counts.reduce((one, other) => Math.max(one, other), 0);
  counts.forEach((count, at) => {
    if (count === 0) return;
    const [left, low] = [(at % side) / side, Math.floor(at / side) / side];
    const x = short(panel.x(left));
    const y = short(Math.min(panel.y(low), panel.y(low + 1 / side)));
    const wide = short(Math.abs(panel.x(left + 1 / side) - panel.x(left)) + 0.3);
    const high = short(Math.abs(panel.y(low + 1 / side) - panel.y(low)) + 0.3);
    const fill = shade(0.15 + (0.85 * count) / max);
    panel.draw(`<rect x="${x}" y="${y}" width="${wide}" height="${high}" fill="${fill}"/>`);
  });
}

/** A whole drawing, white below; everything in it is drawn at twice its size. */
export function drawing(size: { width: number; height: number }, parts: readonly string[]): string {
  const { width, height } = size;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width * 2}" height="${height * 2}" ` +
    `viewBox="0 0 ${width} ${height}"><rect width="100%" height="100%" fill="#ffffff"/>` +
    `${parts.join("")}</svg>`
  );
}
