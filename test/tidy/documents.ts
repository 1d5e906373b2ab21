// What documents and settings owe to the code that they speak of. Each check names what is missing
// or wrong.

import { existsSync } from "node:fs";
import { dirname, join } from "node:path";

/** A room's README says more than a heading. */
const ROOM_WORDS_MIN = 100;
/** Words of a page of vision: `edge/vision/README.md` or `edge/vision/ROOM/README.md`. */
const PAGE_WORDS_MAX = 900;
const VISION = "edge/vision";
/** A table that `npm run golden` writes between markers: people look things up in it. */
const GENERATED = /<!-- (\w+) -->[\s\S]*?<!-- \/\1 -->/g;

/** Words as a reader counts them: what stands between white space. */
export function wordsOf(text: string): number {
  return text.split(/\s+/).filter(Boolean).length;
}

/** Whether a file is a page of vision. */
export const isPage = (file: string): boolean => /^edge\/vision\/(\w+\/)?README\.md$/.test(file);

/** Rooms of vision: its folders with a `room.ts`, but for `base`, which has no routes. */
export const visionRooms = (files: readonly string[]): string[] =>
  files.flatMap((file) => /^edge\/vision\/(?!base\/)(\w+)\/room\.ts$/.exec(file)?.[1] ?? []);

/**
 * Pages of vision, by their paths, that are too long, and rooms that have none. Generated tables
 * do not count: the table of roles alone has 730 words.
 */
export function pageFaults(rooms: readonly string[], pages: ReadonlyMap<string, string>): string[] {
  const missing = ["", ...rooms.map((room) => `/${room}`)]
    .map((folder) => `${VISION}${folder}/README.md`)
    .filter((page) => !pages.has(page))
    .map((page) => `${page}: the room has no page; write one`);
  const long = [...pages].flatMap(([page, text]) => {
    const words = wordsOf(text.replace(GENERATED, ""));
    const remedy = "cut what /docs or a comment says, or move it to the room that owns it";
    return words > PAGE_WORDS_MAX
      ? [`${page}: ${words} words, ${PAGE_WORDS_MAX} at most; ${remedy}`]
      : [];
  });
  return [...missing, ...long];
}

/** Names that a document does not hold as code. */
export const unnamed = (names: readonly string[], document: string): string[] =>
  names.filter((name) => !document.includes(`\`${name}\``));

/** Keys that a `config.ts` parses. */
export const keysOf = (config: string): string[] =>
  [...config.matchAll(/^ {2}([A-Z][A-Z0-9_]+):/gm)].map((match) => match[1] ?? "");

/** Whether a room has a README to speak of, and the first README leads to it. */
export const isDocumented = (room: string, own: string, first: string): boolean =>
  wordsOf(own) > ROOM_WORDS_MIN && first.includes(room);

/** Relative links of a document, below a root, to files that are not there. */
export function brokenLinks(root: string, file: string, text: string): string[] {
  return [...text.matchAll(/\]\((?!https?:|#|mailto:)([^)#\s]+)[^)]*\)/g)]
    .map((match) => match[1] ?? "")
    .filter((target) => !existsSync(join(root, dirname(file), target)))
    .map((target) => `${file}: ${target}`);
}

/** Paths from the root that a document names as code, and where nothing is. */
export const missingFiles = (root: string, text: string): string[] =>
  [...text.matchAll(/`((?:edge|shared|gpu-node|db|test|native)\/[\w./-]+)`/g)]
    .map((match) => match[1] ?? "")
    .filter((path) => !existsSync(join(root, path)));

/** Commands of npm that a document names and `package.json` does not have. */
export const unknownCommands = (text: string, scripts: object): string[] =>
  [...text.matchAll(/npm run ([\w-]+)/g)]
    .map((match) => match[1] ?? "")
    .filter((name) => !(name in scripts));

/** Dependencies whose version is no exact one. */
export const unpinned = (dependencies: Readonly<Record<string, string>>): string[] =>
  Object.entries(dependencies)
    .filter(([, version]) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version))
    .map(([name]) => name);

/** Names of files that more than one folder has. */
export function namesakes(files: readonly string[]): string[] {
  const names = files.map((file) => file.split("/").at(-1) ?? "");
  return names.filter((name, index) => names.indexOf(name) !== index);
}
