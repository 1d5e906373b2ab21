// What files of requests may take of an isolate's memory. Goal: never more than the bound, all
// of it given back, and nothing lost for good to a request that was cut off.

import { expect, it } from "vitest";
import {
  HELD_BYTES_MAX,
  HELD_MS_MAX,
  type HeldShare,
  openShare,
} from "../../../../edge/vision/serving/predict/held-bytes.ts";

let now = 0;
const share = (bytesExpected = 0): HeldShare => openShare(() => now, bytesExpected);
/** With the copy that is made of it. */
const HALF = HELD_BYTES_MAX / 4;
const full = expect.objectContaining({ code: "overloaded", data: { retry_after_seconds: 1 } });
const thrownBy = (act: () => unknown) => {
  try {
    return act();
  } catch (thrown) {
    return thrown;
  }
};

it("holds as many bytes as fit, copies included, and takes them back once", () => {
  const [one, other] = [share(HALF), share(HALF)];
  one.grow(HALF);
  other.grow(HALF);
  expect(thrownBy(() => other.grow(1))).toEqual(full);
  expect(thrownBy(() => share(1))).toEqual(full);
  one.free();
  one.free();
  const next = share(HALF);
  next.grow(HALF);
  expect(thrownBy(() => next.grow(1))).toEqual(full);
  for (const held of [other, next]) held.free();
  share(2 * HALF).free();
});

it("refuses at once what is announced to be too much, and holds nothing of it", () => {
  expect(thrownBy(() => share(2 * HALF + 1))).toEqual(full);
  share(2 * HALF).free();
});

it("takes in whoever came first, however many files come together", () => {
  const together = Array.from({ length: 8 }, () => share(HALF));
  const outcomes = together.map(() => "taken in");
  for (let come = 0; come < HALF; come += HALF / 32)
    for (const [index, held] of together.entries()) {
      if (outcomes[index] !== "taken in") continue;
      if (thrownBy(() => held.grow(HALF / 32)) !== undefined) outcomes[index] = "refused";
    }
  expect(outcomes[0]).toBe("taken in");
  // Those that were refused have not let go yet, and what was set aside was used.
  expect(outcomes.filter((outcome) => outcome === "refused")).toHaveLength(7);
  for (const held of together) held.free();
  share(2 * HALF).free();
});

it("sets nothing aside any more for a request that is over", () => {
  const [first, second] = [share(2 * HALF), share()];
  expect(thrownBy(() => second.grow(1))).toEqual(full);
  first.free();
  second.grow(2 * HALF);
  second.free();
});

it("forgets what a request held that was cut off, and not what one still takes in", () => {
  const [lost, slow] = [share(), share()];
  lost.grow(HALF);
  slow.grow(1);
  now += HELD_MS_MAX;
  slow.grow(HALF - 1);
  expect(thrownBy(() => share(1))).toEqual(full);
  now += 1;
  share(HALF).free();
  expect(thrownBy(() => share(HALF + 1))).toEqual(full);
  slow.free();
});
