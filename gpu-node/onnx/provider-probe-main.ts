// The program that finds out whether models run on the GPU here: in a process of its own, since a
// provider that does not load is tried once in a process. It prints one line of JSON.

import { providerFolders, providerLibrary, rerunWithProvider, resolveLibraries } from "./cuda.ts";
import type { ProviderDescription } from "./provider-probe.ts";
import { runTrial, usableDevice } from "./runtime.ts";

const status = rerunWithProvider();
if (status !== null) process.exitCode = status;
else {
  const library = providerLibrary();
  let problem: string | null = null;
  const device = await usableDevice("cuda", (_level, _event, fields) => {
    problem = String(fields?.reason);
  });
  // Whatever became of the GPU, the next model has to open.
  await runTrial(device);
  const said: ProviderDescription = {
    device,
    problem,
    isInstalled: providerFolders().length > 0,
    libraries: library ? resolveLibraries(library, { all: true }) : { found: 0, missing: [] },
  };
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
