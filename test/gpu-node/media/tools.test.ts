// How ffmpeg is found. Goal: one that starts slowly, as on a busy machine, is not taken for absent;
// one that fails or never starts is.

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { findTools } from "../../../gpu-node/media/ffmpeg.ts";

const dir = mkdtempSync(join(tmpdir(), "vantage-tools-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

/** A folder with programs of these names that run this shell script. */
function programs(name: string, script: string): string {
  const folder = join(dir, name);
  mkdirSync(folder);
  for (const program of ["ffmpeg", "ffprobe"]) {
    writeFileSync(join(folder, program), `#!/bin/sh\n${script}\n`);
    chmodSync(join(folder, program), 0o755);
  }
  return folder;
}
const VERSION = 'echo "ffmpeg version 6.1.1-static Copyright"';

it("is asked again where it starts slowly", async () => {
  const marker = join(dir, "started");
  const slowOnce = `if [ ! -e ${marker} ]; then touch ${marker}; exec sleep 30; fi; ${VERSION}`;
  const tools = await findTools(programs("slow", slowOnce), 2, [300, 30_000]);
  expect(tools).toMatchObject({ version: "6.1.1-static", threads: 2, wrap: [] });
});

it.each([
  ["fails", "exit 1"],
  ["is too old", 'echo "ffmpeg version 4.4.2 Copyright"'],
  ["never starts", "exec sleep 30"],
])("is absent where it %s", async (name, script) => {
  expect(await findTools(programs(name, script), 2, [200, 200])).toBeNull();
});
