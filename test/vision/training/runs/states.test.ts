// The life of a training run: every move from every state is allowed or refused as the contract's
// table says, and nothing else moves a run.

import { describe, expect, it } from "vitest";
import { mayMove } from "../../../../edge/vision/auth/logged-moves.ts";
import { hasEnded, MOVES, type Move } from "../../../../edge/vision/training/runs/states.ts";
import { RUN_STATES } from "../../../../shared/wire/training.ts";

const ALLOWED: Record<Move, readonly (typeof RUN_STATES)[number][]> = {
  begin: ["queued"],
  complete: ["running"],
  fail: ["queued", "running"],
  stop: ["queued", "running"],
  resume: ["stopped", "failed"],
};
const LEADS: Record<Move, (typeof RUN_STATES)[number]> = {
  begin: "running",
  complete: "completed",
  fail: "failed",
  stop: "stopped",
  resume: "queued",
};

describe("a training run", () => {
  it.each(
    (Object.keys(ALLOWED) as Move[]).flatMap((move) =>
      RUN_STATES.map((state) => ({ move, state, allowed: ALLOWED[move].includes(state) })),
    ),
  )("may $move from $state: $allowed", ({ move, state, allowed }) => {
    expect(mayMove(MOVES[move], state)).toBe(allowed);
    expect(MOVES[move].to).toBe(LEADS[move]);
  });

  it("has no other moves, and leaves completed by none", () => {
    expect(Object.keys(MOVES).toSorted()).toEqual(Object.keys(ALLOWED).toSorted());
    expect(RUN_STATES.filter(hasEnded)).toEqual(["completed", "failed", "stopped"]);
    expect(Object.values(MOVES).flatMap(({ from }) => [...from])).not.toContain("completed");
  });
});
