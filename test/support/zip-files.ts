// What lies in an archive, by name.

import { writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ZipReader } from "../../gpu-node/objects/zip-reader.ts";

/** The files of an archive's bytes, in its order. */
export async function zipFiles(bytes: Uint8Array): Promise<Map<string, Buffer>> {
  const dir = await mkdtemp(join(tmpdir(), "vantage-zip-"));
  const path = join(dir, "archive.zip");
  writeFileSync(path, bytes);
  const zip = await ZipReader.open(path);
  try {
    const files = new Map<string, Buffer>();
    for (const name of zip.names) {
      const chunks: Uint8Array[] = [];
      for await (const chunk of await zip.stream(name)) chunks.push(chunk);
      files.set(name, Buffer.concat(chunks));
    }
    return files;
  } finally {
    zip.close();
    await rm(dir, { recursive: true });
  }
}
