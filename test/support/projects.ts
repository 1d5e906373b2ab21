// Which test file belongs to which vitest project. Programs: the file works with native code or
// with processes of its own, so it gets a process of its own. Worlds: it needs the shared Postgres
// and the bundled services. Pure: all others.

import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

const ROOT = resolve(import.meta.dirname, "../..");

/**
 * Folders whose tests load native code or start programs; and simulations, which take minutes: of
 * the files that begin first, none is left alone at the end.
 */
const PROGRAM_FOLDERS = ["test/native/", "test/gpu-node/", "test/local/", "test/sim/"];

/** A file that reads what the global set-up provides. */
const PROVIDED = /\binject\("/;
const IMPORT = /\bfrom "(\.[^"]+)"/g;

const needs = new Map<string, boolean>();

/** Whether a file, or one under test/ that it imports, reads what the global set-up provides. */
function needsSetup(path: string): boolean {
  const known = needs.get(path);
  if (known !== undefined) return known;
  // While its imports are followed, a file counts as one that needs nothing: circles end here.
  needs.set(path, false);
  const text = readFileSync(path, "utf8");
  const imported = [...text.matchAll(IMPORT)]
    .map(([, specifier]) => join(dirname(path), specifier as string))
    .filter((target) => target.startsWith(join(ROOT, "test/")) && existsSync(target));
  const answer = PROVIDED.test(text) || imported.some(needsSetup);
  needs.set(path, answer);
  return answer;
}

function projectOf(file: string): "programs" | "worlds" | "pure" {
  if (needsSetup(join(ROOT, file))) return "worlds";
  return PROGRAM_FOLDERS.some((folder) => file.startsWith(folder)) ? "programs" : "pure";
}

/** Test files of each project, relative to the checkout. */
export const PROJECTS = { programs: [] as string[], worlds: [] as string[], pure: [] as string[] };
for (const file of globSync("test/**/*.test.ts", { cwd: ROOT }).sort()) {
  PROJECTS[projectOf(file)].push(file);
}
