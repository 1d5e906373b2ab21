// A bound on how many work at once. Goal: never more, in the order of coming, whoever fails.

import { expect, it } from "vitest";
import { Turns } from "../../gpu-node/base/turns.ts";

it("lets so many work at once, and the others in their order, also after a failure", async () => {
  const turns = new Turns(2);
  const began: number[] = [];
  const ends: (() => void)[] = [];
  const all = [0, 1, 2, 3].map((index) =>
    turns.take(async () => {
      began.push(index);
      await new Promise<void>((end) => {
        ends[index] = end;
      });
      if (index === 0) throw new Error("broke");
      return index;
    }),
  );
  const failed = expect(all[0]).rejects.toThrow("broke");
  await expect.poll(() => began).toEqual([0, 1]);
  ends[0]?.();
  await failed;
  await expect.poll(() => began).toEqual([0, 1, 2]);
  for (const index of [1, 2]) ends[index]?.();
  await expect.poll(() => began).toEqual([0, 1, 2, 3]);
  ends[3]?.();
  expect(await Promise.all(all.slice(1))).toEqual([1, 2, 3]);
  expect(await turns.take(async () => "free")).toBe("free");
});
