// Requests that are at nodes. Goal: what shadows and the choice among nodes go by is what is there
// now; a request that was cut off, which says nothing of its end, is not counted for good.

import { expect, it } from "vitest";
import {
  asksByNode,
  openAsk,
  requestsAtNodes,
} from "../../../../edge/vision/serving/predict/asks.ts";

let now = 0;
const clock = () => now;
const counts = () => [requestsAtNodes(clock), ...asksByNode("predict", clock).entries()];

const ask = (more: Partial<Parameters<typeof openAsk>[0]> = {}) =>
  openAsk(
    {
      nodeId: "one",
      kind: "predict",
      ms: 1_000,
      signal: new AbortController().signal,
      isWaitedFor: true,
      ...more,
    },
    clock,
  );

it("count by node and kind until they are answered, and once", () => {
  const closes = [ask(), ask(), ask({ nodeId: "other", isWaitedFor: false }), ask({ kind: "sam" })];
  expect(counts()).toEqual([3, ["one", 2], ["other", 1]]);
  closes[0]?.();
  closes[0]?.();
  expect(counts()).toEqual([2, ["one", 1], ["other", 1]]);
  for (const close of closes) close();
  expect(counts()).toEqual([0]);
});

it("count no more when whoever asked has gone, though nothing ends them", () => {
  const gone = new AbortController();
  ask({ signal: gone.signal });
  expect(counts()).toEqual([1, ["one", 1]]);
  gone.abort();
  expect(counts()).toEqual([0]);
  ask({ signal: AbortSignal.abort() });
  expect(counts()).toEqual([0]);
});

it("count no more once their time is over, though nobody says anything of them", () => {
  ask();
  const close = ask({ ms: 5_000 });
  now += 999;
  expect(counts()).toEqual([2, ["one", 2]]);
  now += 1;
  expect(counts()).toEqual([1, ["one", 1]]);
  close();
  expect(counts()).toEqual([0]);
});
