// What a check of a deployment finds, how it is shown, and which findings stop a deployment.

import { paint } from "../command-line.ts";
import type { DatabaseName } from "../migrations.ts";
import type { CorsRule, LifecycleRule } from "./cloudflare.ts";

/** What `npm run deploy` does about a finding. */
export type Change =
  | { kind: "bucket" | "queue"; name: string }
  | { kind: "cors"; bucket: string; rules: CorsRule[] }
  | { kind: "lifecycle"; bucket: string; rules: LifecycleRule[] }
  /** Migrations and the rights of the services' roles. */
  | { kind: "database"; database: DatabaseName }
  /** Everything that the upload of a Worker brings: its code, secrets, variables, domain. */
  | { kind: "upload" };

/**
 * `right`: as wanted. `missing`: not there. `different`: something else is there, which no
 * deployment touches. `unknown`: it could not be looked at.
 */
export type Finding = "right" | "missing" | "different" | "unknown";

/** One thing that was looked at. */
export interface Check {
  subject: string;
  finding: Finding;
  detail: string;
  /** What an operator does about it. */
  remedy?: string;
  /** What a deployment does about it; without one, what is not right is the operator's. */
  change?: Change;
}

/** Whether the operator has to act before anything may be changed. */
export const isBlocking = ({ finding, change }: Check): boolean =>
  finding !== "right" && (finding !== "missing" || change === undefined);

const MARKS = {
  right: paint("green", "right    "),
  missing: paint("yellow", "missing  "),
  different: paint("red", "different"),
  unknown: paint("red", "unknown  "),
};

/** A line of a check, and one for what to do about it. */
export function linesOf({ subject, finding, detail, remedy }: Check): string {
  const line = `${MARKS[finding]}  ${subject}: ${detail}\n`;
  return remedy === undefined ? line : `${line}             → ${remedy}\n`;
}
