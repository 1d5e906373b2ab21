// The Studio's files as a browser loads them: one entry that loads each page's code when it is
// opened, its style, its font and its icons. Names hold a digest of the content, so browsers may
// keep them for ever.

import { readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { build, type Metafile } from "esbuild";
import { z } from "zod";
import { systemClock } from "../../shared/time.ts";
import { ICONS } from "../studio/kit/icon-names.ts";
import { inputsOf, keptFolder } from "./bundles.ts";
import { ROOT } from "./state.ts";

/** Where the files lie below the service's address. */
const ASSETS = "studio/assets";
const ENTRY = "edge/studio/main.tsx";
const PAGE = "edge/studio/index.html";
const ICON = "edge/studio/icon.svg";
/** The program imports its types alone, so the bundler does not name it. */
const ICON_NAMES = "edge/studio/kit/icon-names.ts";
const ICON_SET = "node_modules/@iconify-json/lucide/icons.json";

/** The folder of the Studio's files, built where what was built before is out of date. */
export const studioFolder = (): Promise<string> =>
  keptFolder({
    name: "studio",
    make: async (folder) => {
      const began = systemClock();
      const { inputs } = await buildStudio(folder);
      const others = [PAGE, ICON, ICON_SET, ICON_NAMES, "edge/local/studio-build.ts"];
      return inputsOf([...Object.keys(inputs), ...others], began);
    },
  });

/** Builds the Studio into a folder for an asset server; gives what went into which file. */
export async function buildStudio(folder: string): Promise<Metafile> {
  const assets = join(folder, ASSETS);
  await mkdir(assets, { recursive: true });
  const { metafile } = await build({
    absWorkingDir: ROOT,
    entryPoints: [ENTRY, ICON],
    outdir: assets,
    bundle: true,
    splitting: true,
    format: "esm",
    target: "es2024",
    minify: true,
    sourcemap: "linked",
    sourcesContent: false,
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    assetNames: "[name]-[hash]",
    loader: { ".woff2": "file", ".svg": "copy" },
    // The nearest tsconfig.json is that of the services, whose pages are Hono's.
    tsconfigRaw: { compilerOptions: { jsx: "react-jsx", jsxImportSource: "preact" } },
    define: { "process.env.NODE_ENV": '"production"' },
    logLevel: "error",
    metafile: true,
  });
  await writeFile(join(folder, "studio/index.html"), pageOf(metafile));
  return metafile;
}

/** The page that every address of the Studio shows. */
function pageOf({ outputs }: Metafile): string {
  const [entryPath = "", entry] =
    Object.entries(outputs).find(([, { entryPoint }]) => entryPoint === ENTRY) ?? [];
  const address = (path: string) => `/${ASSETS}/${path.slice(path.lastIndexOf("/") + 1)}`;
  const named = (ending: string) =>
    address(Object.keys(outputs).find((path) => path.endsWith(ending)) ?? "");
  // What the entry imports is loaded beside it, not after it.
  const imported = (entry?.imports ?? []).filter(({ kind }) => kind === "import-statement");
  const head = [
    `<link rel="icon" href="${named(".svg")}">`,
    `<link rel="stylesheet" href="${address(entry?.cssBundle ?? "")}">`,
    `<link rel="preload" href="${named(".woff2")}" as="font" type="font/woff2" crossorigin>`,
    ...imported.map(({ path }) => `<link rel="modulepreload" href="${address(path)}">`),
    `<script type="module" src="${address(entryPath)}"></script>`,
  ];
  return readFileSync(join(ROOT, PAGE), "utf8")
    .replace("<!-- head -->", head.join("\n    "))
    .replace("<!-- icons -->", sprite());
}

/** The part of the icon set that is read: shapes by name, on a square of 24 units. */
const IconShapes = z.object({ icons: z.record(z.string(), z.object({ body: z.string() })) });

/** The icons as one SVG of symbols, which pages show by `<use href="#icon-…">`. */
function sprite(): string {
  const { icons } = IconShapes.parse(JSON.parse(readFileSync(join(ROOT, ICON_SET), "utf8")));
  const symbols = ICONS.map((name) => {
    const { body } = icons[name] ?? {};
    if (body === undefined) throw new Error(`the icon set has no icon ${name}`);
    return `<symbol id="icon-${name}" viewBox="0 0 24 24">${body}</symbol>`;
  });
  return `<svg class="sprite" aria-hidden="true">${symbols.join("")}</svg>`;
}
