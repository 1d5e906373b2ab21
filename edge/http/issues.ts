// The problems of a request, as the body of `invalid_request` lists them: the first ones of any
// number, since a body of 1 MiB may have a hundred thousand.

import type { z } from "zod";
import { Failure } from "../../shared/errors.ts";
import { fieldsAt, unknownFieldProblem } from "./unknown-fields.ts";

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

interface IssueOptions {
  /** The schema of the value, whose fields are named in place of unknown ones. */
  schema?: z.core.$ZodType | undefined;
  /** The field that was parsed. */
  root?: readonly string[];
  /** How many unknown fields are still compared with those that are known. */
  hints?: { left: number };
}

/** The issues of a value that does not fit its schema. */
export function issuesOf(
  { issues }: { issues: readonly z.core.$ZodIssue[] },
  { schema, root = [], hints = { left: ISSUES_MAX } }: IssueOptions = {},
): Issue[] {
  return issues.flatMap((issue): Issue[] => {
    const path = [...root, ...issue.path];
    if (issue.code === "unrecognized_keys") {
      const known = schema && hints.left > 0 ? fieldsAt(schema, issue.path) : [];
      return issue.keys.map((key) => ({
        field: [...path, key].join("."),
        // A comparison with all known names costs some thousands of operations.
        problem: hints.left-- > 0 ? unknownFieldProblem(key, known) : "unknown field",
      }));
    }
    // The option of a union that knows all but some fields is meant.
    const nearly = issue.code === "invalid_union" && issue.errors.find(isOfUnknownFields);
    if (nearly) {
      const within = nearly.map((one) => ({ ...one, path: [...issue.path, ...one.path] }));
      return issuesOf({ issues: within }, { schema, root, hints });
    }
    const { message } = issue;
    const problem = message.endsWith("received undefined") ? "required" : message;
    return [{ field: path.join("."), problem }];
  });
}

const isOfUnknownFields = (issues: readonly z.core.$ZodIssue[]): boolean =>
  issues.length > 0 && issues.every(({ code }) => code === "unrecognized_keys");

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
