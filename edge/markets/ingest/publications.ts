// Answers of providers that publish everything anew, beside the newest one that was committed.

import type { Database } from "../../http/database.ts";
import { lastPublication } from "../store/listings.ts";
import type { Finding } from "./gate.ts";
import type { Fetched, Pipeline } from "./pipeline.ts";

export interface Compared {
  /** Of the answer as a whole. */
  findings: Finding[];
  /** Of the valid times of the rows that its commits revised or retracted. */
  ofChanges: (changedAt: readonly number[], now: number) => Finding[];
}

/** Compares a fetched answer with the newest publication committed by its pipeline. */
export async function comparePublication(
  database: Database,
  { publications, libraries }: Pipeline,
  { publishedAt, sourceUrl }: Fetched,
): Promise<Compared> {
  if (!publications || publishedAt === undefined) return { findings: [], ofChanges: () => [] };
  const answer = { publishedAt, sourceUrl };
  const last = await lastPublication(database, libraries);
  return {
    findings: last ? publications.judge(answer, last) : [],
    ofChanges: (changedAt, now) => publications.judgeChanges(changedAt, { answer, last, now }),
  };
}
