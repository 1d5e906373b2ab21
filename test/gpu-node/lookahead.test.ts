// What is asked for before it is needed. Goal: nothing changes its order, failures reach whoever
// waits for what failed, and what was begun is ended.

import { describe, expect, it } from "vitest";
import { inTurn, lookAhead } from "../../gpu-node/base/lookahead.ts";

describe("looking ahead", () => {
  it("keeps the order, asks ahead, and ends what it was given", async () => {
    const events: string[] = [];
    async function* numbers() {
      try {
        for (let n = 0; n < 5; n++) {
          events.push(`made ${n}`);
          yield n;
        }
      } finally {
        events.push("closed");
      }
    }
    const seen: number[] = [];
    for await (const n of lookAhead(numbers(), 2)) {
      seen.push(n);
      events.push(`seen ${n}`);
      if (n === 1) break;
    }
    expect(seen).toEqual([0, 1]);
    expect(events.indexOf("made 2")).toBeLessThan(events.indexOf("seen 0") + 2);
    expect(events.at(-1)).toBe("closed");
    expect(await Array.fromAsync(lookAhead(numbers(), 3))).toEqual([0, 1, 2, 3, 4]);
  });

  it("passes a failure on to whoever waits for what failed", async () => {
    async function* failing() {
      yield 1;
      throw new Error("torn");
    }
    const all = lookAhead(failing(), 2);
    expect((await all.next()).value).toBe(1);
    await expect(all.next()).rejects.toThrow("torn");
  });
});

describe("generators in turn", () => {
  /** Numbers from `from` on, and what became of them. */
  const source = (events: string[], from: number, { count = 3, fails = false } = {}) =>
    (async function* () {
      events.push(`began ${from}`);
      try {
        for (let n = 0; n < count; n++) {
          await new Promise((done) => setTimeout(done, 5 - from / 100));
          yield from + n;
        }
        if (fails) throw new Error(`torn ${from}`);
      } finally {
        events.push(`closed ${from}`);
      }
    })();

  it("keep their order, though others are at work before the first has ended", async () => {
    const events: string[] = [];
    const sources = [100, 200, 300, 400].map((from) => source(events, from));
    const seen: number[] = [];
    for await (const n of inTurn(sources, { hands: 2, steps: 2 })) {
      seen.push(n);
      events.push(`seen ${n}`);
    }
    expect(seen).toEqual([100, 101, 102, 200, 201, 202, 300, 301, 302, 400, 401, 402]);
    expect(events.slice(0, 2)).toEqual(["began 100", "began 200"]);
    // No more than two at once.
    expect(events.indexOf("began 300")).toBeGreaterThan(events.indexOf("seen 102"));
    expect(events.filter((event) => event.startsWith("closed"))).toHaveLength(4);
  });

  it("of none, or of empty ones, are nothing", async () => {
    expect(await Array.fromAsync(inTurn<number>([], { hands: 2, steps: 1 }))).toEqual([]);
    const sources = [100, 200].map((from) => source([], from, { count: 0 }));
    expect(await Array.fromAsync(inTurn(sources, { hands: 3, steps: 1 }))).toEqual([]);
  });

  it("fail where the one that fails has its turn, and end the others", async () => {
    const events: string[] = [];
    const sources = [
      source(events, 100),
      source(events, 200, { count: 0, fails: true }),
      source(events, 300),
    ];
    const all = inTurn(sources, { hands: 3, steps: 1 });
    const seen: number[] = [];
    const read = async () => {
      for await (const n of all) seen.push(n);
    };
    await expect(read()).rejects.toThrow("torn 200");
    expect(seen).toEqual([100, 101, 102]);
    expect(events).toContain("closed 300");
  });

  it("end what was begun where their reader leaves", async () => {
    const events: string[] = [];
    const sources = [100, 200, 300].map((from) => source(events, from));
    for await (const _ of inTurn(sources, { hands: 2, steps: 1 })) break;
    expect(events.filter((event) => event.startsWith("closed"))).toHaveLength(2);
    expect(events).not.toContain("began 300");
  });
});
