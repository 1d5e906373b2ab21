// `npm run bench -- training-choices`: what the automatic choices of a training are worth, by
// pycocotools on images that nothing was chosen on. Each training is a cell in a process of its
// own; results are kept in `.vantage/bench/training-choices`, and a cell that was killed goes on
// from its checkpoint. Several of these may run at once, one a core: each takes a cell of its own.

import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { readArguments, UsageError } from "../../edge/local/command-line.ts";
import { lives, ownName } from "../../gpu-node/base/processes.ts";
import { ensureEnvironment } from "../peers/environments.ts";
import {
  type Cell,
  codeVersion,
  imagesOf,
  keyOf,
  nameOf,
  trainingCells,
} from "./training-cells.ts";
import { engineHere, resultAt, runCell } from "./training-process.ts";
import { tablesOf } from "./training-tables.ts";

const FOLDER = resolve(import.meta.dirname, "../../.vantage/bench/training-choices");
const INSTALL_MS_MAX = 600_000;

const { values } = readArguments({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    /** A pattern of the names of cells. */
    only: { type: "string", default: "" },
    /** Ends after so long; the cell under way writes a checkpoint. */
    minutes: { type: "string" },
    /** Lists the cells and whether they are done. */
    list: { type: "boolean", default: false },
    /** Prints the tables of what is done, and trains nothing. */
    show: { type: "boolean", default: false },
    /** Of the tables that compare settings; they are slower without bf16. */
    precision: { type: "string" },
  },
});
const print = (line: string) => process.stdout.write(`${line}\n`);

interface KeyedCell {
  cell: Cell;
  key: string;
}

const resultPath = (key: string) => join(FOLDER, `${key}.json`);

const resultOf = ({ key }: KeyedCell) => resultAt(resultPath(key));

/** Whether this process has the cell; false while another one trains it. */
function take({ key }: KeyedCell): boolean {
  const path = join(FOLDER, `${key}.owner`);
  for (;;) {
    try {
      writeFileSync(path, ownName(), { flag: "wx" });
      return true;
    } catch (thrown) {
      if ((thrown as { code?: string }).code !== "EEXIST") throw thrown;
      if (lives(readFileSync(path, "utf8"))) return false;
      rmSync(path, { force: true });
    }
  }
}

const letGo = ({ key }: KeyedCell) => rmSync(join(FOLDER, `${key}.owner`), { force: true });

async function main() {
  const { precision: asked, minutes, only } = values;
  if (asked !== undefined && asked !== "fp32" && asked !== "bf16")
    throw new UsageError("--precision is fp32 or bf16");
  const { torch, bf16 } = await engineHere();
  const version = codeVersion(torch);
  const precision = asked ?? (bf16 ? "bf16" : "fp32");
  const cells = (await trainingCells(precision)).map((cell) => {
    return { cell, key: keyOf(cell, version) };
  });
  const wanted = cells.filter(({ cell }) => new RegExp(only).test(nameOf(cell)));
  if (values.list) {
    for (const one of wanted) {
      const thousands = (await imagesOf(one.cell)) / 1_000;
      const state = resultOf(one) ? "done" : existsSync(join(FOLDER, one.key)) ? "begun" : "";
      print(`${nameOf(one.cell)} · ${thousands.toFixed(1)} thousand images · ${state}`);
    }
    return;
  }
  const tables = () => print(tablesOf(wanted.map((one) => [one.cell, resultOf(one)] as const)));
  if (values.show) {
    tables();
    return;
  }
  const python = await ensureEnvironment("training", INSTALL_MS_MAX);
  if ("missing" in python) throw new Error(python.missing);
  mkdirSync(FOLDER, { recursive: true });
  const stop = new AbortController();
  const end = () => stop.abort();
  process.once("SIGTERM", end).once("SIGINT", end);
  const limit = minutes === undefined ? undefined : setTimeout(end, Number(minutes) * 60_000);
  print(`torch ${torch}, ${precision} where a table does not compare it, code ${version}`);
  for (const one of wanted) {
    if (stop.signal.aborted) break;
    if (resultOf(one) || !take(one)) continue;
    try {
      // Another process may have ended it meanwhile.
      if (resultOf(one)) continue;
      const name = nameOf(one.cell);
      print(`${new Date().toISOString()} ${name}`);
      const [folder, path] = [join(FOLDER, one.key), resultPath(one.key)];
      const order = { ...one, name, folder, python: python.python, result: path };
      const result = await runCell(order, stop.signal);
      if (result) {
        const told = [result.val.ap50, result.val.ap].map((figure) => figure.toFixed(4));
        print(`  val.txt AP50 ${told[0]}, AP ${told[1]}`);
      }
    } finally {
      letGo(one);
    }
  }
  clearTimeout(limit);
  tables();
}

await main();
