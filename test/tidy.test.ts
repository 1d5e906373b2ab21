// Properties of the repository itself: who may import whom, names, words, sizes, leftovers, docs
// and fresh derivatives. Runs first: a failure here is cheaper to read than any other.

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { generateDrizzleJson, generateMigration } from "drizzle-kit/api";
import { describe, expect, it } from "vitest";
import * as objectsSchema from "../db/bucket/objects.ts";
import * as graphSchema from "../db/markets/graph.ts";
import * as marketsSchema from "../db/markets/schema.ts";
import * as auditSchema from "../db/vision/audit.ts";
import * as comparisonsSchema from "../db/vision/comparisons.ts";
import * as datasetsSchema from "../db/vision/datasets.ts";
import * as endpointsSchema from "../db/vision/endpoints.ts";
import * as experimentsSchema from "../db/vision/experiments.ts";
import * as fleetSchema from "../db/vision/fleet.ts";
import * as incidentsSchema from "../db/vision/incidents.ts";
import * as labelingSchema from "../db/vision/labeling.ts";
import * as rolloutsSchema from "../db/vision/rollouts.ts";
import * as visionSchema from "../db/vision/schema.ts";
import * as suggestionsSchema from "../db/vision/suggestions.ts";
import * as targetsSchema from "../db/vision/targets.ts";
import * as trainingSchema from "../db/vision/training.ts";
import * as workflowsSchema from "../db/vision/workflows.ts";
import { ERRORS } from "../shared/errors.ts";
import { EXPORT_FORMATS } from "../shared/tasks/tasks.ts";
import type { Statement } from "./contract/statement.ts";
import { unassigned, unawaited } from "./tidy/commands.ts";
import {
  brokenLinks,
  isDocumented,
  isPage,
  keysOf,
  missingFiles,
  namesakes,
  pageFaults,
  unknownCommands,
  unnamed,
  unpinned,
  visionRooms,
  wordsOf,
} from "./tidy/documents.ts";
import {
  brokenImports,
  importCircles,
  importsOf,
  roomOf,
  valueImports,
  WITHOUT_ZOD,
} from "./tidy/imports.ts";
import { deadExports, deadFiles } from "./tidy/leftovers.ts";
import { isNameBanned, RULES, violationsOf } from "./tidy/rules.ts";
import { CONTRACT_FILE, statementFaults } from "./tidy/statements.ts";

/** Fails with each fault on a line of its own; `remedy` where they do not say what to do. */
const expectNone = (faults: readonly string[], remedy = "refused") =>
  expect(faults, [remedy, ...faults].join("\n  ")).toEqual([]);

const ROOT = resolve(import.meta.dirname, "..");
const README_WORDS_MAX = 1_200;
const CONTRIBUTING_WORDS_MAX = 800;
/** Where a configuration key is documented, by the file that parses it. */
const CONFIGURATIONS = {
  "edge/markets/config.ts": "edge/local/README.md",
  "edge/console/config.ts": "edge/local/README.md",
  "edge/vision/config.ts": "edge/local/README.md",
  "gpu-node/node/config.ts": "gpu-node/README.md",
  "gpu-node/agent/device-config.ts": "gpu-node/agent/README.md",
};
/** Number of statements of each contract, by the exported name of its table. */
const STATEMENT_COUNTS: Readonly<Record<string, number>> = { MARKETS: 167, VISION: 147 };
/** Rooms that people meet. */
const DOCUMENTED_ROOMS = [
  "edge/markets",
  "edge/markets/store",
  "edge/console",
  "edge/vision",
  "edge/infer",
  "edge/local",
  "gpu-node",
  "gpu-node/agent",
  "native",
  "test/bench",
  "test/peers",
];

const tracked = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
  cwd: ROOT,
  encoding: "utf8",
})
  .split("\n")
  .filter((file) => file && existsSync(join(ROOT, file)));
const read = (file: string) => readFileSync(join(ROOT, file), "utf8");
const rooms = visionRooms(tracked);
const pages = new Map(tracked.filter(isPage).map((file) => [file, read(file)]));
/** Where an error code is documented: with the services that answer it. */
const API_READMES = ["edge/markets/README.md", "edge/console/README.md", ...pages.keys()];
const written = tracked.filter(
  (file) =>
    /\.(ts|tsx|mjs|js|cpp|h|cu|css|py)$/.test(file) && file.includes("/") && !isGenerated(file),
);
const sources = written.filter((file) => /\.(ts|tsx|mjs)$/.test(file));
const texts = new Map(written.map((file) => [file, read(file)]));
const textOf = (file: string) => texts.get(file) ?? "";

function isGenerated(file: string): boolean {
  return file.startsWith("test/golden/") || file.includes("migrations/");
}

describe("rooms", () => {
  it("let a file import only from its own room and from rooms to its left", () => {
    expect(sources.length).toBeGreaterThan(30);
    expectNone(sources.flatMap((file) => brokenImports(file, textOf(file))));
  });

  it.each([
    ["edge/markets/main.ts", `import x from "../vision/config.ts"`],
    ["edge/markets/store/rows.ts", `import type { A } from "../config.ts"`],
    ["edge/http/app.ts", `await import("../markets/main.ts")`],
    ["edge/console/main.ts", `import "../local/stack.ts"`],
    ["edge/markets/routes.ts", `import "./ingest/tick.ts"`],
    [
      "edge/vision/media/videos/videos.ts",
      `import type { Job } from "../../labeling/jobs/jobs.ts"`,
    ],
    ["edge/vision/base/parts.ts", `import { allow } from "../auth/scope.ts"`],
    ["gpu-node/media/frames.ts", `import { open } from "../segmenters/builtin.ts"`],
    ["gpu-node/training/loop.ts", `import type { TaskContext } from "../tasks/context.ts"`],
    ["shared/time.ts", `import { Hono } from "hono"`],
  ])("refuse of %s the import %s", (file, text) => {
    expect(brokenImports(file, text)).toHaveLength(1);
  });

  it("allow imports to the left, and texts that look like imports", () => {
    const allowed = [
      ["edge/console/main.ts", `import "../markets/ingest/tick.ts"`],
      ["edge/vision/labeling/review/stats.ts", `import { findJob } from "../labeling/jobs.ts"`],
      ["shared/time.ts", `const NAMES = ["from", "to"];`],
    ] as const;
    expect(allowed.flatMap(([file, text]) => brokenImports(file, text))).toEqual([]);
  });

  it("keep zod out of the Studio's pages", () => {
    expectNone(sources.flatMap((file) => valueImports(file, textOf(file))));
    const own = WITHOUT_ZOD.filter((file) => texts.has(file));
    expect(own).toContain("shared/workflow/kinds.ts");
    for (const file of own) {
      for (const target of importsOf(textOf(file))) {
        expect(WITHOUT_ZOD, file).toContain(join(dirname(file), target));
      }
    }
  });

  it.each([
    [0, `import type { Job } from "../../shared/wire/labeling.ts";`],
    [0, `import type {\n  Job,\n} from "../../shared/wire/labeling.ts";`],
    [0, `import { KINDS } from "../../shared/workflow/kinds.ts";`],
    [1, `import { Job } from "../../shared/wire/labeling.ts";`],
    [1, `import { type Job } from "../../shared/wire/labeling.ts";`],
    [1, `await import("../../shared/wire/labeling.ts");`],
    [1, `import { z } from "zod";`],
    [1, `import type { z } from "zod";`],
  ])("find %i such imports in %s", (count, text) => {
    expect(valueImports("edge/studio/x.ts", text)).toHaveLength(count);
    expect(valueImports("edge/vision/x.ts", text)).toEqual([]);
  });

  it("hold every source file", () => {
    expectNone(
      sources.filter((file) => !roomOf(file)),
      "give its folder a place on a line of test/tidy/imports.ts",
    );
    expect(roomOf("edge/elsewhere/plan.ts")).toBeUndefined();
  });

  it("know no circle of imports, of types neither", () => {
    expectNone(
      importCircles(texts).map((circle) => circle.join(" → ")),
      "move what both need into a file to their left",
    );
  });

  it("find a circle through types alone", () => {
    const circle = new Map([
      ["edge/http/a.ts", `import { b } from "./b.ts"; import "./d.ts"`],
      ["edge/http/b.ts", `import { c } from "../http/c.ts"`],
      ["edge/http/c.ts", `import type { A } from "./a.ts"`],
      ["edge/http/d.ts", ""],
    ]);
    expect(importCircles(circle)).toEqual([["edge/http/a.ts", "edge/http/b.ts", "edge/http/c.ts"]]);
  });
});

describe("names and lines", () => {
  it("give every file a name that says something", () => {
    expectNone(written.filter(isNameBanned), "name the file by what it holds");
  });

  it.each([
    "shared/utils.ts",
    "edge/vision/index.ts",
    "gpu-node/training/chosen.ts",
    "edge/vision/experiments/comparison-ended.ts",
  ])("refuse a file called %s", (file) => expect(isNameBanned(file)).toBe(true));

  it("call what reacts to an ended task ended.ts", () => {
    expect(isNameBanned("edge/vision/experiments/comparisons/ended.ts")).toBe(false);
  });

  it("hold nothing that a rule refuses", () => {
    const checked = written.filter((file) => !file.startsWith("test/tidy/rules."));
    expectNone(checked.flatMap((file) => violationsOf(file, textOf(file))));
  });

  it.each(RULES)("refuse a planted violation of: $advice", ({ planted: [file, text], advice }) => {
    expect(violationsOf(file, text).some((violation) => violation.endsWith(advice))).toBe(true);
  });

  it("bound functions and their parameters by the linter, but in tests", () => {
    const { linter, overrides } = JSON.parse(read("biome.json"));
    expect(overrides.map(({ includes }: { includes: string[] }) => includes)).toEqual([
      ["test/**"],
    ]);
    expect(linter.rules.complexity).toEqual({
      noExcessiveLinesPerFunction: { level: "error", options: { maxLines: 99 } },
      useMaxParams: { level: "error", options: { max: 4 } },
    });
  });

  it("give no two files of the node's rooms one name", () => {
    expectNone(
      namesakes(sources.filter((file) => file.startsWith("gpu-node/"))),
      "two files of the node have this name: rename one",
    );
    expect(namesakes(["gpu-node/onnx/zip.ts", "gpu-node/objects/zip.ts"])).toEqual(["zip.ts"]);
  });

  it("leave no file and no exported name that nobody uses", () => {
    const all = new Map([...texts, ["vitest.config.ts", read("vitest.config.ts")]]);
    expectNone(
      [...deadFiles(all), ...deadExports(all)],
      "nothing uses it: delete it, or do not export it",
    );
  });

  it("find a file and a name that nobody uses", () => {
    const planted = new Map([
      ["edge/http/main.ts", `import { used } from "./used.ts"; used();`],
      ["edge/http/used.ts", "export const used = () => {};\nexport type Unused = number;"],
      ["edge/http/unused.ts", ""],
    ]);
    expect(deadFiles(planted)).toEqual(["edge/http/unused.ts"]);
    expect(deadExports(planted)).toEqual(["edge/http/used.ts: nobody uses Unused"]);
  });
});

describe("derivatives", () => {
  it("pins every dependency exactly and locks it without hand-written addresses", () => {
    const manifest = JSON.parse(read("package.json"));
    const { dependencies, devDependencies, optionalDependencies } = manifest;
    const all = { ...dependencies, ...devDependencies, ...optionalDependencies };
    expectNone(unpinned(all), "pin the exact version in package.json");
    expect(unpinned({ zod: "4.6.7", hono: "^4.13.19" })).toEqual(["hono"]);
    expect(read("package-lock.json")).not.toContain('"resolved"');
  });

  const visionTables = {
    ...visionSchema,
    ...datasetsSchema,
    ...labelingSchema,
    ...suggestionsSchema,
    ...trainingSchema,
    ...endpointsSchema,
    ...comparisonsSchema,
    ...experimentsSchema,
    ...fleetSchema,
    ...rolloutsSchema,
    ...targetsSchema,
    ...workflowsSchema,
    ...auditSchema,
    ...incidentsSchema,
    ...objectsSchema,
  };

  it.each([
    ["db/markets/migrations", { ...marketsSchema, ...objectsSchema }],
    ["db/markets/graph-migrations", graphSchema],
    ["db/vision/migrations", visionTables],
  ])("has a migration in %s for every change of its schema", async (folder, schema) => {
    expectNone(
      await missingMigration(folder, schema),
      "npx drizzle-kit generate --name NAME (vision: --config drizzle.vision.config.ts)",
    );
  });

  it("misses the migration of a table that is gone", async () => {
    const { auditEntry: _, ...others } = visionTables;
    expect(await missingMigration("db/vision/migrations", others)).toHaveLength(1);
  });
});

describe("documents", () => {
  it("document every error code beside the services that answer it", () => {
    const documented = API_READMES.map(read).join("\n");
    expectNone(
      unnamed(Object.keys(ERRORS), documented),
      "tell of the error code in the README of the service that answers it",
    );
    expect(unnamed(["bad_body", "no_such_code"], documented)).toEqual(["no_such_code"]);
  });

  it.each(Object.entries(CONFIGURATIONS))("document every key of %s in %s", (config, readme) => {
    const keys = keysOf(read(config));
    expect(keys.length).toBeGreaterThan(1);
    expectNone(unnamed(keys, read(readme)), "tell of the key in the table of settings");
  });

  it("find a key without its document", () => {
    const config =
      "export const Config = z.object({\n  LEASE_MS: z.number(),\n  FLAG: z.string(),\n});";
    expect(unnamed(keysOf(config), "`FLAG` switches it on")).toEqual(["LEASE_MS"]);
  });

  const documented = [...DOCUMENTED_ROOMS, ...rooms.map((room) => `edge/vision/${room}`)];
  it.each(documented)("tell of %s in a README of its own", (room) => {
    expect(isDocumented(room, read(`${room}/README.md`), read("README.md"))).toBe(true);
  });

  it("take neither a heading for a README, nor one that the first does not lead to", () => {
    const long = "word ".repeat(200);
    expect(isDocumented("edge/infer", long, "see edge/infer")).toBe(true);
    expect(isDocumented("edge/infer", "# Infer", "see edge/infer")).toBe(false);
    expect(isDocumented("edge/infer", long, "see edge/vision")).toBe(false);
  });

  it("keep the first README and CONTRIBUTING short", () => {
    expect(wordsOf(read("README.md"))).toBeLessThanOrEqual(README_WORDS_MAX);
    expect(wordsOf(read("CONTRIBUTING.md"))).toBeLessThanOrEqual(CONTRIBUTING_WORDS_MAX);
    expect(wordsOf("one two\n")).toBe(2);
  });

  it("name each format of datasets in the page of datasets", () => {
    const page = "edge/vision/labeling/datasets/README.md";
    expectNone(unnamed(EXPORT_FORMATS, read(page)), `tell of it in ${page}`);
  });

  it("name files in CONTRIBUTING that are there", () => {
    expectNone(missingFiles(ROOT, read("CONTRIBUTING.md")), "name the file where it is now");
    expect(missingFiles(ROOT, "see `edge/nowhere.ts` and `db/`")).toEqual(["edge/nowhere.ts"]);
  });

  it("give each room of vision a page, and keep each page short", () => {
    expect(rooms).toHaveLength(10);
    expect(pageFaults(rooms, pages)).toEqual([]);
  });

  it("find a page of vision that is too long, and a room without one", () => {
    const table = `<!-- roles -->\n${"| word ".repeat(900)}|\n<!-- /roles -->`;
    const planted = new Map([
      ["edge/vision/README.md", "word ".repeat(901)],
      ["edge/vision/auth/README.md", `${"word ".repeat(900)}\n${table}\n`],
    ]);
    expect(pageFaults(["auth", "media"], planted)).toEqual([
      "edge/vision/media/README.md: the room has no page; write one",
      expect.stringMatching(/^edge\/vision\/README\.md: 901 words, 900 at most; cut /),
    ]);
    expect(visionRooms(["edge/vision/base/room.ts", "edge/vision/media/room.ts"])).toEqual([
      "media",
    ]);
    expect(["edge/vision/README.md", "edge/vision/auth/x/README.md"].map(isPage)).toEqual([
      true,
      false,
    ]);
  });

  it("link to what is there", () => {
    const documents = tracked.filter((file) => file.endsWith(".md"));
    expectNone(
      documents.flatMap((file) => brokenLinks(ROOT, file, read(file))),
      "mend the link",
    );
    expect(brokenLinks(ROOT, "README.md", "[x](edge/nowhere.md)")).toHaveLength(1);
  });

  it("use no variable in a command before one assigns it", () => {
    const documents = tracked.filter((file) => file.endsWith(".md"));
    expectNone(
      documents.flatMap((file) => unassigned(read(file))),
      "the example uses a shell variable that nothing above sets",
    );
    const lines = ['ask() { curl "$1/$T"; }', "A=$(ask $B)", "ask $A '$C' # $D", "ask $E", "E=1"];
    expect(unassigned(`\`\`\`sh\n${lines.join("\n")}\n\`\`\``)).toEqual(["T", "B", "E"]);
  });

  it("wait for what they began before they use it", () => {
    expectNone(
      unawaited(read("README.md")),
      "the example reads what has not ended: wait for it first",
    );
    const begin = "```sh\nJOB=$(post label '{}' | field job_id)\n";
    expect(unawaited(`${begin}ended status/$JOB\nget jobs/$JOB\n\`\`\``)).toEqual([]);
    expect(unawaited(`${begin}get jobs/$JOB\nended status/$JOB\n\`\`\``)).toEqual(["JOB"]);
    const asked = "```sh\nFILE=models/$M/exports/$(post models/$M/export '{}' | field export_id)\n";
    expect(unawaited(`${asked}ended $FILE\nget $FILE\n\`\`\``)).toEqual([]);
    expect(unawaited(`${asked}get $FILE\nended $FILE\n\`\`\``)).toEqual(["FILE"]);
  });

  it("name only commands that there are", () => {
    const { scripts } = JSON.parse(read("package.json"));
    const documents = tracked.filter((file) => file.endsWith(".md"));
    expectNone(
      documents.flatMap((file) => unknownCommands(read(file), scripts)),
      "no such command in package.json",
    );
    expect(unknownCommands("`npm run bench`, `npm run nothing`", scripts)).toEqual(["nothing"]);
  });
});

describe("contracts", () => {
  const sourceOf = (file: string) => (tracked.includes(file) ? read(file) : undefined);
  const tables = tracked.filter((file) => CONTRACT_FILE.test(file));

  it("have a table of statements", () => {
    expect(tables).toContain("test/contract/markets.ts");
  });

  it.each(tables)("have in %s a test for every statement", async (file) => {
    const exported: Record<string, readonly Statement[]> = await import(join(ROOT, file));
    const faults = Object.entries(exported).flatMap(([name, statements]) =>
      statementFaults(statements, STATEMENT_COUNTS[name] ?? 0, sourceOf),
    );
    expect([Object.keys(exported).length, faults]).toEqual([1, []]);
  });

  it("find a statement that no test holds", () => {
    const held = { number: 1, text: "rows are sorted", file: "test/x.test.ts", test: "sorts %s" };
    const source = (file: string) => (file === held.file ? `it("sorts %s", () => {});` : undefined);
    const faults = (...statements: Statement[]) => statementFaults(statements, 2, source);
    const second = { ...held, number: 2 };
    expect(faults(held, second)).toEqual([]);
    expect(faults(held)).toEqual(["1 statements, not 2"]);
    expect(faults(held, { ...held, number: 3 })).toEqual(["3 stands where 2 belongs"]);
    expect(faults(held, { ...second, text: " " })).toEqual(["2 has no text"]);
    expect(faults(held, { ...second, file: "test/y.test.ts" })).toEqual([
      "2: there is no file test/y.test.ts",
    ]);
    expect(faults(held, { ...second, test: "sorts" })).toEqual([
      '2: test/x.test.ts has no test with the title "sorts"',
    ]);
  });
});

/** Statements that a folder's migrations lack of a schema. */
async function missingMigration(folder: string, schema: Record<string, unknown>) {
  const journal = JSON.parse(read(`${folder}/meta/_journal.json`));
  const last = String(journal.entries.at(-1).idx).padStart(4, "0");
  const snapshot = JSON.parse(read(`${folder}/meta/${last}_snapshot.json`));
  return generateMigration(snapshot, generateDrizzleJson({ ...schema }, snapshot.id));
}
