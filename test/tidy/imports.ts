// Who imports whom: the ordered lines of rooms, the imports of a file, and circles among them.

import { dirname, join } from "node:path/posix";

/** A file may import from its own room and from rooms to its left on the same line. */
const LINES = [
  "shared · db/bucket · db/markets · edge/http · edge/markets/client · edge/markets/store · edge/markets",
  "shared · db/bucket · db/markets · edge/http · edge/markets/client · edge/markets/store · edge/markets/ingest · edge/console",
  `shared · db/bucket · db/vision · edge/http · ${within(
    "edge/vision",
    "base · auth · tasks · media · models · labeling · training · serving · experiments · fleet · " +
      "workflows",
  )} · edge/vision`,
  "shared · edge/studio",
  "shared · edge/http · edge/infer",
  `shared · native · ${within(
    "gpu-node",
    "base · objects · media · onnx · segmenters · export · serving · training · workflows · tasks · node",
  )} · gpu-node`,
  `shared · ${within("gpu-node", "base · objects · media · onnx · serving · agent")}`,
  // What users copy: it imports nothing of ours.
  "runners",
].map((line) => line.split(" · "));

function within(folder: string, rooms: string): string {
  const paths = rooms.split(" · ").map((room) => `${folder}/${room}`);
  return paths.join(" · ");
}

/** Deepest first, so that the first match is a file's room. */
const ROOMS = [...new Set(LINES.flat()), "edge/local", "test"].sort((a, b) => b.length - a.length);

/** The room that a file lies in, or undefined. */
export const roomOf = (file: string): string | undefined =>
  ROOMS.find((room) => file.startsWith(`${room}/`));

/** Static, dynamic and type-only imports: a type dependency is a dependency. */
export const importsOf = (text: string): string[] =>
  [...text.matchAll(/(?<!["'])\b(?:from\s*|import\s*\(?\s*)["']([^"']+)["']/g)].map(
    (match) => match[1] ?? "",
  );

/** A statement that is gone once the types are. */
const TYPE_IMPORT = /^(?:import|export) type [^;]*? from ["']([^"']+)["'];?$/gm;

function mayImport(from: string, to: string): boolean {
  if (from === to || from === "test") return true;
  if (to === "test" || to === "edge/local") return false;
  if (from === "edge/local")
    return to.startsWith("edge/") || to.startsWith("db/") || to === "shared";
  return LINES.some((line) => line.includes(to) && line.indexOf(to) < line.indexOf(from));
}

/**
 * Files of `shared/` whose values the Studio may import, as they bring no zod along: it costs a
 * page 103 KB. Of all others it imports types alone.
 */
export const WITHOUT_ZOD = [
  "shared/columns/column-layout.ts",
  "shared/columns/column-reader.ts",
  "shared/time.ts",
  "shared/workflow/kinds.ts",
];

/** The imports of a file of the Studio that would bring a schema library into the browser. */
export function valueImports(file: string, text: string): string[] {
  if (roomOf(file) !== "edge/studio") return [];
  const types = new Set([...text.matchAll(TYPE_IMPORT)].map((match) => match[1] ?? ""));
  const values = importsOf(text.replaceAll(TYPE_IMPORT, ""));
  const faults = values.flatMap((target) => {
    const path = target.startsWith(".") ? join(dirname(file), target) : target;
    const isHeavy = path === "zod" || (roomOf(path) === "shared" && !WITHOUT_ZOD.includes(path));
    return isHeavy ? [`${file}: import types alone of ${path}, which brings zod along`] : [];
  });
  return types.has("zod") ? [...faults, `${file}: the Studio knows no zod`] : faults;
}

/** The imports of a file that its room's line does not allow, a sentence each. */
export function brokenImports(file: string, text: string): string[] {
  const from = roomOf(file);
  return importsOf(text).flatMap((target) => {
    if (!target.startsWith(".")) {
      const bare = from === "shared" && target !== "zod";
      return bare ? [`${file}: shared may import zod only, not ${target}`] : [];
    }
    const to = roomOf(join(dirname(file), target));
    if (from && to && !mayImport(from, to)) return [`${file}: ${from} may not import ${to}`];
    return [];
  });
}

/**
 * Circles of imports among files given as path → text: each strongly connected component of more
 * than one file, its files sorted (Tarjan's algorithm).
 */
export function importCircles(texts: ReadonlyMap<string, string>): string[][] {
  const circles: string[][] = [];
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const stack: string[] = [];
  const visit = (file: string) => {
    order.set(file, order.size);
    lowest.set(file, order.get(file) ?? 0);
    stack.push(file);
    const lower = (number = 0) => lowest.set(file, Math.min(lowest.get(file) ?? 0, number));
    for (const target of importsOf(texts.get(file) ?? "")) {
      const next = target.startsWith(".") ? join(dirname(file), target) : "";
      if (!texts.has(next)) continue;
      if (!order.has(next)) {
        visit(next);
        lower(lowest.get(next));
      } else if (stack.includes(next)) lower(order.get(next));
    }
    if (lowest.get(file) !== order.get(file)) return;
    const circle = stack.splice(stack.indexOf(file));
    if (circle.length > 1) circles.push(circle.sort());
  };
  for (const file of texts.keys()) if (!order.has(file)) visit(file);
  return circles;
}
