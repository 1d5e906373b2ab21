// The bound on large reads at once.

import { expect, it } from "vitest";
import { Slots } from "../../edge/markets/slots.ts";

const counting = async function* () {
  for (let item = 0; item < 3; item++) yield item;
};
const LARGE = 11;
const SIZE = { largeRows: LARGE - 1 };

it("lets so many at once, makes others wait, and refuses who waited in vain", async () => {
  const slots = new Slots({
    ...SIZE,
    slotsMax: 2,
    leaseMs: 60_000,
    waitMs: 60,
    clock: () => performance.now(),
  });
  const first = slots.hold(counting(), LARGE);
  const second = slots.hold(counting(), LARGE);
  expect([(await first.next()).value, (await second.next()).value]).toEqual([0, 0]);
  await expect(slots.hold(counting(), LARGE).next()).rejects.toMatchObject({ code: "busy" });
  expect((await slots.hold(counting(), LARGE - 1).next()).value).toBe(0);
  const waiting = slots.hold(counting(), LARGE).next();
  await first.return(undefined);
  expect((await waiting).value).toBe(0);
});

it("frees a slot when its holder ends, fails, or is never heard of again", async () => {
  let now = 0;
  const slots = new Slots({ ...SIZE, slotsMax: 1, leaseMs: 1_000, waitMs: 0, clock: () => now });
  const items: number[] = [];
  for await (const item of slots.hold(counting(), LARGE)) items.push(item);
  expect(items).toEqual([0, 1, 2]);
  // biome-ignore lint/correctness/useYield: it fails before its first item.
  const failing = async function* (): AsyncGenerator<number> {
    throw new Error("broken");
  };
  await expect(slots.hold(failing(), LARGE).next()).rejects.toThrow("broken");
  const silent = slots.hold(counting(), LARGE);
  await silent.next();
  await expect(slots.hold(counting(), LARGE).next()).rejects.toMatchObject({ code: "busy" });
  now = 1_001;
  expect((await slots.hold(counting(), LARGE).next()).value).toBe(0);
});
