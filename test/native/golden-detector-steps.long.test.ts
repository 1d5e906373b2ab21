// Steps of AdamW and SGD on det26n, by the engine and by the reference: weights, statistics and
// averages after each step, as a share of the way they went.

import { describe, it } from "vitest";
import { native } from "./engine.ts";
import { expectCloseSteps } from "./reference/steps.ts";

describe.skipIf(!native)("steps of det26n", () => {
  it.each([
    // A step of AdamW is nearly the gradient's sign: where it is about 0, rounding decides, and a
    // short tensor shows it. Measured 3.8e-2 of one of 32 values, 1.4e-2 of all together.
    { name: "half of it", optimizer: "adamw", count: 10, lr0: 1e-4, wayMax: 0.3, wholeMax: 4e-2 },
    // Measured 2.8e-4 and 2.2e-4.
    { name: "half of it", optimizer: "sgd", count: 10, lr0: 1e-3, wayMax: 8e-4, wholeMax: 8e-4 },
  ] as const)("$count of $name by $optimizer, within $wholeMax of the way", expectCloseSteps);
});
