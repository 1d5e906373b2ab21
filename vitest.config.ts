import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

const LONG =
  /\/(sim\/schedules|vision\/(training-)?story|console\/pages|local\/stack|gpu-node\/training\/(kill|resume|train)|native\/(golden-steps|training))\.test\.ts$/;

/** The longest files begin first, or the last of them would run alone at the end. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]) {
    const isLong = ({ moduleId }: TestSpecification) => LONG.test(moduleId);
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

// Two databases' worth of real services run beside the tests, so files share the cores two at a
// time.
export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 2,
    sequence: { sequencer: LongestFirst },
    testTimeout: 60_000,
    hookTimeout: 60_000,
    globalSetup: ["test/support/postgres.ts"],
  },
});
