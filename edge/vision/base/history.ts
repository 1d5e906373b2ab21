// Things that people change one after another, each change at the revision that its maker saw: of
// two at once the later one is made again of what the other left, or is told of it. And their logs
// of moves, of which a rollback takes back the newest that stands.

import { Failure } from "../../../shared/errors.ts";

/** A change that others keep coming before is given up. */
const TRIES_MAX = 5;

/** A thing that is at a revision. */
interface Thing {
  revision: number;
}

/**
 * Makes a change of a row as it is now. `change` gives null where another change came before; it
 * is tried again with what `again` finds then. Fails with `revision_conflict` where a revision is
 * given and the row is at another one, and where others keep coming before. `what` is the thing's
 * name in messages.
 */
export async function changeRevised<Row extends Thing, Changed>(
  row: Row,
  {
    what,
    revision,
    change,
    again,
  }: {
    what: string;
    revision?: number | undefined;
    change: (seen: Row) => Promise<Changed | null>;
    again: () => Promise<Row>;
  },
): Promise<Changed> {
  let seen = row;
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    if (revision !== undefined && revision !== seen.revision) {
      throw new Failure("revision_conflict", `the ${what} is at revision ${seen.revision}`, {
        data: { revision: seen.revision },
      });
    }
    const changed = await change(seen);
    if (changed !== null) return changed;
    seen = await again();
  }
  throw new Failure("revision_conflict", `others keep changing the ${what}; try again`);
}

/** A move as its log has it. */
export interface LoggedMove {
  id: number;
  /** The move that a rollback took back; null of every other. */
  rollbackOf: number | null;
}

/**
 * The moves that stand, oldest first: those that no rollback took back. A rollback takes back the
 * move that it names and all that stood after it, so that each leads further back. Pure.
 */
export function effectiveMoves<One extends LoggedMove>(moves: readonly One[]): One[] {
  const standing: One[] = [];
  for (const move of moves) {
    if (move.rollbackOf === null) standing.push(move);
    else while ((standing.at(-1)?.id ?? -1) >= move.rollbackOf) standing.pop();
  }
  return standing;
}

/**
 * The newest move that stands and may be taken back: `leadsBack` says whether what was before it
 * differs from what is now, `isThere` whether that is still there. Null where there is none;
 * `skipped` are those that led to what is gone.
 */
export async function stepBack<One extends LoggedMove>(
  moves: readonly One[],
  {
    leadsBack,
    isThere = async () => true,
  }: { leadsBack: (move: One) => boolean; isThere?: (move: One) => Promise<boolean> },
): Promise<{ move: One | null; skipped: One[] }> {
  const skipped: One[] = [];
  for (const move of effectiveMoves(moves).toReversed()) {
    if (!leadsBack(move)) continue;
    if (await isThere(move)) return { move, skipped };
    skipped.push(move);
  }
  return { move: null, skipped };
}
