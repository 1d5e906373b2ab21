// Names and numbers of a job's classes. Two names that differ in nothing but case, or in how
// Unicode composes their letters, are one class to people: a job has at most one of them.

import { z } from "@hono/zod-openapi";
import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { name, trimmed } from "../../http/texts.ts";
import { folded, foldedName } from "../base/lists.ts";

const CHARACTERS_MAX = 200;
/** A letter with its marks composes of so many characters at most in what people write. */
const DECOMPOSED_MAX = 4 * CHARACTERS_MAX;

/** A class's name as a request gives it: without blanks around it, its letters composed (NFC). */
export const ClassName = z
  .string()
  .trim()
  // Composing takes the square of a text's length where it is made for that.
  .max(DECOMPOSED_MAX, { abort: true, error: `must have at most ${CHARACTERS_MAX} characters` })
  .normalize("NFC")
  .pipe(name().max(CHARACTERS_MAX))
  .meta(trimmed(CHARACTERS_MAX));

/** Fails with `invalid_request` when two names of a new job are of one class. */
export function assertDistinct(names: readonly string[]): void {
  const known = new Map<string, string>();
  for (const one of names) {
    const before = known.get(foldedName(one));
    if (before !== undefined) {
      const both = `${JSON.stringify(before)} and ${JSON.stringify(one)}`;
      throw new Failure("invalid_request", `${both} are one class; give one of them`);
    }
    known.set(foldedName(one), one);
  }
}

/** The failure of a class that the job has, under this or nearly this name, or as `detail` says. */
export const classExists = (existing: string, detail?: string): Failure => {
  const has = `the job has a class ${JSON.stringify(existing)}`;
  return new Failure("class_exists", detail ? `${has}: ${detail}` : has, {
    data: { class: existing },
  });
};

/** A number that no class of the job has or had. */
export const unusedNumber = (jobId: string): SQL => sql`(
  SELECT 1 + greatest(
    (SELECT coalesce(max(number), -1) FROM job_class WHERE job_id = ${jobId}::uuid),
    (SELECT coalesce(max((k->>'number')::int), -1)
       FROM change, jsonb_array_elements(coalesce(summary->'classes', '[]')) k
      WHERE job_id = ${jobId}::uuid),
    (SELECT coalesce(max((summary->'added'->>'number')::int), -1)
       FROM change WHERE job_id = ${jobId}::uuid)))`;

/**
 * `named`, for a WITH: a job's class by its name. One that it lacks is `added` if `when` holds,
 * unless the name is `taken` by a class that is nearly called so.
 */
export const classNamed = (jobId: string, wanted: string, when: SQL): SQL => sql`
  known AS (
    SELECT number FROM job_class WHERE job_id = ${jobId}::uuid AND name = ${wanted}
  ), taken AS (
    SELECT name FROM job_class WHERE job_id = ${jobId}::uuid AND NOT EXISTS (SELECT FROM known)
       AND ${folded(sql`name`)} = ${folded(sql`${wanted}::text`)} LIMIT 1
  ), added AS (
    INSERT INTO job_class (job_id, number, name)
    SELECT ${jobId}::uuid, ${unusedNumber(jobId)}, ${wanted}
     WHERE ${when} AND NOT EXISTS (SELECT FROM known) AND NOT EXISTS (SELECT FROM taken)
    RETURNING number, name
  ), named AS (SELECT number FROM known UNION ALL SELECT number FROM added)`;
