// Whether models run on the GPU of this machine, found out by a child process.

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { z } from "zod";
import { NO_PROVIDER, providerLibrary } from "./cuda.ts";

/** The one line that `provider-probe-main.ts` prints. */
const ProviderDescription = z.object({
  /** What models are opened on. */
  device: z.enum(["cpu", "cuda"]),
  /** Why that is not the GPU. */
  problem: z.string().nullable(),
  /** Whether the provider is the one of `npm run engine`. */
  isInstalled: z.boolean(),
  libraries: z.object({ found: z.number(), missing: z.array(z.string()) }),
});
/** What onnxruntime's CUDA provider is on this machine. */
export type ProviderDescription = z.infer<typeof ProviderDescription>;

/** A first session reads hundreds of megabytes, on a cold disk too. */
const ANSWER_MS_MAX = 120_000;

/**
 * Finds out what models are opened on by processes with an environment, and why that is not the
 * GPU.
 */
export async function probeProvider(
  environment: Readonly<Record<string, string>>,
): Promise<Pick<ProviderDescription, "device" | "problem">> {
  if (!providerLibrary(environment)) return { device: "cpu", problem: NO_PROVIDER };
  const program = join(import.meta.dirname, "provider-probe-main.ts");
  try {
    const args = ["--disable-warning=ExperimentalWarning", program];
    const options = { env: environment, timeout: ANSWER_MS_MAX };
    const { stdout } = await promisify(execFile)(process.execPath, args, options);
    return ProviderDescription.parse(JSON.parse(stdout.trim().split("\n").at(-1) ?? ""));
  } catch (thrown) {
    const { signal, code } = thrown as { signal?: string; code?: unknown };
    const how = signal ? `ended by ${signal}` : `failed (${code ?? "?"})`;
    return { device: "cpu", problem: `the process that tried it ${how}` };
  }
}
