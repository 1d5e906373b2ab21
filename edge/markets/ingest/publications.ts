// Answers of providers that publish everything anew, beside the newest one that was committed.

import type { Database } from "../../http/database.ts";
import { lastPublication } from "../store/listings.ts";
import type { Finding } from "./gate.ts";
import type { FetchResult, Pipeline } from "./pipeline.ts";

/** The findings of an answer beside the newest publication committed before it. */
export interface PublicationComparison {
  /** About the answer as a whole. */
  findings: Finding[];
  /** About the valid times of the rows that its commits revised or retracted. */
  ofChanges: (changedAt: readonly number[], now: number) => Finding[];
}

/** Compares a fetched answer with the newest publication committed by its pipeline. */
export async function comparePublication(
  database: Database,
  { publications, libraries }: Pipeline,
  { publishedAt, sourceUrl }: FetchResult,
): Promise<PublicationComparison> {
  if (!publications || publishedAt === undefined) return { findings: [], ofChanges: () => [] };
  const answer = { publishedAt, sourceUrl };
  const last = await lastPublication(database, libraries);
  return {
    findings: last ? publications.judge(answer, last) : [],
    ofChanges: (changedAt, now) => publications.judgeChanges(changedAt, { answer, last, now }),
  };
}
