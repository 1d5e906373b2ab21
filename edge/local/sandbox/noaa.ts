// NOAA's nClimDiv directory over weather of our own: a listing, and two files of fixed columns that
// appear on the 4th to 9th of a month, the second some time after the first. Values of the last two
// calendar years move a little from file to file; older ones never do.

import { addMonths, DAY, HOUR, iso, MINUTE } from "../../../shared/time.ts";
import type { SandboxAnswer, SandboxProvider } from "./answers.ts";
import { chance } from "./demand.ts";

interface Area {
  code: string;
  /** °F-days of a mean January and July, and how far a month strays from its mean. */
  heating: readonly [january: number, july: number];
  cooling: readonly [january: number, july: number];
}

const DIRECTORY = "/noaa/pub/data/cirs/climdiv/";
const FIRST_YEAR = 1895;
const MISSING = " -9999.";
/** Files kept in the directory, and in memory. */
const FILES_LISTED = 2;
const FILES_CACHED = 6;

// January and July means of 2005 to 2024, public domain: states 001 to 048, then divisions 101 to
// 109, the nation, and the four aggregates after it.
const HEATING =
  "639:0 461:0 781:0 493:1 1183:13 1110:1 930:0 201:0 649:0 1166:24 1246:5 1146:5 1389:11 1041:1 941:0 " +
  "452:0 1360:22 945:0 1134:1 1260:11 1615:24 591:0 1069:2 1280:76 1253:10 695:1 1330:12 1023:0 890:1 " +
  "1136:4 740:0 1650:35 1126:3 820:0 790:40 1104:3 1077:1 615:0 1411:22 829:0 487:0 1182:19 1415:26 887:0 " +
  "848:64 1016:3 1421:18 1299:44 1174:5 1102:3 1227:7 1308:12 591:0 770:0 537:0 896:12 570:14 846:6 1023:2 " +
  "508:0 1248:10 621:13";
const COOLING =
  "13:470 2:721 1:476 2:290 0:153 0:276 0:408 93:554 9:439 0:241 0:290 0:286 0:280 0:446 2:361 29:550 " +
  "0:134 0:398 0:249 0:222 0:196 15:504 0:390 0:110 0:337 1:620 0:163 0:344 0:339 0:268 3:422 0:196 0:269 " +
  "0:536 0:111 0:281 0:261 10:492 0:275 3:398 18:595 0:242 0:125 1:374 0:87 0:265 0:203 0:142 0:232 0:289 " +
  "0:259 0:314 33:460 7:424 16:575 1:406 1:245 9:364 1:317 32:527 0:272 1:310";

const pairs = (text: string) =>
  text.split(" ").map((entry) => entry.split(":").map(Number) as [number, number]);
const codeAt = (index: number) => {
  const number = index < 48 ? index + 1 : index < 58 ? index + 53 : index + 63;
  return String(number).padStart(3, "0");
};
const AREAS: readonly Area[] = pairs(HEATING).map((heating, index) => ({
  code: codeAt(index),
  heating,
  cooling: pairs(COOLING)[index] ?? [0, 0],
}));

const ELEMENTS = { hddcst: "25", cddcst: "26" } as const;
type Element = keyof typeof ELEMENTS;

/** When the file with a month's values appears; the one of cooling comes up to two hours later. */
export function appearsAt(month: number, element: Element): number {
  const key = iso(month).slice(0, 7);
  const day = 3 + Math.floor(6 * chance("file", key));
  const hours = (9 + 9 * chance("file hour", key)) * HOUR;
  const later = element === "cddcst" ? (20 + 100 * chance("second file", key)) * MINUTE : 0;
  return Math.floor((addMonths(month, 1) + day * DAY + hours + later) / MINUTE) * MINUTE;
}

const stampOf = (month: number) => iso(appearsAt(month, "hddcst")).slice(0, 10).replaceAll("-", "");
const fileOf = (month: number, element: Element) => `climdiv-${element}-v1.0.0-${stampOf(month)}`;

/** The newest months whose file of an element is there, newest first. */
function monthsListed(element: Element, now: number): number[] {
  let month = addMonths(now, -1);
  if (appearsAt(month, element) > now) month = addMonths(month, -1);
  return Array.from({ length: FILES_LISTED }, (_, index) => addMonths(month, -index));
}

/** A slow swing of the weather, in [−1, 1]: one for all areas, and one of each. */
const anomaly = (code: string, year: number, month: number) =>
  0.7 * (chance("winter", year, month) + chance("season", year, month >> 1) - 1) +
  0.3 * (2 * chance("local", code, year, month) - 1);

const months = (year: number, month: number) => year * 12 + month;

/**
 * What a file that ends with `last` (in months) says of a month. It is revised every few files, by
 * a degree-day or two, and for the last time in December of the next year.
 */
function valueAt(
  area: Area,
  element: Element,
  [year, month]: readonly [year: number, month: number],
  last: number,
): number {
  const [january, july] = element === "hddcst" ? area.heating : area.cooling;
  const season = (1 - Math.cos(((month - 0.3) / 12) * 2 * Math.PI)) / 2;
  const mean = january + (july - january) * season ** 1.15;
  const swing = anomaly(area.code, year, month) * (0.04 * Math.max(january, july) + 0.08 * mean);
  const final = Math.max(0, mean + (element === "hddcst" ? swing : -swing));
  const edition = Math.floor(Math.min(last, months(year + 1, 11)) / 3);
  const fate = chance("revision", element, area.code, year, month, edition);
  const revision = final > 5 && fate < 0.4 ? Math.round(fate * 10 - 2) : 0;
  return Math.round(final) + revision;
}

const files = new Map<string, string>();
/** Lines of years that no file revises any more; the same in every file. */
const finalLines = new Map<string, string>();

/** The text of the file that ends with a month. */
function degreeDayFile(element: Element, newest: number): string {
  const name = fileOf(newest, element);
  const known = files.get(name);
  if (known) return known;
  const end = new Date(newest);
  const last = months(end.getUTCFullYear(), end.getUTCMonth());
  const lines: string[] = [];
  const alaska = { code: "050", heating: [NaN, NaN], cooling: [NaN, NaN] } as const;
  const inOrder = [...AREAS, alaska].sort((left, right) => (left.code < right.code ? -1 : 1));
  for (const area of inOrder) {
    for (let year = area === alaska ? 1925 : FIRST_YEAR; year <= end.getUTCFullYear(); year++) {
      lines.push(lineOf(area, element, year, last));
    }
  }
  const text = lines.join("");
  files.set(name, text);
  const oldest = files.keys().next().value;
  if (files.size > FILES_CACHED && oldest) files.delete(oldest);
  return text;
}

function lineOf(area: Area, element: Element, year: number, last: number): string {
  const key = `${area.code}0${ELEMENTS[element]}${year}`;
  const isFinal = months(year + 1, 11) < last;
  const known = isFinal ? finalLines.get(key) : undefined;
  if (known) return known;
  const cells = Array.from({ length: 12 }, (_, month) => {
    if (months(year, month) > last || Number.isNaN(area.heating[0])) return MISSING;
    return `${valueAt(area, element, [year, month], last)}.`.padStart(7);
  });
  const line = `${key}${cells.join("")}   \n`;
  if (isFinal) finalLines.set(key, line);
  return line;
}

const text = (status: number, body: string, type: string): SandboxAnswer => ({
  status,
  body,
  headers: { "Content-Type": type },
});

function listing(now: number): string {
  const files = (Object.keys(ELEMENTS) as Element[]).flatMap((element) =>
    monthsListed(element, now).map((month) => ({
      name: fileOf(month, element),
      at: iso(appearsAt(month, element)).slice(0, 16).replace("T", " "),
    })),
  );
  const others = ["climdiv-readme.txt", "county-readme.txt", "climdiv-tmpcst-v1.0.0-20250106"];
  const row = (name: string, at: string) =>
    `<tr><td><a href="${name}">${name}</a></td><td align="right">${at}  </td><td align="right">787K</td></tr>`;
  const rows = [
    ...files.map(({ name, at }) => row(name, at)),
    ...others.map((name) => row(name, "2025-01-06 08:31")),
  ];
  return `<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN">
<html>
 <head>
  <title>Index of /pub/data/cirs/climdiv</title>
 </head>
 <body>
<h1>Index of /pub/data/cirs/climdiv (sandbox)</h1>
  <table>
   <tr><th><a href="?C=N;O=D">Name</a></th><th>Last modified</th><th>Size</th></tr>
${rows.sort().join("\n")}
</table>
</body></html>
`;
}

/** Answers one request as NOAA's file server would at `now`. */
export function answerNoaa(url: URL, now: number): SandboxAnswer {
  if (url.pathname === DIRECTORY) return text(200, listing(now), "text/html;charset=UTF-8");
  const file = url.pathname.slice(DIRECTORY.length);
  for (const element of Object.keys(ELEMENTS) as Element[]) {
    const month = monthsListed(element, now).find((one) => fileOf(one, element) === file);
    if (month !== undefined) return text(200, degreeDayFile(element, month), "text/plain");
  }
  return text(404, "<html><body><h1>Not Found</h1></body></html>\n", "text/html");
}

/** NOAA's part of the sandbox. */
export const noaaSandbox: SandboxProvider = {
  answer: ({ url }, now) => answerNoaa(url, now),
  drifted: (answer) => ({
    ...answer,
    body: String(answer.body)
      .replaceAll("-hddcst-", "-hdd-")
      .replaceAll(/^(\d{10})/gm, "$1 "),
  }),
  refusal: null,
};
