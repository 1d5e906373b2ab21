// The Studio's files: small enough to be opened on a slow connection, whole in themselves, and
// without the service's schemas.

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";
import { type Metafile, stop } from "esbuild";
import { afterAll, beforeAll, expect, it } from "vitest";
import { buildStudio } from "../../edge/local/studio-build.ts";

const KB = 1_000;
/** The shell and the first page: what is loaded before anything is seen. */
const FIRST_BYTES_MAX = 60 * KB;
/** Each further page, beside what the shell has loaded. */
const PAGE_BYTES_MAX = 40 * KB;
const FIRST_PAGE = "edge/studio/projects/project-list.tsx";
const KNOWN = new Set(["http://www.w3.org", "http://localhost"]);

let folder: string;
let metafile: Metafile;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "vantage-studio-"));
  metafile = await buildStudio(folder);
});
afterAll(async () => {
  await stop();
  rmSync(folder, { recursive: true, force: true });
});

const fileOf = (output: string) => readFileSync(join(folder, "studio/assets", basename(output)));
const zipped = (output: string) => gzipSync(fileOf(output)).length;
const page = () => readFileSync(join(folder, "studio/index.html"), "utf8");

/** The file of an entry and all that it loads before it runs. */
function loadedWith(entryPoint: string): Set<string> {
  const { outputs } = metafile;
  const [output] = Object.entries(outputs).find(([, one]) => one.entryPoint === entryPoint) ?? [];
  if (output === undefined) throw new Error(`nothing was built of ${entryPoint}`);
  const all = new Set([output]);
  for (const one of all) {
    for (const { path, kind } of outputs[one]?.imports ?? []) {
      if (kind === "import-statement") all.add(path);
    }
  }
  return all;
}

it("is at most 60 KB for the shell and the first page, and 40 for each further one", () => {
  const shell = loadedWith("edge/studio/main.tsx");
  const { cssBundle = "" } = metafile.outputs[[...shell][0] ?? ""] ?? {};
  const first = [...new Set([...shell, ...loadedWith(FIRST_PAGE), cssBundle])];
  const bytes = first.reduce((sum, one) => sum + zipped(one), gzipSync(page()).length);
  expect(bytes).toBeGreaterThan(5 * KB);
  expect(bytes).toBeLessThanOrEqual(FIRST_BYTES_MAX);
  const pages = Object.values(metafile.outputs).flatMap(({ entryPoint }) =>
    entryPoint?.endsWith(".tsx") && entryPoint !== "edge/studio/main.tsx" ? [entryPoint] : [],
  );
  expect(pages.length).toBeGreaterThan(2);
  const sizes = pages.map((entry) => {
    const own = [...loadedWith(entry)].filter((one) => !shell.has(one));
    return [entry, own.reduce((sum, one) => sum + zipped(one), 0)] as const;
  });
  expect(sizes.filter(([, size]) => size > PAGE_BYTES_MAX)).toEqual([]);
});

it("has none of the service's schemas, nor its packages", () => {
  const inputs = Object.keys(metafile.inputs);
  const packages = inputs.flatMap(
    (path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? [],
  );
  expect(new Set(packages)).toEqual(
    new Set(["@fontsource-variable/inter", "@preact/signals", "@preact/signals-core", "preact"]),
  );
  expect(inputs.filter((path) => /^edge\/(?!studio\/)|^gpu-node|^db/.test(path))).toEqual([]);
});

it("names each file of the page by its content, and nothing of other sites", () => {
  const names = readdirSync(join(folder, "studio/assets"));
  const named = [...page().matchAll(/(?:href|src)="([^"#]+)"/g)].map(([, address = ""]) => address);
  expect(named.length).toBeGreaterThan(3);
  for (const address of named.filter((one) => one !== "/docs")) {
    expect(address).toMatch(/^\/studio\/assets\/[\w-]+-[A-Z0-9]{8}\.(js|css|woff2|svg)$/);
    expect(names).toContain(basename(address));
  }
  const texts = names.filter((name) => /\.(js|css)$/.test(name)).map((name) => fileOf(name));
  const addresses = texts.flatMap((text) => text.toString().match(/https?:\/\/[\w.-]+/g) ?? []);
  // Names of languages, and the remedy where the browser keeps no cookie: nobody loads them.
  expect([...new Set(addresses)].filter((one) => !KNOWN.has(one))).toEqual([]);
});
