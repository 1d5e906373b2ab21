// Bundles of the Workers: a folder each with one ES module beside its WebAssembly, as `wrangler
// deploy` would build it. Bundling takes longer than all else that a start does, so folders are
// kept, and one whose files are as they were is taken again.

import { existsSync, readdirSync, readFileSync, statSync, utimesSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { builtinModules } from "node:module";
import { join, resolve } from "node:path";
import { build, type Plugin } from "esbuild";
import { DAY, systemClock } from "../../shared/time.ts";
import { ROOT } from "./state.ts";

/** Where bundles are kept, for whatever is started from this checkout. */
const KEPT = join(ROOT, "node_modules/.cache/vantage-bundles");
/** Files that decide on a bundle beside those that are in it. */
const RECIPE = [
  ...["edge/local/bundles.ts", "wrangler.toml"],
  ...["package.json", "package-lock.json", "tsconfig.json"],
];
const INPUTS = "inputs.json";
/** Nobody runs what was taken so long ago. */
const UNUSED_MS = 30 * DAY;

/** Size and time of change of each file that a bundle was made of, by its path. */
export type Inputs = Record<string, string>;

/** How a Worker is bundled. */
interface BundleOptions {
  /** Names its folder. */
  name: string;
  /** The module that it begins with. */
  main: string;
  /** The types that wrangler.toml gives to files, by glob. */
  rules: readonly { type: string; include: string[] }[];
  /** The folder of all bundles. */
  kept?: string;
}

/** The folder of a Worker's `main.js` and of the WebAssembly that it imports. */
export const bundle = ({ name, main, rules, kept = KEPT }: BundleOptions): Promise<string> =>
  keptFolder({ name, kept, make: (folder) => buildInto(folder, main, rules) });

/** What a kept folder is made of, and how. */
interface KeptFolder {
  /** Names it. */
  name: string;
  /** The folder of all bundles. */
  kept?: string;
  /** Fills it; gives the files of which it was made, as `inputsOf` states them. */
  make: (folder: string) => Promise<Inputs>;
}

/** A folder of built files that is made anew only where a file that it was made of changed. */
export async function keptFolder({ name, kept = KEPT, make }: KeptFolder): Promise<string> {
  await mkdir(kept, { recursive: true });
  const before = readdirSync(kept)
    .filter((folder) => folder.startsWith(`${name}-`))
    .map((folder) => join(kept, folder));
  const current = before.find(isCurrent);
  if (current) {
    // A use renews the time by which unused folders are deleted.
    const now = systemClock() / 1_000;
    utimesSync(current, now, now);
    return current;
  }
  const folder = await mkdtemp(join(kept, `${name}-`));
  const inputs = await make(folder);
  // Written last: a folder without this file was never completed.
  await writeFile(join(folder, INPUTS), JSON.stringify(inputs));
  for (const one of before.filter(isUnused)) await rm(one, { recursive: true, force: true });
  return folder;
}

/** Whether every file that a bundle was made of is as it was then. */
function isCurrent(folder: string): boolean {
  try {
    const inputs = JSON.parse(readFileSync(join(folder, INPUTS), "utf8")) as Inputs;
    return Object.entries(inputs).every(([path, state]) => stateOf(path) === state);
  } catch {
    return false;
  }
}

const isUnused = (folder: string) => systemClock() - statSync(folder).mtimeMs > UNUSED_MS;

function stateOf(path: string): string {
  const { size, mtimeMs } = statSync(resolve(ROOT, path));
  return `${size} ${mtimeMs}`;
}

async function buildInto(
  folder: string,
  main: string,
  rules: BundleOptions["rules"],
): Promise<Inputs> {
  const began = systemClock();
  const { metafile } = await build({
    absWorkingDir: ROOT,
    entryPoints: [main],
    outfile: join(folder, "main.js"),
    bundle: true,
    format: "esm",
    target: "es2024",
    conditions: ["workerd", "worker", "browser"],
    mainFields: ["browser", "module", "main"],
    external: ["cloudflare:*", "node:*"],
    loader: { ".wasm": "copy" },
    sourcemap: "linked",
    logLevel: "error",
    metafile: true,
    plugins: [requiredBuiltins, textModules(rules)],
    define: { "process.env.NODE_ENV": '"production"' },
  });
  return inputsOf(Object.keys(metafile.inputs), began);
}

/**
 * The state of these files and of the recipe; a file that was changed since the build began counts
 * as one that is not current.
 */
export function inputsOf(paths: readonly string[], began: number): Inputs {
  // What a plugin answered or a package left out is no file.
  const files = paths.filter((path) => existsSync(resolve(ROOT, path)));
  const states = [...files, ...RECIPE].map((path) => {
    const isChanged = statSync(resolve(ROOT, path)).mtimeMs >= began;
    return [path, isChanged ? "changed" : stateOf(path)] as const;
  });
  return Object.fromEntries(states);
}

/** Files that wrangler.toml declares to be texts are imported as strings. */
const textModules = (rules: BundleOptions["rules"]): Plugin => ({
  name: "text-modules",
  setup: ({ onLoad }) => {
    const globs = rules.filter(({ type }) => type === "Text").flatMap(({ include }) => include);
    const filter = new RegExp(`(${globs.map(patternOf).join("|")})$`);
    onLoad({ filter }, async ({ path }) => ({
      contents: await readFile(path, "utf8"),
      loader: "text",
    }));
  },
});

const patternOf = (glob: string) =>
  glob
    .replace(/[.+^${}()|[\]\\?]/g, "\\$&")
    .replace(/^\*\*/, "")
    .replaceAll("*", "[^/]*");

/** CommonJS packages `require` Node's modules by bare name; an ES module can only import them. */
const requiredBuiltins: Plugin = {
  name: "required-builtins",
  setup: ({ onResolve, onLoad }) => {
    const filter = new RegExp(`^(node:)?(${builtinModules.join("|")})$`);
    onResolve({ filter }, ({ path, kind }) =>
      kind === "require-call"
        ? { path: `node:${path.replace(/^node:/, "")}`, namespace: "required-builtin" }
        : null,
    );
    onLoad({ filter: /.*/, namespace: "required-builtin" }, ({ path }) => ({
      contents: `import builtin from ${JSON.stringify(path)};\nmodule.exports = builtin;`,
    }));
  },
};
