// Drafts the manifest of a folder of models that an operator exported or downloaded: sizes and
// digests are read, the models' parts are told by their file names. The operator reviews it.

import { readdir, stat } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { BUNDLE_FILE, Manifest } from "./bundle.ts";
import { digestOf } from "./embedded-files.ts";
import { BundleBroken } from "./failures.ts";

const PARTS = {
  sam2: { encoder: /encoder[^/]*\.onnx$/i, decoder: /decoder[^/]*\.onnx$/i },
  sam3: {
    vision: /(vision|image)[^/]*\.onnx$/i,
    text: /(text|language)[^/]*\.onnx$/i,
    decoder: /decoder[^/]*\.onnx$/i,
  },
} as const;
const MERGES = /(merges|bpe)[^/]*\.txt$/i;
const VOCABULARY = /vocab[^/]*\.json$/i;

export interface DescribeOptions {
  kind?: string | undefined;
  name?: string | undefined;
  title?: string | undefined;
  licence?: string | undefined;
}

/** A manifest that Manifest accepts. Fails with BundleBroken when a part cannot be told. */
export async function describeBundle(
  folder: string,
  { kind, name, title, licence }: DescribeOptions,
): Promise<Manifest> {
  if (kind !== "sam2" && kind !== "sam3")
    throw new BundleBroken(folder, "say which kind it is: --kind sam2 or --kind sam3");
  if (!licence) throw new BundleBroken(folder, "say what licence it comes under: --licence");
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => entry.isFile() && entry.name !== BUNDLE_FILE)
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)).split(sep).join("/"))
    .sort();
  const the = (pattern: RegExp, what: string, taken: readonly string[] = []) => {
    const matches = paths.filter((path) => pattern.test(path) && !taken.includes(path));
    const [only] = matches;
    if (only && matches.length === 1) return only;
    const found = matches.length === 0 ? "none" : matches.join(", ");
    throw new BundleBroken(folder, `it should hold one ${what}; found ${found}`);
  };
  const models: Record<string, string> = {};
  // A decoder's name may hold the other parts' words ("geo-encoder-mask-decoder"), so it is first.
  for (const [part, pattern] of Object.entries(PARTS[kind]).reverse())
    models[part] = the(pattern, `${part} model (${pattern.source})`, Object.values(models));
  const tokenizer =
    kind === "sam3"
      ? {
          merges: the(MERGES, "merges file"),
          vocabulary: paths.find((path) => VOCABULARY.test(path)),
        }
      : null;
  const used = [
    ...Object.values(models),
    ...(tokenizer ? [tokenizer.merges, tokenizer.vocabulary ?? ""] : []),
  ];
  const files = [];
  for (const path of paths.filter((one) => used.includes(one))) {
    const file = join(folder, path);
    files.push({ path, sha256: await digestOf(file), bytes: (await stat(file)).size });
  }
  const draft = { kind, name: name ?? kind, title: title ?? name ?? kind, licence, files, models };
  const parsed = Manifest.safeParse(tokenizer ? { ...draft, tokenizer } : draft);
  if (parsed.success) return parsed.data;
  throw new BundleBroken(folder, parsed.error.issues.map(({ message }) => message).join("; "));
}
