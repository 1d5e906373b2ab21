// The PyTorch that the engine is measured against, which is that of a Python.

import { spawnSync } from "node:child_process";
import { resolve } from "node:path";

/** Pythons that may have torch: Debian's, and torch's wheel where `npm run peers` installed it. */
export const PYTHONS = [
  "/usr/bin/python3",
  resolve(import.meta.dirname, "../../.vantage/peers/training/wheels/python/bin/python"),
] as const;

const VERSION = "import torch; print('torch', torch.__version__)";

/** The first Python with the engine's torch, else with any, else the first. */
export function pythonOf(torch: string, pythons: readonly string[] = PYTHONS): string {
  const versions = pythons.map((python) => {
    const { stdout } = spawnSync(python, ["-c", VERSION], { encoding: "utf8" });
    return /^torch ([\d.]+)/m.exec(stdout ?? "")?.[1];
  });
  const same = versions.indexOf(torch);
  const any = versions.findIndex((version) => version !== undefined);
  return pythons[Math.max(0, same < 0 ? any : same)] ?? "";
}

/** Why a Python cannot be measured, and what to install; null where it has torch. */
export function torchProblem(python: string): string | null {
  const child = spawnSync(python, ["-c", "import torch"], { encoding: "utf8" });
  if (child.status === 0) return null;
  const last = (child.stderr ?? "").trim().split("\n").at(-1);
  return (
    `Plain PyTorch is not measured: ${last || child.error?.message || "no answer"} (${python}). ` +
    "To have it: apt-get install --no-install-recommends python3-torch, or name a Python that has " +
    "torch: --python FILE, as npm run peers -- training installs one (2.8 GB)"
  );
}
