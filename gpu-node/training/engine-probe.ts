// Whether this machine can train, found out by a child process.

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { z } from "zod";

/** The one line that `engine-probe-main.ts` prints. */
const EngineDescription = z.union([
  z.object({
    engine: z.object({
      torch: z.string(),
      torchSource: z.enum(["system", "wheel"]),
      cudaKernels: z.boolean(),
      gpus: z.array(z.object({ name: z.string(), memoryBytes: z.number() })),
      bf16: z.boolean(),
      cpuBf16: z.boolean(),
    }),
  }),
  z.object({ missing: z.string() }),
]);
/** What the engine is on this machine, or why there is none. */
export type EngineDescription = z.infer<typeof EngineDescription>;

/** Torch's libraries are large: a cold disk takes its time. */
const ANSWER_MS_MAX = 120_000;

/** Finds out what the engine can do, in a process of its own. */
export async function probeEngine(
  environment: Readonly<Record<string, string>>,
  program = join(import.meta.dirname, "engine-probe-main.ts"),
): Promise<EngineDescription> {
  try {
    const args = ["--disable-warning=ExperimentalWarning", program];
    const options = { env: environment, timeout: ANSWER_MS_MAX };
    const { stdout } = await promisify(execFile)(process.execPath, args, options);
    return EngineDescription.parse(JSON.parse(stdout.trim().split("\n").at(-1) ?? ""));
  } catch (thrown) {
    const { signal, code } = thrown as { signal?: string; code?: unknown };
    const how = signal ? `its process ended by ${signal}` : `its process failed (${code ?? "?"})`;
    return { missing: `the training engine does not run here: ${how}` };
  }
}
