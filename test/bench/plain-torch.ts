// The PyTorch that the engine is measured against, which is that of a Python.

import { spawnSync } from "node:child_process";

/** Why a Python cannot be measured, and what to install; null where it has torch. */
export function torchProblem(python: string): string | null {
  const child = spawnSync(python, ["-c", "import torch"], { encoding: "utf8" });
  if (child.status === 0) return null;
  const last = (child.stderr ?? "").trim().split("\n").at(-1);
  return (
    `Plain PyTorch is not measured: ${last || child.error?.message || "no answer"} (${python}). ` +
    "To have it: apt-get install --no-install-recommends python3-torch, or name a Python that has " +
    "torch: --python FILE"
  );
}
