// The engine's tests on a machine that has only Node and vitest: no database, no Workers.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    root: new URL("../../..", import.meta.url).pathname,
    include: ["test/native/**/*.test.ts"],
    // They need packages or a machine that the kit does not bring.
    exclude: ["build", "training-cells", "file-writes", "team", "plain-torch", "lifecycle"].map(
      (name) => `test/native/${name}{,.long}.test.ts`,
    ),
    pool: "forks",
    maxWorkers: 8,
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
