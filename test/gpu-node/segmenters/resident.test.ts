// The one segmenter of a process. Goal: whoever works with one keeps it, another one is opened only
// when the first is nobody's, and nobody is passed over for ever.

import { beforeEach, expect, it } from "vitest";
import { ResidentSegmenter } from "../../../gpu-node/segmenters/resident.ts";
import type { Segmenter } from "../../../gpu-node/segmenters/segmenter.ts";
import { openRectangles } from "../../support/rectangles.ts";

const DEFAULT = "builtin";

let events: string[];
let resident: ResidentSegmenter;
/** Names that cannot be opened. */
let broken: Set<string>;

beforeEach(() => {
  [events, broken] = [[], new Set()];
  resident = new ResidentSegmenter({
    open: async (name) => {
      const own = name ?? DEFAULT;
      events.push(`open ${own}`);
      await nothingMore();
      if (broken.has(own)) throw new Error(`no ${own}`);
      const segmenter: Segmenter = openRectangles();
      const info = { ...segmenter.info, name: own };
      return { ...segmenter, info, dispose: async () => void events.push(`dispose ${own}`) };
    },
    onClose: () => events.push("close"),
    onChange: (name) => events.push(`told ${name}`),
  });
});

/** Works until it is let go. */
function working(name: string | null, signal?: AbortSignal) {
  const { promise, resolve } = Promise.withResolvers<void>();
  let began = false;
  const done = resident.use(
    name,
    async ({ info }) => {
      began = true;
      await promise;
      return info.name;
    },
    signal,
  );
  return { done, go: resolve, began: () => began };
}
const nothingMore = () => new Promise((done) => setTimeout(done, 20));

it("is opened once for all who work with it at once, by its name or as the default", async () => {
  const [one, other] = [working(null), working(null)];
  await expect.poll(() => one.began() && other.began()).toBe(true);
  const named = working(DEFAULT);
  await expect.poll(named.began).toBe(true);
  for (const { go } of [one, other, named]) go();
  expect(await Promise.all([one.done, other.done, named.done])).toEqual(Array(3).fill(DEFAULT));
  expect(events).toEqual(["open builtin", "told builtin"]);
});

it("is open once it is, and no more when another one is", async () => {
  const areOpen = () => [null, DEFAULT, "other"].map((name) => resident.isOpen(name));
  const one = working(null);
  expect(areOpen()).toEqual([false, false, false]);
  await expect.poll(one.began).toBe(true);
  expect(areOpen()).toEqual([true, true, false]);
  one.go();
  const other = working("other");
  await expect.poll(other.began).toBe(true);
  expect(areOpen()).toEqual([false, false, true]);
  other.go();
  await other.done;
});

it("makes room for another only when nobody works with it any more", async () => {
  const [one, other] = [working("a"), working("b")];
  await expect.poll(one.began).toBe(true);
  await nothingMore();
  expect([events, other.began()]).toEqual([["open a", "told a"], false]);
  one.go();
  await expect.poll(other.began).toBe(true);
  expect(events.slice(2)).toEqual(["close", "told null", "dispose a", "open b", "told b"]);
  other.go();
  expect(await Promise.all([one.done, other.done])).toEqual(["a", "b"]);
});

it("lets nobody who comes later pass whoever waits for another", async () => {
  const first = working("a");
  await expect.poll(first.began).toBe(true);
  const other = working("b");
  const late = working("a");
  await nothingMore();
  expect([other.began(), late.began()]).toEqual([false, false]);
  first.go();
  await expect.poll(other.began).toBe(true);
  expect(late.began()).toBe(false);
  other.go();
  late.go();
  expect(await Promise.all([first.done, other.done, late.done])).toEqual(["a", "b", "a"]);
});

it("is not opened for whoever gave up, and what failed to open is tried again", async () => {
  const left = new AbortController();
  const first = working("a");
  await expect.poll(first.began).toBe(true);
  const other = working("b", left.signal);
  left.abort(new Error("gone"));
  first.go();
  await expect(other.done).rejects.toThrow("gone");
  expect(events).toEqual(["open a", "told a"]);
  broken.add("c");
  const failing = [resident.use("c", async () => 1), resident.use("c", async () => 2)];
  for (const one of failing) await expect(one).rejects.toThrow("no c");
  broken.clear();
  expect(await resident.use("c", async () => 3)).toBe(3);
  expect(events.filter((event) => event === "open c")).toHaveLength(2);
});

it("lets whoever gives up go at once, while others still work with another one", async () => {
  const left = new AbortController();
  const first = working("a");
  await expect.poll(first.began).toBe(true);
  const [closing, behind] = [working("b", left.signal), working("c", left.signal)];
  const last = working("a");
  await nothingMore();
  left.abort(new Error("gone"));
  for (const { done } of [closing, behind]) await expect(done).rejects.toThrow("gone");
  // The first never left, and who waited behind them has it too.
  await expect.poll(last.began).toBe(true);
  expect(events).toEqual(["open a", "told a"]);
  for (const { go } of [first, last]) go();
  expect(await Promise.all([first.done, last.done])).toEqual(["a", "a"]);
  expect(await resident.use("b", async ({ info }) => info.name)).toBe("b");
});

it("stays whole where the work of one fails", async () => {
  await expect(resident.use("a", () => Promise.reject(new Error("broke")))).rejects.toThrow(
    "broke",
  );
  expect(await resident.use("b", async ({ info }) => info.name)).toBe("b");
  expect(events).toContain("dispose a");
});
