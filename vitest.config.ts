import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import { LongestFirst } from "./test/support/durations.ts";
import { PROJECTS } from "./test/support/projects.ts";

const { programs, stacks, worlds, pure } = PROJECTS;

export default defineConfig({
  test: {
    pool: "forks",
    // What services and nodes log is read where a test failed; elsewhere it hides the failures.
    silent: "passed-only",
    // One more than cores: some files wait for deadlines for most of their time.
    maxWorkers: Math.max(2, availableParallelism()) + 1,
    sequence: { sequencer: LongestFirst },
    // Limits are against hanging. They are ten times what the slowest test takes on idle cores.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    teardownTimeout: 60_000,
    expect: { poll: { timeout: 300_000 } },
    projects: [
      { extends: true, test: { name: "programs", include: programs } },
      { extends: true, test: { name: "stacks", include: stacks } },
      {
        extends: true,
        test: {
          name: "worlds",
          include: worlds,
          isolate: false,
          globalSetup: ["test/support/global-setup.ts"],
          setupFiles: ["test/support/fresh-modules.ts"],
        },
      },
      {
        extends: true,
        test: {
          name: "pure",
          include: pure,
          isolate: false,
          setupFiles: ["test/support/fresh-modules.ts"],
        },
      },
    ],
  },
});
