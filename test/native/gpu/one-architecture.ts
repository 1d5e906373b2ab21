// `node one-architecture.ts LIBRARY SM OUTPUT`: a copy of a CUDA library in which the machine code
// of all other architectures, and all PTX, is zeros, so that it compresses to a part of its size.
// CUDA loads the entry of the GPU's own architecture alone.
//
// The section .nv_fatbin holds containers (magic 0xBA55ED50, u16 version, u16 header size, u64 size
// of the entries), each with entries (u16 kind, u16 version, u32 header size, u64 size, …, u32
// architecture at byte 28). NVIDIA publishes no description of it.

import { readFileSync, writeFileSync } from "node:fs";

const MAGIC = 0xba55ed50;
const MACHINE_CODE = 2;

const [input, architecture, output] = process.argv.slice(2);
if (!input || !output) throw new Error("usage: one-architecture.ts LIBRARY SM OUTPUT");
const library = readFileSync(input);
const { offset, size } = section(".nv_fatbin");
let [kept, cleared] = [0, 0];
for (let at = offset; at < offset + size - 16; ) {
  if (library.readUInt32LE(at) !== MAGIC) {
    at += 8;
    continue;
  }
  const end = at + library.readUInt16LE(at + 6) + Number(library.readBigUInt64LE(at + 8));
  let entry = at + library.readUInt16LE(at + 6);
  while (entry < end) {
    const header = library.readUInt32LE(entry + 4);
    const bytes = Number(library.readBigUInt64LE(entry + 8));
    const isKept =
      library.readUInt16LE(entry) === MACHINE_CODE &&
      library.readUInt32LE(entry + 28) === Number(architecture);
    if (!isKept) library.fill(0, entry + header, entry + header + bytes);
    if (isKept) kept += bytes;
    else cleared += bytes;
    entry += header + bytes;
  }
  at = end;
}
if (kept === 0) throw new Error(`${input} has no machine code for sm_${architecture}`);
writeFileSync(output, library);
process.stdout.write(`kept ${kept} bytes of machine code, cleared ${cleared}\n`);

/** A section of the 64-bit little-endian ELF file, by its name. */
function section(name: string): { offset: number; size: number } {
  const headers = Number(library.readBigUInt64LE(0x28));
  const [each, count, names] = [0x3a, 0x3c, 0x3e].map((at) => library.readUInt16LE(at)) as [
    number,
    number,
    number,
  ];
  const field = (index: number, at: number) =>
    Number(library.readBigUInt64LE(headers + index * each + at));
  for (let index = 0; index < count; index++) {
    const start = field(names, 0x18) + library.readUInt32LE(headers + index * each);
    if (library.toString("latin1", start, library.indexOf(0, start)) === name)
      return { offset: field(index, 0x18), size: field(index, 0x20) };
  }
  throw new Error(`${input} has no section ${name}`);
}
