// The problems of a request, as the body of `invalid_request` lists them: the first ones of any
// number, since a body of 1 MiB may have a hundred thousand.

import type { z } from "zod";
import { Failure } from "../../shared/errors.ts";

/** A problem of a request. */
export interface Issue {
  /** Path of the field from the body's root, joined by dots; the name of a parameter. */
  field: string;
  problem: string;
}

/** Issues that one answer lists. */
export const ISSUES_MAX = 16;
/** Characters of a field and of a problem: a schema names every key that it does not know. */
const FIELD_MAX = 200;
const PROBLEM_MAX = 400;
const cut = (text: string, max: number) =>
  text.length > max ? `${text.slice(0, max).toWellFormed()}…` : text;

/** The issues of a schema's error; `root` is the field that was parsed. */
export const issuesOf = (error: z.core.$ZodError, root: readonly string[] = []): Issue[] =>
  error.issues.map(({ path, message }) => ({
    field: [...root, ...path].join("."),
    problem: message.endsWith("received undefined") ? "required" : message,
  }));

/** The failure `invalid_request` with the first issues, and the number of the others. */
export function invalidRequest(issues: readonly Issue[]): Failure {
  const shown = issues.slice(0, ISSUES_MAX).map(({ field, problem }) => ({
    field: cut(field, FIELD_MAX),
    problem: cut(problem, PROBLEM_MAX),
  }));
  const texts = shown.map(({ field, problem }) => `${field || "body"}: ${problem}`);
  if (issues.length > shown.length) texts.push(`and ${issues.length - shown.length} more`);
  return new Failure("invalid_request", texts.join("; "), { data: { issues: shown } });
}
