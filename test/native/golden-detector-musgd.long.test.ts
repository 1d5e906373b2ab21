// Steps of MuSGD on det26n, by the engine and by the reference: weights, statistics and
// averages after each step, as a share of the way they went.

import { describe, it } from "vitest";
import { native } from "./engine.ts";
import { expectCloseSteps } from "./reference/steps.ts";

describe.skipIf(!native)("steps of det26n", () => {
  it.each([
    // Measured 2.8e-4 and 2.0e-4, and for two steps of all of it 1.2e-4 and 2.0e-4.
    { name: "half of it", optimizer: "musgd", count: 10, lr0: 1e-3, wayMax: 8e-4, wholeMax: 8e-4 },
    {
      name: "half of it, with masks",
      optimizer: "musgd",
      count: 4,
      lr0: 1e-3,
      wayMax: 8e-4,
      wholeMax: 8e-4,
    },
    { name: "all of it", optimizer: "musgd", count: 2, lr0: 1e-3, wayMax: 8e-4, wholeMax: 8e-4 },
  ] as const)("$count of $name by $optimizer, within $wholeMax of the way", expectCloseSteps);
});
