// Which test file belongs to which vitest project. Programs: the file works with native code or
// with processes of its own, so it gets a process of its own. Stacks: the same of the commands that
// people run. Worlds: it needs the shared Postgres and the bundled services. Pure: all others.

import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

const ROOT = resolve(import.meta.dirname, "../..");

/**
 * Folders whose tests load native code or start programs; and simulations, which take minutes: of
 * the files that begin first, none is left alone at the end.
 */
const PROGRAM_FOLDERS = ["test/native/", "test/gpu-node/", "test/sim/"];
const STACK_FOLDER = "test/local/";

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

/** The projects, in the order in which their files begin. */
export const PROJECT_NAMES = ["programs", "stacks", "worlds", "pure"] as const;
type ProjectName = (typeof PROJECT_NAMES)[number];

function projectOf(file: string): ProjectName {
  if (needsSetup(join(ROOT, file))) return "worlds";
  if (file.startsWith(STACK_FOLDER)) return "stacks";
  return PROGRAM_FOLDERS.some((folder) => file.startsWith(folder)) ? "programs" : "pure";
}

/** Test files of each project, relative to the checkout. */
export const PROJECTS: Record<ProjectName, string[]> = {
  programs: [],
  stacks: [],
  worlds: [],
  pure: [],
};
for (const file of globSync("test/**/*.test.ts", { cwd: ROOT }).sort()) {
  PROJECTS[projectOf(file)].push(file);
}
