// Properties of the repository itself: who may import whom, names, sizes, leftovers, fresh
// derivatives. Runs first: a failure here is cheaper to read than any other.

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { generateDrizzleJson, generateMigration } from "drizzle-kit/api";
import { describe, expect, it } from "vitest";
import * as graphSchema from "../db/markets/graph.ts";
import * as marketsSchema from "../db/markets/schema.ts";
import * as visionSchema from "../db/vision/schema.ts";
import * as trainingSchema from "../db/vision/training.ts";
import { ERRORS } from "../shared/errors.ts";

const ROOT = resolve(import.meta.dirname, "..");

/** A file may import from its own room and from rooms to its left on the same line. */
const LINES = [
  "shared · db/markets · edge/http · edge/markets/store · edge/markets",
  "shared · db/markets · edge/http · edge/markets/store · edge/markets/ingest · edge/console",
  "shared · db/vision · edge/http · edge/vision/auth · edge/vision/tasks · edge/vision/progress · " +
    "edge/vision/projects · edge/vision/labeling · edge/vision/training · edge/vision/serving · " +
    "edge/vision/workflows · edge/vision",
  "shared · edge/studio",
  "shared · native · gpu-node",
].map((line) => line.split(" · "));
const ROOMS = [...new Set(LINES.flat()), "edge/local", "test"].sort((a, b) => b.length - a.length);
/** `npm run models` is its users' word for what `gpu-node/models.ts` keeps. */
const BANNED_NAMES =
  /(^|\/)(utils?|helpers?|common|misc|types|(?<!^gpu-node\/)models|constants|manager|(?<!^native\/)index)(\.|\/)/;
const BANNED_TEXT: readonly [RegExp, string, RegExp][] = [
  [/\bconsole\.log\(/, "use the logger", /^edge\/http\/log\.ts$/],
  [
    /\bDate\.now\(\)|new Date\(\)/,
    "take the time from a clock",
    /^(shared\/time\.ts|edge\/local|test)/,
  ],
  [/\bprocess\.env\b/, "parse it in config.ts", /^(edge\/local|test|gpu-node\/(main|models)\.ts)/],
  [/\b(TODO|FIXME|XXX)\b/, "finish it before merge", /^test\/tidy/],
  [/\bas any\b|: any\b/, "parse the value at the boundary", /^test\/tidy/],
];
const FILE_LINES_MAX = 500;
const COLUMNS_MAX = 100;

const tracked = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
  cwd: ROOT,
  encoding: "utf8",
})
  .split("\n")
  .filter((file) => file && existsSync(join(ROOT, file)));
const sources = tracked.filter((file) => /\.(ts|tsx|mjs)$/.test(file) && file.includes("/"));
const read = (file: string) => readFileSync(join(ROOT, file), "utf8");
const roomOf = (file: string) => ROOMS.find((room) => file.startsWith(`${room}/`));

function mayImport(from: string, to: string): boolean {
  if (from === to || from === "test") return true;
  if (to === "test" || to === "edge/local") return false;
  if (from === "edge/local")
    return to.startsWith("edge/") || to.startsWith("db/") || to === "shared";
  return LINES.some((line) => line.includes(to) && line.indexOf(to) < line.indexOf(from));
}

/** Static, dynamic and type-only imports: a type dependency is a dependency. */
const importsOf = (text: string) =>
  [...text.matchAll(/(?<!["'])\b(?:from\s*|import\s*\(?\s*)["']([^"']+)["']/g)].map(
    (match) => match[1] ?? "",
  );

function brokenImports(file: string, text: string): string[] {
  const from = roomOf(file);
  return importsOf(text).flatMap((target) => {
    if (!target.startsWith(".")) {
      const bare = from === "shared" && target !== "zod";
      return bare ? [`${file}: shared may import zod only, not ${target}`] : [];
    }
    const to = roomOf(relative(ROOT, resolve(ROOT, dirname(file), target)));
    if (from && to && !mayImport(from, to)) return [`${file}: ${from} may not import ${to}`];
    return [];
  });
}

describe("tidy", () => {
  it("lets a file import only from its own room and from rooms to its left", () => {
    expect(sources.length).toBeGreaterThan(30);
    expect(sources.flatMap((file) => brokenImports(file, read(file)))).toEqual([]);
  });

  it("sees cross-service, rightward, dynamic and type-only imports", () => {
    const broken = (file: string, text: string) => brokenImports(file, text).length > 0;
    expect(broken("edge/markets/main.ts", `import x from "../vision/config.ts"`)).toBe(true);
    expect(broken("edge/markets/store/plan.ts", `import type { A } from "../config.ts"`)).toBe(
      true,
    );
    expect(broken("edge/http/app.ts", `await import("../markets/main.ts")`)).toBe(true);
    expect(broken("edge/console/main.ts", `import "../local/stack.ts"`)).toBe(true);
    expect(broken("edge/markets/routes.ts", `import "./ingest/tick.ts"`)).toBe(true);
    expect(broken("shared/time.ts", `import { Hono } from "hono"`)).toBe(true);
    expect(broken("edge/console/main.ts", `import "../markets/ingest/tick.ts"`)).toBe(false);
    expect(broken("shared/time.ts", `const NAMES = ["from", "to"];`)).toBe(false);
  });

  it("keeps every source file in a room, under a name that says something", () => {
    expect(sources.filter((file) => !roomOf(file))).toEqual([]);
    expect(sources.filter((file) => BANNED_NAMES.test(file))).toEqual([]);
  });

  it("keeps files under 500 lines and prose within 100 columns", () => {
    const long = sources.filter((file) => read(file).split("\n").length > FILE_LINES_MAX);
    const wide = sources.flatMap((file) =>
      read(file)
        .split("\n")
        .flatMap((line, index) =>
          line.length > COLUMNS_MAX && /^\s*(\/\/|\*|\/\*\*)/.test(line)
            ? [`${file}:${index + 1}`]
            : [],
        ),
    );
    expect([...long, ...wide]).toEqual([]);
  });

  it("finds no banned call, leftover or untyped value", () => {
    const found = sources.flatMap((file) =>
      BANNED_TEXT.filter(
        ([pattern, , allowed]) => !allowed.test(file) && pattern.test(read(file)),
      ).map(([, advice]) => `${file}: ${advice}`),
    );
    expect(found).toEqual([]);
  });

  it("pins every dependency exactly and locks it without hand-written addresses", () => {
    const { dependencies, devDependencies, optionalDependencies } = JSON.parse(
      read("package.json"),
    );
    const all = Object.entries({ ...dependencies, ...devDependencies, ...optionalDependencies });
    expect(all.filter(([, version]) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(String(version)))).toEqual(
      [],
    );
    expect(read("package-lock.json")).not.toContain('"resolved"');
  });

  it.each([
    ["db/markets/migrations", marketsSchema],
    ["db/markets/graph-migrations", graphSchema],
    ["db/vision/migrations", { ...visionSchema, ...trainingSchema }],
  ])("has a migration in %s for every change of its schema", async (folder, schema) => {
    const journal = JSON.parse(read(`${folder}/meta/_journal.json`));
    const last = String(journal.entries.at(-1).idx).padStart(4, "0");
    const snapshot = JSON.parse(read(`${folder}/meta/${last}_snapshot.json`));
    const current = generateDrizzleJson({ ...schema }, snapshot.id);
    expect(await generateMigration(snapshot, current)).toEqual([]);
  });

  it("documents every error code and every configuration key in the README", () => {
    const readme = read("README.md");
    const codes = Object.entries(ERRORS).map(([code, { status }]) => [code, String(status)]);
    expect(codes.filter(([code]) => !readme.includes(`\`${code}\``))).toEqual([]);
    const keys = ["edge/markets", "edge/console", "edge/vision", "gpu-node"].flatMap((room) =>
      [...read(`${room}/config.ts`).matchAll(/^ {2}([A-Z][A-Z0-9_]+):/gm)].map((match) => match[1]),
    );
    expect(keys.length).toBeGreaterThan(8);
    expect(keys.filter((key) => !readme.includes(`\`${key}\``))).toEqual([]);
  });
});
