// A run's charts: curves over epochs, precision and recall, the confusion of classes, and what the
// labels are like. Each is a PNG.

import sharp from "sharp";
import type { ClassMetrics, Evaluation } from "../../native/index.d.ts";
import { MASK_METRICS, type RunEpoch, type ValidationLosses } from "../../shared/wire/training.ts";
import { type ChartText, chartText } from "./chart-text.ts";
import { cells, colourOf, drawing, PADDING, Panel, rangeOf, shade, ticks } from "./charts.ts";

/** Figures of a class, with its curves; scores of earlier releases have no curves. */
type ClassScores = Omit<ClassMetrics, "curves"> & {
  curves?: Record<keyof ClassMetrics["curves"], number[]>;
};

/** What is kept of an evaluation: numbers that fit into JSON. */
export interface Scores {
  precision: number;
  recall: number;
  mAP50: number;
  mAP50_95: number;
  perClass: (ClassScores | null)[];
  confidence: number;
  curves: { precision: number[]; recall: number[]; f1: number[] };
  precisionByRecall: number[];
  confusion: number[];
  /** Detections by confidence. */
  confidenceBins: number[];
}

/** An evaluation as it is kept; curves to four digits, which no eye tells apart. */
export function scoresOf(evaluation: Evaluation): Scores {
  const { precision, recall, mAP50, mAP50_95, perClass, confidence } = evaluation;
  const list = (values: Float32Array) => Array.from(values, (value) => Number(value.toFixed(4)));
  const { curves } = evaluation;
  return {
    precision,
    recall,
    mAP50,
    mAP50_95,
    perClass: perClass.map((own) => {
      if (!own) return null;
      const { precision: p, recall: r, f1, precisionByRecall } = own.curves;
      const byClass = {
        precision: list(p),
        recall: list(r),
        f1: list(f1),
        precisionByRecall: list(precisionByRecall),
      };
      return { ...own, curves: byClass };
    }),
    confidence,
    curves: {
      precision: list(curves.precision),
      recall: list(curves.recall),
      f1: list(curves.f1),
    },
    precisionByRecall: list(evaluation.precisionByRecall),
    confusion: Array.from(evaluation.confusion),
    confidenceBins: Array.from(evaluation.confidenceBins),
  };
}

const toPng = (svg: string): Promise<Buffer> =>
  sharp(Buffer.from(svg), { limitInputPixels: 100_000_000 })
    .png({ compressionLevel: 9 })
    .toBuffer();

const MASK_LOSSES = [
  ["mask", "Mask loss"],
  ["semantic", "Semantic loss"],
] as const;
const PANEL = { width: 340, height: 270 };

/** Losses, learning rate and metrics over the epochs. */
export async function resultsChart(history: readonly RunEpoch[]): Promise<Buffer> {
  const text = await chartText();
  const epochs = history.map(({ epoch }) => epoch);
  const of = (read: (row: RunEpoch) => number) => history.map(read);
  const validated = (item: keyof ValidationLosses) =>
    of(({ validation_losses: losses }) => losses?.[item] ?? Number.NaN);
  /** Title, values, and what validation has beside them. */
  const curves: [string, number[], number[]?][] = [
    ["Box loss", of(({ losses }) => losses.box), validated("box")],
    ["Class loss", of(({ losses }) => losses.cls), validated("cls")],
    ["Distance (dfl) loss", of(({ losses }) => losses.dfl), validated("dfl")],
    ["Learning rate", of((row) => row.learning_rate)],
    ["Precision", of(({ metrics }) => metrics.precision ?? Number.NaN)],
    ["Recall", of(({ metrics }) => metrics.recall ?? Number.NaN)],
    ["mAP50", of(({ metrics }) => metrics.mAP50 ?? Number.NaN)],
    ["mAP50-95", of(({ metrics }) => metrics["mAP50-95"] ?? Number.NaN)],
  ];
  // Segmentation has a row of its own.
  for (const [name, title] of MASK_LOSSES) {
    if (!history.some(({ losses }) => losses[name] !== undefined)) continue;
    const own = of(({ losses }) => losses[name] ?? Number.NaN);
    curves.push(name === "mask" ? [title, own, validated(name)] : [title, own]);
  }
  for (const metric of MASK_METRICS) {
    if (!history.some(({ metrics }) => metric in metrics)) continue;
    const title = metric.replace("mask/", "Mask ");
    curves.push([title, of(({ metrics }) => metrics[metric] ?? Number.NaN)]);
  }
  const rows = Math.ceil(curves.length / 4);
  const x = { min: Math.min(1, ...epochs), max: Math.max(2, ...epochs) };
  const parts = curves.map(([title, values, beside = []], index) => {
    const [column, row] = [index % 4, Math.floor(index / 4)];
    const outer = { x: column * PANEL.width, y: row * PANEL.height, ...PANEL };
    const xLabel = index + 4 >= curves.length ? "epoch" : undefined;
    const options = { title, x, y: rangeOf([values, beside], PADDING, 0), wholeX: true };
    const panel = new Panel(text, outer, { ...options, ...(xLabel ? { xLabel } : {}) });
    const colour = colourOf(row === 0 ? 0 : 2);
    const smooth = smoothed(values);
    const long = values.length > 12;
    panel.line({ x: epochs, y: values, colour, faint: long }, { points: !long });
    if (long) panel.line({ x: epochs, y: smooth, colour });
    if (beside.some(Number.isFinite)) {
      const other = colourOf(1);
      panel.line({ x: epochs, y: beside, colour: other }, { points: !long });
      const entries = [
        { name: "training", colour },
        { name: "validation", colour: other },
      ];
      // Losses fall: the upper corner is free.
      panel.legend(entries, "above");
    }
    return panel.svg();
  });
  return toPng(drawing({ width: PANEL.width * 4, height: PANEL.height * rows }, parts));
}

/** A mean about each value that follows the curve. */
function smoothed(values: readonly number[]): number[] {
  const reach = Math.max(1, Math.round(values.length / 20));
  return values.map((_, at) => {
    const near = values.slice(Math.max(0, at - reach), at + reach + 1).filter(Number.isFinite);
    return near.reduce((sum, value) => sum + value, 0) / near.length;
  });
}

const CURVE = { width: 720, height: 520 };
const UNIT = { min: 0, max: 1 };
const positions = (count: number) => Array.from({ length: count }, (_, at) => at / (count - 1));

/** Mean precision over recall at IoU 0.5. */
export async function precisionRecallChart({ precisionByRecall, mAP50 }: Scores): Promise<Buffer> {
  const text = await chartText();
  const panel = new Panel(
    text,
    { x: 0, y: 0, ...CURVE },
    {
      title: "Precision and recall (IoU 0.5)",
      x: UNIT,
      y: { min: 0, max: 1.02 },
      xLabel: "recall",
      yLabel: "precision",
    },
  );
  const colour = colourOf(0);
  panel.line({ x: positions(precisionByRecall.length), y: precisionByRecall, colour });
  panel.legend([{ name: `all classes, mAP50 ${mAP50.toFixed(3)}`, colour }]);
  return toPng(drawing(CURVE, [panel.svg()]));
}

/** F1, precision and recall over the confidence at which detections are cut. */
export async function confidenceChart({ curves, confidence }: Scores): Promise<Buffer> {
  const text = await chartText();
  const panel = new Panel(
    text,
    { x: 0, y: 0, ...CURVE },
    {
      title: "F1, precision and recall by confidence",
      x: UNIT,
      y: { min: 0, max: 1.02 },
      xLabel: "confidence",
      yLabel: "mean over classes",
    },
  );
  const f1 = curves.f1[Math.round(confidence * (curves.f1.length - 1))] ?? 0;
  const { y, height } = panel.inner;
  const at = panel.x(confidence).toFixed(1);
  panel.draw(`<path d="M${at} ${y}v${height}" stroke="#6e7781" stroke-dasharray="5 4"/>`);
  const x = positions(curves.f1.length);
  const series = [
    { name: "precision", colour: colourOf(2), y: curves.precision },
    { name: "recall", colour: colourOf(1), y: curves.recall },
    { name: `F1, ${f1.toFixed(2)} at ${confidence.toFixed(2)}`, colour: colourOf(0), y: curves.f1 },
  ];
  for (const { colour, y: values } of series) panel.line({ x, y: values, colour });
  panel.legend(series);
  return toPng(drawing(CURVE, [panel.svg()]));
}

/** Numbers stand in the cells up to so many classes, names beside them up to so many. */
const NUMBERED_MAX = 25;
const NAMED_MAX = 60;
/** Pixels between two names below, where they are slanted. */
const SLANTED_MIN = 22;
const clipped = (name: string, max = 18) =>
  name.length > max ? `${name.slice(0, max - 1)}…` : name;

/** What each true object was taken for: a row a prediction, a column a truth, its shares. */
export async function confusionChart(
  { confusion }: Scores,
  classes: readonly string[],
): Promise<Buffer> {
  const text = await chartText();
  const names = [...classes, "background"];
  const side = names.length;
  const sums = names.map((_, column) =>
    names.reduce((sum, _name, row) => sum + (confusion[row * side + column] ?? 0), 0),
  );
  const cell = Math.max(8, Math.min(92, 620 / side));
  const every = Math.ceil(side / NAMED_MAX);
  const widest = Math.max(...names.map((name) => text.widthOf(clipped(name), 12)));
  const [left, top] = [Math.max(90, widest + 44), 56];
  const [right, below] = [70, Math.max(70, widest * 0.75 + 48)];
  const edge = cell * side;
  const parts: string[] = [];
  const bold = { size: 15, bold: true, anchor: "middle" } as const;
  parts.push(text.write("Confusion matrix", { ...bold, x: left + edge / 2, y: 30 }));
  names.forEach((_, row) => {
    names.forEach((_name, column) => {
      const count = confusion[row * side + column] ?? 0;
      const share = count / (sums[column] || 1);
      const [x, y] = [left + column * cell, top + row * cell];
      const rect = `x="${x}" y="${y}" width="${cell}" height="${cell}"`;
      parts.push(`<rect ${rect} fill="${shade(share)}" stroke="#e7eaee" stroke-width="0.5"/>`);
      if (side > NUMBERED_MAX || count === 0) return;
      const colour = share > 0.5 ? "#ffffff" : "#1f2328";
      const size = Math.min(14, cell / 3.6);
      const centre = { x: x + cell / 2, anchor: "middle", colour } as const;
      parts.push(text.write(share.toFixed(2), { ...centre, y: y + cell / 2, size }));
      const note = { ...centre, y: y + cell / 2 + size * 1.05, size: size * 0.78 };
      parts.push(text.write(`(${count})`, note));
    });
  });
  names.forEach((name, at) => {
    if (at % every > 0) return;
    const middle = (at + 0.5) * cell;
    const label = { size: 12, colour: "#1f2328", anchor: "end" } as const;
    parts.push(text.write(clipped(name), { ...label, x: left - 8, y: top + middle + 4 }));
    // Where they stand close, slanted ones would lie on each other.
    const turn = cell * every < SLANTED_MIN ? -90 : -40;
    const down = { x: left + middle + 4, y: top + edge + (turn === -90 ? 8 : 14), turn };
    parts.push(text.write(clipped(name), { ...label, ...down }));
  });
  const axis = { size: 13, colour: "#6e7781", anchor: "middle" } as const;
  parts.push(text.write("true", { ...axis, x: left + edge / 2, y: top + edge + below - 12 }));
  const sideways = { x: 18, y: top + edge / 2, turn: -90 };
  parts.push(text.write("predicted", { ...axis, ...sideways }), scale(text, { left, top, edge }));
  return toPng(drawing({ width: left + edge + right, height: top + edge + below }, parts));
}

/** What the shades mean. */
function scale(text: ChartText, { left, top, edge }: { left: number; top: number; edge: number }) {
  const [x, steps] = [left + edge + 16, 40];
  const bar = Array.from({ length: steps }, (_, at) => {
    const share = 1 - at / (steps - 1);
    const rect = `x="${x}" y="${top + (at * edge) / steps}" width="14" height="${edge / steps + 0.5}"`;
    return `<rect ${rect} fill="${shade(share)}"/>`;
  });
  const marks = ticks(0, 1, 5).map((value) =>
    text.write(value.toFixed(1), {
      x: x + 20,
      y: top + (1 - value) * edge + 4,
      size: 11,
      colour: "#6e7781",
    }),
  );
  return [...bar, ...marks].join("");
}

/** A box of the dataset: its class, and its centre and sides as shares of its image. */
export interface LabelBox {
  className: number;
  split: "train" | "val";
  x: number;
  y: number;
  width: number;
  height: number;
}

/** How many boxes each class has, where they lie and how large they are. */
export async function labelsChart(
  boxes: readonly LabelBox[],
  classes: readonly string[],
): Promise<Buffer> {
  const text = await chartText();
  const size = { width: 460, height: 400 };
  const counts = classChart(text, boxes, classes);
  const map = (title: string, at: number, labels: { xLabel: string; yLabel: string }) =>
    new Panel(text, { x: at, y: counts.height, ...size }, { title, x: UNIT, y: UNIT, ...labels });
  const centres = map("Where boxes lie", 0, { xLabel: "x of the centre", yLabel: "y, from below" });
  cells(
    centres,
    boxes.map(({ x, y }) => [x, 1 - y] as const),
  );
  const sides = map("How large boxes are", size.width, { xLabel: "width", yLabel: "height" });
  cells(
    sides,
    boxes.map(({ width, height }) => [width, height] as const),
  );
  const whole = { width: size.width * 2, height: counts.height + size.height };
  return toPng(drawing(whole, [counts.svg, centres.svg(), sides.svg()]));
}

const BARS_MAX = 40;
/** Pixels of a class name beside its bar, at size 12. */
const NAME_WIDTH_MAX = 206;

/** As much of a name as is no wider, at size 12. */
function fitting(text: ChartText, name: string, widthMax: number): string {
  let fit = name;
  while (text.widthOf(fit, 12) > widthMax) fit = `${[...fit].slice(0, -2).join("")}…`;
  return fit;
}

function classChart(text: ChartText, boxes: readonly LabelBox[], classes: readonly string[]) {
  const counts = classes.map((name, at) => {
    const own = boxes.filter(({ className }) => className === at);
    const train = own.filter(({ split }) => split === "train").length;
    return { name, train, val: own.length - train };
  });
  counts.sort((one, other) => other.train + other.val - one.train - one.val);
  const shown = counts.slice(0, BARS_MAX);
  const max = Math.max(1, ...shown.map(({ train, val }) => train + val));
  const nameOf = ({ name }: { name: string }) => fitting(text, clipped(name, 24), NAME_WIDTH_MAX);
  const widest = Math.max(...shown.map((count) => text.widthOf(nameOf(count), 12)));
  const [left, row, full] = [widest + 34, 24, 920];
  const room = full - left - 120;
  const title = `Boxes by class (${boxes.length} in all)`;
  const bold = { size: 15, bold: true, anchor: "middle" } as const;
  const parts = [text.write(title, { ...bold, x: full / 2, y: 28 })];
  const [trained, held] = [colourOf(0), colourOf(5)];
  shown.forEach(({ name, train, val }, at) => {
    const y = 48 + at * row;
    const end = { x: left - 10, y: y + 13, size: 12, anchor: "end" } as const;
    parts.push(text.write(nameOf({ name }), end));
    const [wide, more] = [(train / max) * room, (val / max) * room];
    const bar = (x: number, width: number, fill: string) =>
      `<rect x="${x}" y="${y}" width="${width.toFixed(1)}" height="17" fill="${fill}"/>`;
    parts.push(bar(left, wide, trained), bar(left + wide, more, held));
    const note = { x: left + wide + more + 8, y: y + 13, size: 12, colour: "#6e7781" };
    parts.push(text.write(`${train} + ${val}`, note));
  });
  const foot = 48 + shown.length * row + 14;
  const hidden = counts.length - shown.length;
  const legend =
    hidden > 0 ? `train + validation; ${hidden} rarer classes are not shown` : "train + validation";
  parts.push(text.write(legend, { x: left, y: foot, size: 11, colour: "#6e7781" }));
  return { svg: parts.join(""), height: foot + 14 };
}
