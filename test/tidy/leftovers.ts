// What nobody uses any more: files that nobody imports, and names that leave a file for nobody.

import { dirname, join } from "node:path/posix";

const EXPORT =
  /^export (?:declare |abstract |async )*(?:const|let|function\*?|class|interface|type|enum) (\w+)/gm;
/** Found by the tool that reads the whole file: drizzle its tables. */
const READ_WHOLE = /^db\/|\.d\.ts$/;

/** Files that are started, tested or found by their names. */
const STARTED =
  /(^|[/-])main\.tsx?$|\.(test|config)\.ts$|\.d\.ts$|\.browser\.|^edge\/local\/(bootstrap\.mjs|(backup|costs|demo|deploy|job|start|torch)\.ts)$|^runners\/|^test\//;

/** Exported names that nothing says again, here or elsewhere, of files as path → text. */
export function deadExports(texts: ReadonlyMap<string, string>): string[] {
  const counts = new Map<string, number>();
  for (const text of texts.values()) {
    for (const [word] of text.matchAll(/[A-Za-z_$][\w$]*/g)) {
      counts.set(word, (counts.get(word) ?? 0) + 1);
    }
  }
  return [...texts].flatMap(([file, text]) =>
    READ_WHOLE.test(file)
      ? []
      : [...text.matchAll(EXPORT)]
          .map((match) => match[1] ?? "")
          .filter((name) => counts.get(name) === 1)
          .map((name) => `${file}: nobody uses ${name}`),
  );
}

/** Files of the product that nobody imports or starts, of files as path → text. */
export function deadFiles(texts: ReadonlyMap<string, string>): string[] {
  const known = new Set(
    [...texts].flatMap(([file, text]) =>
      // A thread is started by the address of its file.
      [...text.matchAll(/["'](\.{1,2}\/[^"'\n]+)["']/g)].map((match) =>
        join(dirname(file), match[1] ?? ""),
      ),
    ),
  );
  return [...texts.keys()].filter(
    (file) => /\.(ts|tsx|mjs)$/.test(file) && !known.has(file) && !STARTED.test(file),
  );
}
