// The kit for machines with a GPU, on a CPU: nothing of it is tried for the first time on a card.

import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { ROOT } from "../../edge/local/state.ts";
import { native } from "./engine.ts";

const KIT = join(import.meta.dirname, "gpu");

function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "vantage-gpu-kit-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** Runs a program of the kit or of bash with the kit's environment; resolves to what it printed. */
async function output(program: string, args: readonly string[]): Promise<string> {
  const environment = {
    ...process.env,
    DEVICE: "cpu",
    ENGINE_DEVICE: "cpu",
    OUT: temporaryFolder(),
  };
  const options = { cwd: ROOT, env: environment, timeout: 240_000 };
  return (await promisify(execFile)(program, args, options)).stdout;
}

describe.skipIf(!native)("on a CPU", () => {
  it("checks what faults leave", async () => {
    const told = await output("bash", [join(KIT, "run.sh"), "faults"]);
    expect(told.match(/^ok +[a-z ]+:/gm)?.map((line) => line.slice(8, -1))).toEqual([
      "a step out of memory",
      "two processes",
      "an interrupt",
      "a kill",
    ]);
    expect(told).toMatch(/== faults: exit 0,/);
  });

  it("trains and evaluates drawn shapes", async () => {
    const small = ["--images", "16", "--epochs", "1", "--side", "64", "--goal", "0"];
    const told = await output(process.execPath, [join(KIT, "train.ts"), ...small]);
    expect(told).toMatch(/^detection in fp32: mAP50 \d\.\d{3}, .+ after 1 epochs of 16 images/);
  });

  it("says which part it does not know", async () => {
    await expect(output("bash", [join(KIT, "run.sh"), "nothing"])).rejects.toMatchObject({
      code: 2,
      stdout: "there is no part nothing\n",
    });
  });
});

it("keeps the machine code of one architecture in a library", async () => {
  const folder = temporaryFolder();
  const [input, kept] = [join(folder, "in.so"), join(folder, "out.so")];
  writeFileSync(input, library());
  const run = (architecture: string) =>
    output(process.execPath, [join(KIT, "one-architecture.ts"), input, architecture, kept]);
  expect(await run("90")).toBe("kept 4 bytes of machine code, cleared 8\n");
  const [before, after] = [readFileSync(input), readFileSync(kept)];
  const cleared = Buffer.from(before);
  // PTX of sm_90 and machine code of sm_80.
  for (const text of ["ptx!", "m80!"])
    cleared.fill(0, before.indexOf(text), before.indexOf(text) + 4);
  expect(after.equals(cleared)).toBe(true);
  await expect(run("75")).rejects.toThrow("no machine code for sm_75");
});

/** An ELF file whose section .nv_fatbin has a container of three entries: PTX, sm_80 and sm_90. */
function library(): Buffer {
  const entry = (kind: number, architecture: number, payload: string) => {
    const header = Buffer.alloc(64);
    header.writeUInt16LE(kind, 0);
    header.writeUInt32LE(header.length, 4);
    header.writeBigUInt64LE(BigInt(payload.length), 8);
    header.writeUInt32LE(architecture, 28);
    return Buffer.concat([header, Buffer.from(payload)]);
  };
  const entries = Buffer.concat([entry(1, 90, "ptx!"), entry(2, 80, "m80!"), entry(2, 90, "m90!")]);
  const container = Buffer.alloc(16);
  container.writeUInt32LE(0xba55ed50, 0);
  container.writeUInt16LE(container.length, 6);
  container.writeBigUInt64LE(BigInt(entries.length), 8);
  // Containers begin at multiples of eight bytes, with zeros between them.
  const fatbin = Buffer.concat([Buffer.alloc(8), container, entries, Buffer.alloc(20)]);
  const names = Buffer.from("\0.nv_fatbin\0.names\0");
  const section = (name: number, offset: number, size: number) => {
    const header = Buffer.alloc(64);
    header.writeUInt32LE(name, 0);
    header.writeBigUInt64LE(BigInt(offset), 0x18);
    header.writeBigUInt64LE(BigInt(size), 0x20);
    return header;
  };
  const file = Buffer.alloc(64);
  const namesAt = file.length + fatbin.length;
  file.writeBigUInt64LE(BigInt(namesAt + names.length), 0x28);
  for (const [at, value] of [
    [0x3a, 64],
    [0x3c, 2],
    [0x3e, 1],
  ] as const)
    file.writeUInt16LE(value, at);
  const headers = [section(1, file.length, fatbin.length), section(12, namesAt, names.length)];
  return Buffer.concat([file, fatbin, names, ...headers]);
}
