import { defineConfig } from "vitest/config";

// Two databases' worth of real services run beside the tests, so files share the cores two at a
// time.
export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    globalSetup: ["test/support/postgres.ts"],
  },
});
