// Prompts of a task made ready for a segmenter: none looks for what another does.

import { expect, it } from "vitest";
import { readyPrompts } from "../../gpu-node/tasks/prompts.ts";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { openRectangles } from "../support/rectangles.ts";

const ready = (...texts: string[]) =>
  readyPrompts(
    // Texts need none.
    {} as RunnerContext,
    openRectangles(),
    texts.map((text) => ({ kind: "text" as const, class_name: text, text })),
  );

it("leaves each class to the prompt that names it closest, and tells", async () => {
  const { ready: prompts, warnings } = await ready("colour", "crimson", "blue");
  expect(prompts.map(({ prompt }) => "ids" in prompt && prompt.ids)).toEqual([
    ["green"],
    ["red"],
    ["blue"],
  ]);
  expect(warnings).toEqual([
    '"colour": a red is labeled "crimson" only, a blue is labeled "blue" only',
  ]);
});

it("fails for good where two look for the same: no object is labeled twice", async () => {
  await expect(ready("red", "crimson")).rejects.toMatchObject({
    code: "invalid_request",
    retryable: false,
    message: expect.stringContaining('"crimson" looks for red, as "red" does'),
  });
});
