// The problems of a workflow as they are told: all at once, up to a bound, each with what would
// make it right.

import { nearest } from "../detector/vocabulary.ts";
import type { WorkflowProblem } from "./definition.ts";
import type { Kind } from "./kinds.ts";

/** Beyond it a list helps nobody, and a hostile definition makes any number. */
const PROBLEMS_MAX = 500;
/**
 * Unknown names of a definition that are compared with the known ones. Each comparison costs some
 * thousands of operations, and a definition may have thousands of unknown names.
 */
const SUGGESTIONS_MAX = 5;

/** Where a problem is: a step and its port, or an input's or output's name. */
export interface ProblemSpot {
  step: string | null;
  port: string | null;
}

export class Problems {
  readonly all: WorkflowProblem[] = [];
  #suggestions = 0;

  get isFull(): boolean {
    return this.all.length >= PROBLEMS_MAX;
  }

  add(
    code: WorkflowProblem["code"],
    { step, port }: ProblemSpot,
    said: { detail: string; fix: string },
  ): void {
    if (!this.isFull) this.all.push({ code, step, port, detail: said.detail, fix: said.fix });
  }

  /** What to do about a name that is not known; `none` where no name is. */
  otherName(name: string, known: readonly string[], none: string): string {
    const isCompared = !this.isFull && this.#suggestions++ < SUGGESTIONS_MAX;
    const meant = isCompared ? nearest(name, known) : null;
    if (meant) return `did you mean ${meant}?`;
    return known.length > 0 ? `take one of ${named(known)}` : none;
  }
}

/** Some names as a sentence has them. */
export const named = (names: readonly string[]): string =>
  names.length > 12 ? `${names.slice(0, 12).join(", ")}, …` : names.join(", ");

const VOWEL = /^[aeiou]/;
/** A kind after its article. */
export const aKind = (kind: Kind): string => {
  if (kind === "any") return "any value";
  if (kind === "detections" || /s$/.test(kind)) return kind;
  return `${VOWEL.test(kind) ? "an" : "a"} ${kind}`;
};
