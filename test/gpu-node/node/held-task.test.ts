// A task that a node holds: which demand replaces which, what follows from each, and what is
// reported of it. Goal: the strongest demand wins in any order, and nothing unseen is reported.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { backoffMs } from "../../../gpu-node/node/backoff.ts";
import {
  type Action,
  claimedTask,
  type Demand,
  demandOf,
  demandsExit,
  isStalled,
  outcomeOf,
  reportOf,
} from "../../../gpu-node/node/held-task.ts";

const task = (now = 0) =>
  claimedTask(
    {
      task_id: "00000000-0000-4000-8000-000000000000",
      kind: "label",
      fence: 1,
      attempt: 1,
      lease_until: "2026-01-01T00:00:00Z",
      payload: {},
      more: false,
    },
    now,
  );
const DEMANDS: readonly Demand[] = ["go_on", "cancel", "snooze", "revoke", "lost"];

describe("a demand", () => {
  it("takes the actions that are its own", () => {
    const expected: Record<Demand, Action[]> = {
      go_on: [],
      cancel: ["cancel"],
      snooze: ["end"],
      revoke: ["end"],
      lost: ["abandon", "kill"],
    };
    for (const demand of DEMANDS) expect(demandOf(task(), demand)).toEqual(expected[demand]);
  });

  it("is replaced by a stronger one alone, in whatever order they come", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...DEMANDS), { minLength: 1 }), (demands) => {
        const held = task();
        for (const [index, demand] of demands.entries()) {
          const strongest = Math.max(
            0,
            ...demands.slice(0, index).map((one) => DEMANDS.indexOf(one)),
          );
          const actions = demandOf(held, demand);
          if (DEMANDS.indexOf(demand) <= strongest) expect(actions).toEqual([]);
          else expect(actions.length).toBeGreaterThan(0);
        }
        const strongest = Math.max(...demands.map((one) => DEMANDS.indexOf(one)));
        expect(held.demand).toBe(DEMANDS[strongest]);
        expect(demandsExit(held.demand)).toBe(strongest >= DEMANDS.indexOf("snooze"));
      }),
    );
  });

  it("changes nothing of a task that is being reported, unless that is lost", () => {
    for (const demand of DEMANDS) {
      const held = { ...task(), phase: "reporting" as const };
      expect(demandOf(held, demand)).toEqual(demand === "lost" ? ["abandon"] : []);
      expect(held.demand).toBe("go_on");
    }
  });
});

describe("a task without a sign of life", () => {
  it("is stalled once its silence is long enough, and once only", () => {
    const held = task(1_000);
    expect(isStalled(held, 1_999, 1_000)).toBe(false);
    expect(isStalled(held, 2_000, 1_000)).toBe(true);
    held.lastSignAt = 1_500;
    expect(isStalled(held, 2_000, 1_000)).toBe(false);
    expect(isStalled({ ...held, stalled: true }, 9_000, 1_000)).toBe(false);
    expect(isStalled({ ...held, phase: "reporting" }, 9_000, 1_000)).toBe(false);
  });

  it("fails, to be tried again, where its process was ended for that", () => {
    const outcome = { outcome: "finished", result: {} } as const;
    const stalled = { stalled: true, demand: "go_on" } as const;
    expect(reportOf(stalled, { how: "ended" })).toMatchObject({
      outcome: "failed",
      code: "node_stalled",
      retryable: true,
    });
    expect(reportOf(stalled, { how: "outcome", outcome })).toEqual(outcome);
  });
});

describe("what is reported", () => {
  it("is what was seen and still wanted", () => {
    const finished = { how: "outcome", outcome: { outcome: "finished", result: {} } } as const;
    const gone = { how: "ended" } as const;
    expect(outcomeOf(finished, "go_on")).toEqual(finished.outcome);
    expect(outcomeOf(finished, "snooze")).toEqual(finished.outcome);
    expect(outcomeOf(finished, "lost")).toBeNull();
    expect(outcomeOf(finished, "revoke")).toEqual({ outcome: "revoked", exited: true });
    expect(outcomeOf(gone, "cancel")).toEqual({ outcome: "cancelled", result: null });
    expect(outcomeOf(gone, "snooze")).toEqual({ outcome: "snoozed", seconds: 0 });
    expect(outcomeOf(gone, "go_on")).toEqual({ outcome: "snoozed", seconds: 0 });
  });

  it("is told again after pauses that grow, differ, and heed what was asked", () => {
    expect(backoffMs(0, null, () => 0)).toBe(125);
    expect(backoffMs(0, null, () => 1)).toBe(250);
    expect(backoffMs(50, null, () => 1)).toBe(15_000);
    expect(backoffMs(0, 5_000, () => 1)).toBe(5_000);
    expect(backoffMs(0, 1e9, () => 1)).toBe(60_000);
  });
});
