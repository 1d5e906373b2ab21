// Archives of any size. Goal: foreign readers agree on every byte, also beyond 4 GiB and 65,535
// entries.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { ZipReader } from "../../../gpu-node/objects/zip-reader.ts";
import { createZip } from "../../../gpu-node/objects/zip-writer.ts";
import { hasProgram } from "../../support/programs.ts";

const foreign = hasProgram("python3");

let dir: string;
let path: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "vantage-zip-"));
  path = join(dir, "a.zip");
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const python = (script: string) =>
  JSON.parse(execFileSync("python3", ["-c", script, path], { encoding: "utf8" })) as unknown;

it.skipIf(!foreign)(
  "holds texts and bytes under names of any language, of the first day there is",
  async () => {
    const zip = await createZip(path);
    await zip.add("a/Früh.txt", "grüße");
    await zip.add("b.bin", Uint8Array.from([0, 255, 0]));
    await zip.add("empty", "");
    const bytes = await zip.end();
    expect(statSync(path).size).toBe(bytes);
    // Who reads it as a stream finds each entry's length before its bytes.
    const file = readFileSync(path);
    expect([file.readUInt16LE(6) & 8, file.readUInt32LE(18)]).toEqual([
      0,
      Buffer.byteLength("grüße"),
    ]);
    const entries = python(
      "import zipfile,sys,json;z=zipfile.ZipFile(sys.argv[1]);assert z.testzip() is None;" +
        "print(json.dumps([[i.filename,list(z.read(i)),i.date_time[0],i.external_attr>>16]" +
        " for i in z.infolist()]))",
    );
    expect(entries).toEqual([
      ["a/Früh.txt", [...Buffer.from("grüße")], 1980, 0o100644],
      ["b.bin", [0, 255, 0], 1980, 0o100644],
      ["empty", [], 1980, 0o100644],
    ]);
  },
);

it.skipIf(!foreign)("holds nothing", async () => {
  const zip = await createZip(path);
  expect(await zip.end()).toBe(22);
  expect(python("import zipfile,sys;print(len(zipfile.ZipFile(sys.argv[1]).namelist()))")).toBe(0);
});

it.skipIf(!foreign)("holds 70,000 entries", async () => {
  const zip = await createZip(path);
  for (let entry = 0; entry < 70_000; entry++) await zip.add(`${entry}`, `${entry}`);
  await zip.end();
  const read =
    "import zipfile,sys,json;z=zipfile.ZipFile(sys.argv[1]);" +
    "print(json.dumps([len(z.namelist()),z.read('69999').decode()]))";
  expect(python(read)).toEqual([70_000, "69999"]);
});

// Four gigabytes are written: only where somebody asks for it.
it.skipIf(!process.env.LARGE || !foreign)(
  "holds more than 4 GiB (LARGE=1)",
  { timeout: 300_000 },
  async () => {
    const zip = await createZip(path);
    const content = Buffer.alloc(256 * 1024 * 1024, 7);
    for (let entry = 0; entry < 17; entry++) await zip.add(`${entry}`, content);
    await zip.add("last", "far away");
    await zip.end();
    const read =
      "import zipfile,sys,json;z=zipfile.ZipFile(sys.argv[1]);" +
      "print(json.dumps([z.getinfo('last').header_offset>2**32,z.read('last').decode()]))";
    expect(python(read)).toEqual([true, "far away"]);
  },
);

it("says of a file that cannot be opened what the system says, not that the zip is broken", async () => {
  await expect(ZipReader.open(join(dir, "nowhere.zip"))).rejects.toMatchObject({ code: "ENOENT" });
});
