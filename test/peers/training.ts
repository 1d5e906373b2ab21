// The group `training`, by hand because of its size: our dataset archives through the loaders of
// those who train elsewhere, with Debian's torch over the libraries that the engine is built with:
// two small packages, unpacked and not installed. Then a training of theirs beside one of ours.

import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { execute } from "./environments.ts";
import { writeDatasets } from "./formats-datasets.ts";
import { type Group, type GroupContext, runScript } from "./group.ts";
import type { Outcome } from "./known.ts";
import { startServices } from "./services.ts";
import { compareTrainings } from "./training-comparison.ts";

const LIBRARIES = "/usr/lib/x86_64-linux-gnu";
/** As the library is that the packages are linked against. */
const LIBRARY = `${LIBRARIES}/libtorch_cpu.so.1.13`;
const PACKAGES = ["python3-torch=1.13.1+dfsg-4", "python3-torchvision=0.14.1-2"];
const TOOLS = ["ultralytics", "torchvision"] as const;

/** The folder of Debian's Python packages, or why there is none. */
async function debianTorch({
  folder,
  msLeft,
}: GroupContext): Promise<{ path: string } | { missing: string }> {
  if (!existsSync(LIBRARY)) return { missing: `no ${LIBRARY}: apt-get install libtorch-dev` };
  const root = join(folder, "torch");
  const path = join(root, "usr/lib/python3/dist-packages");
  const stamp = join(root, "packages");
  if (existsSync(stamp)) return { path };
  rmSync(root, { recursive: true, force: true });
  mkdirSync(join(root, "usr/lib"), { recursive: true });
  // Its own links lead there.
  symlinkSync(LIBRARIES, join(root, "usr/lib/x86_64-linux-gnu"));
  const fetched = await execute(["apt-get", "download", ...PACKAGES], {
    msMax: msLeft(),
    cwd: root,
  });
  if (fetched.code !== 0) return { missing: `apt-get download: ${fetched.output.slice(-300)}` };
  for (const file of readdirSync(root).filter((name) => name.endsWith(".deb"))) {
    const unpacked = await execute(["dpkg-deb", "-x", join(root, file), root], {
      msMax: msLeft(),
    });
    if (unpacked.code !== 0) return { missing: `dpkg-deb: ${unpacked.output.slice(-300)}` };
  }
  writeFileSync(stamp, PACKAGES.join("\n"));
  return { path };
}

export const training: Group = {
  run: async (context) => [...(await readers(context)), ...(await compareTrainings(context))],
};

async function readers(context: GroupContext): Promise<Outcome[]> {
  const torch = await debianTorch(context);
  if ("missing" in torch) {
    return TOOLS.map((tool) => ({
      case: `training/${tool}`,
      outcome: "skipped",
      detail: torch.missing,
    }));
  }
  const services = await startServices();
  try {
    const datasets = join(services.folder, "datasets.json");
    writeFileSync(datasets, JSON.stringify(await writeDatasets(services)));
    const outcomes: Outcome[] = [];
    for (const tool of TOOLS) {
      const script = `training/read_${tool}.py` as const;
      const args = [datasets, torch.path];
      outcomes.push(...(await runScript(context, { script, case: `training/${tool}`, args })));
    }
    return outcomes;
  } finally {
    await services.stop();
  }
}
