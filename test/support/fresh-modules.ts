// Runs before each test file of a process that several files share. Our own modules begin anew, as
// in a process of its own; packages stay loaded, which takes longer than most files.

import { vi } from "vitest";

const environments = globalThis as { environmentAtStart?: NodeJS.ProcessEnv };
environments.environmentAtStart ??= { ...process.env };
for (const name of Object.keys(process.env)) {
  if (!(name in environments.environmentAtStart)) delete process.env[name];
}
Object.assign(process.env, environments.environmentAtStart);
vi.unstubAllGlobals();
vi.resetModules();
