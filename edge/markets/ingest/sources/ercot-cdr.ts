// ERCOT's display page of a day's hourly load, refreshed during the day and kept for two weeks: the
// only place that has the current day. Read by its column titles, never by position.

import { parse } from "node-html-parser";
import { Failure } from "../../../../shared/errors.ts";
import { assertColumns, drift, type ErcotRecord, LOAD_ZONES } from "./ercot-products.ts";
import type { LeftOut } from "./left-out.ts";

/** API name → column title. */
const TITLES: Readonly<Record<string, string>> = {
  operatingDay: "Oper Day",
  hourEnding: "Hour Ending",
  coast: "COAST",
  east: "EAST",
  farWest: "FAR_WEST",
  north: "NORTH",
  northC: "NORTH_C",
  southern: "SOUTHERN",
  southC: "SOUTH_C",
  west: "WEST",
  total: "TOTAL",
};

/** Titles are the same with spaces, underscores and any case. */
const plain = (title: string) => title.toUpperCase().replaceAll(/[\s_]+/g, "");

/**
 * The rows of the page; the repeated hour's second pass is marked with `*`. A page of a day that
 * has only begun has titles and no rows.
 */
export function recordsOfPage(html: string, leftOut: LeftOut): ErcotRecord[] {
  if (!/<\/html>/i.test(html)) {
    throw new Failure("upstream_truncated", "ERCOT sent a page without its end");
  }
  const cells = parse(html)
    .querySelectorAll("tr")
    .filter((row) => !row.querySelector("tr"))
    .map((row) =>
      row.querySelectorAll("th, td").map((cell) => cell.text.replaceAll("&nbsp;", " ").trim()),
    );
  const top = cells.findIndex((row) => row.some((cell) => plain(cell) === "HOURENDING"));
  if (top < 0) throw drift("`Hour Ending` is missing");
  const titles = cells[top] ?? [];
  const known = new Map(Object.entries(TITLES).map(([name, title]) => [plain(title), name]));
  const names = titles.map((title) => known.get(plain(title)) ?? title);
  assertColumns(names, Object.keys(TITLES));
  const rows = cells.slice(top + 1).filter((row) => row.some((cell) => cell !== ""));
  return leftOut.rows(rows, (row) => {
    if (row.length !== names.length) throw drift(`a row of the page has ${row.length} cells`);
    const record = Object.fromEntries(names.map((name, index) => [name, row[index] ?? ""]));
    const label = record.hourEnding ?? "";
    return {
      ...record,
      ...Object.fromEntries(
        ["total", ...LOAD_ZONES].map((name) => [name, (record[name] ?? "").replaceAll(",", "")]),
      ),
      hourEnding: label.replaceAll("*", "").trim(),
      DSTFlag: label.includes("*"),
    };
  });
}
