// What the reference tools said, held against the differences that are known: a difference that
// nobody listed fails, and so does a listed one that is gone.

import { z } from "zod";

/** One check by its outcome. `case` is a path such as `formats/polars/series.csv/rows`. */
export const Outcome = z.object({
  case: z.string().min(1),
  outcome: z.enum(["passed", "failed", "skipped"]),
  /** Why it failed or was skipped, or a figure that was measured. */
  detail: z.string().optional(),
});
export type Outcome = z.infer<typeof Outcome>;

/** A difference that a later issue repairs, or that is the tool's own. */
export const KnownDifference = z.strictObject({
  case: z.string().min(1),
  why: z.string().min(1),
  /**
   * Whether it shows depends on the values that a tool draws, which are others with each change of
   * a document: it may be gone without being repaired.
   */
  by_chance: z.literal(true).optional(),
  issue: z.string().optional(),
});
export type KnownDifference = z.infer<typeof KnownDifference>;
export const KnownDifferences = z
  .array(KnownDifference)
  .refine(
    (entries) => new Set(entries.map((entry) => entry.case)).size === entries.length,
    "a case is listed twice",
  );

export const MARKS = { passed: "✓", failed: "✗", known: "known", skipped: "skipped" } as const;
export type Verdict = keyof typeof MARKS;

export interface Judgement {
  case: string;
  verdict: Verdict;
  detail: string;
}

/**
 * Verdicts in the order of the outcomes, then those of the groups' known differences that have
 * gone. Two kinds of entry stay in the list: those under a skipped case, which was not looked at,
 * and those `by_chance`, whose difference other values bring back.
 */
export function judge(
  outcomes: readonly Outcome[],
  known: readonly KnownDifference[],
  groups: readonly string[],
): Judgement[] {
  const whys = new Map(known.map((entry) => [entry.case, entry.why]));
  const failing = new Set(outcomes.flatMap((one) => (one.outcome === "failed" ? [one.case] : [])));
  const skipped = outcomes.flatMap((one) => (one.outcome === "skipped" ? [one.case] : []));
  const judged = outcomes.map((one): Judgement => {
    const why = whys.get(one.case);
    if (one.outcome === "failed" && why !== undefined) {
      const detail = one.detail === undefined ? why : `${why} (${one.detail})`;
      return { case: one.case, verdict: "known", detail };
    }
    return { case: one.case, verdict: one.outcome, detail: one.detail ?? "" };
  });
  const gone = known.filter(
    (entry) =>
      !entry.by_chance &&
      groups.some((group) => isUnder(entry.case, group)) &&
      !failing.has(entry.case) &&
      !skipped.some((one) => isUnder(entry.case, one)),
  );
  return [
    ...judged,
    ...gone.map((entry): Judgement => {
      const detail = "known.json lists this difference, and it is gone: take the entry out";
      return { case: entry.case, verdict: "failed", detail };
    }),
  ];
}

const isUnder = (path: string, folder: string) => path === folder || path.startsWith(`${folder}/`);

/**
 * The outcomes that a script printed, one JSON object a line; other lines are its own chatter. A
 * script that ended badly, or said nothing, is a failure of its own.
 */
export function parseOutcomes(
  script: string,
  output: string,
  ending: { code: number | null; timedOut: boolean },
): Outcome[] {
  const lines = output.split("\n").filter((line) => line.startsWith('{"case"'));
  const outcomes = lines.map((line) => Outcome.parse(JSON.parse(line)));
  if (ending.timedOut)
    return [...outcomes, { case: script, outcome: "skipped", detail: "its time was up" }];
  if (ending.code === 0 && outcomes.length > 0) return outcomes;
  const words = output.trimEnd().split("\n").slice(-12).join("\n");
  const detail = ending.code === 0 ? "said nothing" : `ended with ${ending.code}:\n${words}`;
  return [...outcomes, { case: script, outcome: "failed", detail }];
}

/** How many of each verdict. */
export function count(judged: readonly Judgement[]): Record<Verdict, number> {
  const counts = { passed: 0, failed: 0, known: 0, skipped: 0 };
  for (const { verdict } of judged) counts[verdict] += 1;
  return counts;
}

/** The closing line. */
export const summaryLine = ({ passed, failed, known, skipped }: Record<Verdict, number>) =>
  `peers: ${passed} passed, ${failed} failed, ${known} known, ${skipped} skipped`;
