// What a run's batch is reckoned with on a GPU: the free memory of the one that torch uses, which
// the driver may count as another.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, it, vi } from "vitest";
import { freeGpuBytes } from "../../../gpu-node/training/start.ts";

const MIB = 1024 ** 2;
const folder = mkdtempSync(join(tmpdir(), "vantage-gpu-memory-"));
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

it("is asked for by the place on the bus", async () => {
  const answers = `#!/bin/sh
case "$*" in
  *--id=0000:41:00.0*) echo 9000 ;;
  *--id=0*) echo 100 ;;
esac
`;
  writeFileSync(join(folder, "nvidia-smi"), answers, { mode: 0o755 });
  vi.stubEnv("PATH", `${folder}:${process.env.PATH}`);
  const gpu = { name: "Second", memoryBytes: 16_000 * MIB };
  expect(await freeGpuBytes({ ...gpu, pciBusId: "0000:41:00.0" })).toBe(9_000 * MIB);
  expect(await freeGpuBytes(gpu)).toBe(100 * MIB);
  vi.stubEnv("PATH", folder.replace("memory", "nowhere"));
  expect(await freeGpuBytes(gpu)).toBeNull();
});
