// NOAA nClimDiv degree days: directory listing → the two newest files → months. No store, no clock,
// no environment.
//
// Facts it relies on: a new file of each element appears a few days into the month, named by its
// stamp and never changed after; each holds every month since 1895, in lines of 97 fixed columns;
// values are °F-days, weighted by population, base 65 °F.

import { Failure } from "../../../../shared/errors.ts";
import { parseInstant } from "../../../../shared/time.ts";
import type { Range } from "../../store/rows.ts";
import { driftFailure } from "./drift.ts";
import { LeftOut } from "./left-out.ts";
import { type Fetcher, get, type Provider } from "./upstream.ts";

/** The way to the files. */
export interface NoaaAccess {
  /** The directory of the files; ends in a slash. */
  baseUrl: string;
  /** What `source_url` shows for `baseUrl`. */
  shownAs: string;
}

/** Heating or cooling degree days. */
export type Element = "hdd" | "cdd";

/** The degree days of an area in a month, °F-days. */
export interface DegreeDay {
  element: Element;
  /** Such as `tx`, `pacific` or `us`. */
  area: string;
  /** The first of the month, 00:00Z. */
  month: number;
  value: number;
}

/** The values of a window with their origin. */
export interface DegreeDays {
  values: DegreeDay[];
  /** URL of the file of heating degree days; both files have one stamp. */
  sourceUrl: string;
  /** The files' stamp. */
  publishedAt: number;
  leftOut: LeftOut;
}

/** The real directory. */
export const NOAA_BASE_URL = "https://www.ncei.noaa.gov/pub/data/cirs/climdiv/";

/** Areas 001 to 048: the contiguous states by name. */
const STATES =
  "al az ar ca co ct de fl ga id il in ia ks ky la me md ma mi mn ms mo mt ne nv nh nj nm ny nc " +
  "nd oh ok or pa ri sc sd tn tx ut vt va wa wv wi wy";
/**
 * Areas 101 to 109. They are the Census divisions, not NOAA's climate regions: in the recorded
 * files every value lies between those of its division's states.
 */
const DIVISIONS =
  "new_england middle_atlantic east_north_central west_north_central south_atlantic " +
  "east_south_central west_south_central mountain pacific";
const NATIONAL = "110";
/** It has lines and, so far, no value in them. */
const ALASKA = "050";

/** File codes and our names of the areas kept; 121 to 124 are other aggregates. */
const AREAS: ReadonlyMap<string, string> = new Map([
  ...STATES.split(" ").map((name, index) => [String(index + 1).padStart(3, "0"), name] as const),
  [ALASKA, "ak"],
  ...DIVISIONS.split(" ").map((name, index) => [String(101 + index), name] as const),
  [NATIONAL, "us"],
]);

/** Names of the areas that every file has values of. */
export const AREA_NAMES: readonly string[] = [...AREAS]
  .filter(([code]) => code !== ALASKA)
  .map(([, name]) => name);

const FILES: Readonly<Record<Element, { name: string; code: string }>> = {
  hdd: { name: "climdiv-hddcst", code: "25" },
  cdd: { name: "climdiv-cddcst", code: "26" },
};
const LINE_COLUMNS = 97;
const VALUES_AT = 10;
const VALUE_COLUMNS = 7;
const MISSING = -9999;
/** A file of all states has some 1 MB. */
const NOAA: Provider = { name: "NOAA", bytesMax: 16 * 1024 ** 2 };
const MONTHS = [
  ...["january", "february", "march", "april", "may", "june", "july"],
  ...["august", "september", "october", "november", "december"],
];

/**
 * Fetches the newest files and returns the months that begin inside the window. A missing value is
 * no value: months to come and areas without any have none.
 */
export async function fetchDegreeDays(
  access: NoaaAccess,
  window: Range,
  fetcher: Fetcher,
): Promise<DegreeDays> {
  const listing = await getText(access, "", fetcher);
  const { files, publishedAt } = newestFiles(listing);
  const values: DegreeDay[] = [];
  const leftOut = new LeftOut();
  for (const element of ["hdd", "cdd"] as const) {
    for (const { area, year, months } of await readFile(access, element, files[element], {
      fetcher,
      leftOut,
    })) {
      months.forEach((value, index) => {
        const month = Date.UTC(year, index, 1);
        const isWanted = month >= window.from && month < window.to && !Number.isNaN(value);
        if (isWanted) values.push({ element, area, month, value });
      });
    }
  }
  return { values, sourceUrl: `${access.shownAs}${files.hdd}`, publishedAt, leftOut };
}

async function getText({ baseUrl }: NoaaAccess, file: string, fetcher: Fetcher): Promise<string> {
  const { status, text } = await get(fetcher, NOAA, `${baseUrl}${file}`);
  if (status === 200) return text;
  // The directory turns over while it is read; the next attempt sees the new one.
  if (status === 404 && file) {
    throw new Failure("upstream_unavailable", `NOAA has withdrawn ${file} since listing it`);
  }
  throw new Failure("upstream_rejected", `NOAA answered HTTP ${status}`);
}

/**
 * The newest stamp that both elements have, with its files. The two are written one after the
 * other, so for a while the newest of one has no counterpart.
 */
export function newestFiles(listing: string): {
  files: Record<Element, string>;
  publishedAt: number;
} {
  if (!/<\/html>\s*$/i.test(listing))
    throw new Failure("upstream_truncated", "NOAA sent a directory listing without its end");
  // As while the agency is shut down, or at work on its site.
  if (!/climdiv-/.test(listing))
    throw new Failure("upstream_unavailable", "NOAA shows another page in place of its directory");
  const [heating, cooling] = [filesOf(listing, "hdd"), filesOf(listing, "cdd")];
  const stamp = [...heating.keys()]
    .filter((one) => cooling.has(one))
    .sort()
    .at(-1);
  const files = { hdd: heating.get(stamp ?? ""), cdd: cooling.get(stamp ?? "") };
  const publishedAt = parseInstant((stamp ?? "").replace(/(....)(..)(..)/, "$1-$2-$3"));
  if (!files.hdd || !files.cdd || publishedAt === null) {
    throw new Failure("upstream_unavailable", "NOAA lists no two degree-day files of one date");
  }
  return { files: { hdd: files.hdd, cdd: files.cdd }, publishedAt };
}

/** The files of an element by stamp; of two versions of one stamp, the higher. */
function filesOf(listing: string, element: Element): Map<string, string> {
  const { name } = FILES[element];
  const found = listing.match(new RegExp(`${name}-v\\d+\\.\\d+\\.\\d+-\\d{8}(?!\\d)`, "g")) ?? [];
  if (found.length === 0) {
    const detail = `NOAA changed its format: the listing names no \`${name}\` file`;
    throw new Failure("upstream_schema_drift", detail);
  }
  const inOrder = found.sort((left, right) => left.localeCompare(right, "en", { numeric: true }));
  return new Map(inOrder.map((file) => [file.slice(-8), file]));
}

/** One line of a file: an area's year. NaN is missing. */
export interface AreaYear {
  area: string;
  year: number;
  months: number[];
}

/**
 * The file read last of each element. Files never change, and a backfill reads one many times:
 * without this it would download as many times two million bytes.
 */
const held = new Map<Element, { url: string; lines: readonly AreaYear[]; leftOut: LeftOut }>();

async function readFile(
  access: NoaaAccess,
  element: Element,
  file: string,
  { fetcher, leftOut }: { fetcher: Fetcher; leftOut: LeftOut },
) {
  const url = `${access.baseUrl}${file}`;
  const known = held.get(element);
  const own = known?.url === url ? known.leftOut : new LeftOut();
  const lines =
    known?.url === url
      ? known.lines
      : parseDegreeDays(await getText(access, file, fetcher), element, own);
  // Whether a file without some of its lines is whole cannot be told.
  if (own.isEmpty) requireWhole(lines, file);
  held.set(element, { url, lines, leftOut: own });
  leftOut.join(own);
  return lines;
}

/** A file cut at the end of a line looks sound, but for the areas or years it lacks. */
function requireWhole(lines: readonly AreaYear[], file: string) {
  const newest = new Map<string, number>();
  for (const { area, year } of lines) newest.set(area, Math.max(newest.get(area) ?? 0, year));
  const last = Math.max(...newest.values());
  const short = AREA_NAMES.filter((area) => newest.get(area) !== last);
  if (short.length === 0) return;
  throw new Failure("upstream_truncated", `${file} ends before ${last} for ${short.join(" ")}`);
}

/** The lines of a file, but for areas that are not kept and lines that cannot be read. */
export function parseDegreeDays(text: string, element: Element, leftOut: LeftOut): AreaYear[] {
  const lines = text.split("\n");
  if (lines.pop() !== "" || lines.length === 0)
    throw new Failure("upstream_truncated", "NOAA sent a file that ends within a line");
  const numbered = lines.map((line, index) => ({ line, number: index + 1 }));
  const years = leftOut.rows(numbered, ({ line, number }) => readLine(line, number, element));
  return leftOut.distinct(years, {
    keyOf: ({ area, year }) => `${area} ${year}`,
    isAlike: (one, other) => `${one.months}` === `${other.months}`,
    named: ({ area, year }) => `${area} in ${year}`,
  });
}

function readLine(line: string, number: number, element: Element): AreaYear | null {
  const column = (name: string, from: number, length: number, shape: RegExp): string => {
    const cell = line.slice(from, from + length);
    if (shape.test(cell)) return cell;
    const where = length === 1 ? `column ${from + 1}` : `columns ${from + 1}-${from + length}`;
    throw drift(`\`${name}\` (${where}) of line ${number} is ${JSON.stringify(cell)}`, line);
  };
  if (line.length !== LINE_COLUMNS)
    throw drift(`line ${number} has ${line.length} columns, not ${LINE_COLUMNS}`, line);
  const code = column("area", 0, 3, /^\d{3}$/);
  column("division", 3, 1, /^0$/);
  column("element", 4, 2, new RegExp(`^${FILES[element].code}$`));
  const year = Number(column("year", 6, 4, /^(18|19|20|21)\d\d$/));
  const months = MONTHS.map((month, index) => {
    const from = VALUES_AT + index * VALUE_COLUMNS;
    const value = Number(column(month, from, VALUE_COLUMNS, /^ *-?\d+\.$/));
    return value === MISSING ? NaN : value;
  });
  column("end of line", VALUES_AT + MONTHS.length * VALUE_COLUMNS, 3, /^ {3}$/);
  const area = AREAS.get(code);
  return area ? { area, year, months } : null;
}

const drift = (what: string, line: string) => driftFailure("NOAA", what, line);
