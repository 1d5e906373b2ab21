// The tables of `npm run bench -- training-choices`: rows are choices, columns what they were
// tried on. "held" is what choices are made on, a part of train.txt; "val" is pycocotools' on
// images that nothing was chosen on.

import { type Cell, type CellResult, PATIENCES, TABLES, type TableName } from "./training-cells.ts";

type Row = readonly [Cell, CellResult | null];

const shown = (value: number | undefined) => value?.toFixed(3).replace(/^0/, "") ?? "–";
const mean = (all: readonly number[]) => all.reduce((sum, one) => sum + one, 0) / all.length;
const distinct = (all: readonly string[]) => [...new Set(all)];

/** Standard deviation of a sample. */
function spread(all: readonly number[]): number {
  const middle = mean(all);
  return Math.sqrt(all.reduce((sum, one) => sum + (one - middle) ** 2, 0) / (all.length - 1));
}

const TITLES: Record<TableName, string> = {
  precision: "bf16 beside fp32: blood cells, 320 px, 30 epochs",
  choices: "The automatic choices and others: held AP · AP50 and AP on val",
  goal: "Blood cells, train.txt alone, 320 px, 100 epochs",
};

/** All tables in which something is done. */
export function tablesOf(all: readonly Row[]): string {
  const parts: string[] = [];
  for (const table of TABLES) {
    const rows = all.filter(([cell]) => cell.table === table);
    const done = rows.filter(([, result]) => result);
    if (done.length === 0) continue;
    const note = `${done.length} of ${rows.length} trainings`;
    const lines = table === "choices" ? choiceLines(rows) : seedLines(rows);
    parts.push([`${TITLES[table]} (${note})`, "", ...lines].join("\n"));
  }
  const patience = patienceLines(all);
  if (patience.length > 0)
    parts.push(["What a patience would have cost", "", ...patience].join("\n"));
  return parts.join("\n\n");
}

function choiceLines(rows: readonly Row[]): string[] {
  const columns = distinct(rows.map(([cell]) => cell.column));
  const lines = [`| | ${columns.join(" | ")} |`, `|---|${columns.map(() => "---|").join("")}`];
  for (const row of distinct(rows.map(([cell]) => cell.row))) {
    const cells = columns.map((column) => {
      const found = rows.find(([cell]) => cell.row === row && cell.column === column);
      const result = found?.[1];
      if (!result) return "–";
      const { inner, val } = result;
      return `${shown(inner.ap)} · ${shown(val.ap50)}, ${shown(val.ap)}`;
    });
    lines.push(`| ${row} | ${cells.join(" | ")} |`);
  }
  return lines;
}

/** A row for each choice over its seeds, with means and their spread. */
function seedLines(rows: readonly Row[]): string[] {
  const lines = [
    "| | Epoch | Held AP | AP50 on val | AP on val | CPU seconds of training an epoch |",
    "|---|---|---|---|---|---|",
  ];
  for (const row of distinct(rows.map(([cell]) => cell.row))) {
    const results = rows.flatMap(([cell, result]) => (cell.row === row && result ? [result] : []));
    if (results.length === 0) continue;
    const told = (of: (result: CellResult) => number) => {
      const numbers = results.map(of);
      const each = numbers.map(shown).join(" ");
      if (numbers.length < 2) return each;
      return `${each}: ${shown(mean(numbers))} ± ${shown(spread(numbers))}`;
    };
    const seconds = results.flatMap(({ cpuSeconds }) => (cpuSeconds ? [cpuSeconds.training] : []));
    lines.push(
      `| ${row} | ${results.map(({ epoch }) => epoch).join(" ")} | ${told(({ inner }) => inner.ap)} | ` +
        `${told(({ val }) => val.ap50)} | ${told(({ val }) => val.ap)} | ` +
        `${seconds.length > 0 ? mean(seconds).toFixed(1) : "–"} |`,
    );
  }
  return lines;
}

/** Over all trainings: how many a patience would have ended early, what it saves and costs. */
function patienceLines(all: readonly Row[]): string[] {
  const seen = new Set<string>();
  const results = all.flatMap(([cell, result]) => {
    // A training that stands in two tables counts once.
    if (!result || seen.has(result.name)) return [];
    seen.add(result.name);
    return [{ epochs: cell.training.epochs, ...result }];
  });
  if (results.length === 0) return [];
  const lines = [
    "| Patience | Trainings it ends | Epochs saved in those | AP on val lost in those: mean, most |",
    "|---|---|---|---|",
  ];
  for (const patience of PATIENCES) {
    const ended = results.flatMap(({ epochs, val, patience: stops }) => {
      const stop = stops[patience];
      return stop ? [{ saved: 1 - stop.stopped / epochs, lost: val.ap - stop.val.ap }] : [];
    });
    const lost = ended.map((one) => one.lost);
    const [saved, cost] =
      ended.length > 0
        ? [
            `${Math.round(100 * mean(ended.map((one) => one.saved)))} %`,
            `${mean(lost).toFixed(3)}, ${Math.max(...lost).toFixed(3)}`,
          ]
        : ["–", "–"];
    lines.push(`| ${patience} | ${ended.length} of ${results.length} | ${saved} | ${cost} |`);
  }
  return lines;
}
