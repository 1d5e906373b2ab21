// Bundles of the Workers that are kept: taken again while their files are as they were, and made
// anew after a change of any.

import { mkdirSync, readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { bundle } from "../../edge/local/bundles.ts";
import { DAY } from "../../shared/time.ts";
import { temporaryFolder } from "../support/postgres.ts";

const RULES = [{ type: "Text", include: ["**/*.css"] }];

/** A Worker of three files, each changed a minute ago, and how it is bundled. */
function worker() {
  const dir = temporaryFolder();
  const kept = join(dir, "kept");
  const write = (name: string, text: string, minutesAgo = 1) => {
    const path = join(dir, name);
    writeFileSync(path, text);
    const at = Date.now() / 1_000 - minutesAgo * 60;
    utimesSync(path, at, at);
  };
  write(
    "main.ts",
    `import { two } from "./two.ts";\nimport page from "./page.css";\nexport default [two, page];\n`,
  );
  write("two.ts", "export const two: number = 2;\n");
  write("page.css", "p { margin: 0 }\n");
  const make = () => bundle({ name: "small", main: join(dir, "main.ts"), rules: RULES, kept });
  return { kept, write, make };
}
const moduleIn = (folder: string) => readFileSync(join(folder, "main.js"), "utf8");

it("is taken again while each of its files is as it was", async () => {
  const { make } = worker();
  const first = await make();
  expect(moduleIn(first)).toContain("margin: 0");
  expect(await make()).toBe(first);
});

it.each([
  ["a module", "two.ts", "export const two: number = 22;\n"],
  ["a text", "page.css", "p { margin: 22px }\n"],
])("is made anew when %s has changed", async (_, name, text) => {
  const { write, make } = worker();
  const first = await make();
  write(name, text);
  const second = await make();
  expect(second).not.toBe(first);
  expect(moduleIn(second)).toContain("22");
  // Whoever runs the one before still has it.
  expect(moduleIn(first)).not.toContain("22");
});

it("is made anew when a file was changed while it was bundled", async () => {
  const { write, make } = worker();
  write("two.ts", "export const two: number = 3;\n", -1);
  const first = await make();
  write("two.ts", "export const two: number = 4;\n", -1);
  expect(moduleIn(await make())).toContain("4");
  expect(moduleIn(first)).toContain("3");
});

it("is whole for each of several who make it at once", async () => {
  const { make } = worker();
  const folders = await Promise.all([make(), make(), make()]);
  for (const folder of folders) expect(moduleIn(folder)).toContain("margin: 0");
  expect(folders).toContain(await make());
});

it("goes a month after somebody took it, and what broke off is no bundle", async () => {
  const { kept, write, make } = worker();
  const first = await make();
  mkdirSync(join(kept, "small-broken"));
  const old = (Date.now() - 31 * DAY) / 1_000;
  utimesSync(first, old, old);
  // Whoever takes it again keeps it.
  expect(await make()).toBe(first);
  write("two.ts", "export const two: number = 3;\n", 3);
  const between = await make();
  expect(readdirSync(kept)).toHaveLength(3);
  for (const folder of [first, between]) utimesSync(folder, old, old);
  write("two.ts", "export const two: number = 5;\n", 2);
  const second = await make();
  expect(moduleIn(second)).toContain("5");
  expect(readdirSync(kept).sort()).toEqual(["small-broken", second.split("/").at(-1)].sort());
});
