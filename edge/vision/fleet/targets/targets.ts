// Targets as rows, found only within the caller's workspaces. What opens one is sealed, bound to
// its row, and goes to the address that it was given for and to no other.

import { type SQL, sql } from "drizzle-orm";
import { target, targetCheck } from "../../../../db/vision/targets.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { Secret } from "../../../../shared/secret.ts";
import type { Role } from "../../../../shared/wire/vision.ts";
import { addressProblem } from "../../../http/outbound.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import { jsonb } from "../../../http/storable.ts";
import { type Act, auditEntries } from "../../auth/audit.ts";
import { allow, type Caller, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { seal, unseal } from "../../base/sealing.ts";
import { idList, instant } from "../../base/sql.ts";
import type { Target, TargetCheck, TargetConfig } from "./records.ts";

/** Targets of a workspace. */
const TARGETS_MAX = 100;

const t = columnsOf(target, "t");
/** The columns of a target `t`. */
export const TARGET = selection({
  targetId: t.id,
  workspaceId: t.workspaceId,
  name: t.name,
  config: typed<TargetConfig>(t.config),
  credential: t.credential,
  enabled: t.enabled,
  state: t.state,
  problem: t.problem,
  latencyMs: t.latencyMs,
  checkedAt: t.checkedAt,
  since: t.since,
  revision: t.revision,
  createdAt: t.createdAt,
  updatedAt: t.updatedAt,
});
/** A target with what opens it, sealed. */
export type TargetRow = RowOf<typeof TARGET>;

/** A target as the wire shows it. */
export const targetRecord = (row: TargetRow): Target => ({
  target_id: row.targetId,
  workspace_id: row.workspaceId,
  name: row.name,
  config: row.config,
  has_credential: row.credential !== null,
  enabled: row.enabled,
  status: row.state,
  problem: row.problem,
  latency_ms: row.latencyMs,
  checked_at: row.checkedAt,
  since: row.since,
  created_at: row.createdAt,
  updated_at: row.updatedAt,
});

type TargetParts = Pick<Parts, "database" | "clock" | "sealing" | "outbound">;

/** Targets of these workspaces, by name. */
export async function listTargets(
  { database }: Pick<Parts, "database">,
  workspaces: readonly string[],
): Promise<TargetRow[]> {
  const rows = await rowsOf(database, TARGET)`
    SELECT ${TARGET} FROM target t WHERE t.workspace_id IN ${idList(workspaces)}
     ORDER BY t.name, t.id`;
  return rows;
}

const notThere = () => new Failure("not_found", "no such target in your workspaces");

/** A target for a caller with at least this role in its workspace. */
export async function findTargetFor(
  { database }: Pick<Parts, "database">,
  caller: Caller,
  targetId: string,
  role: Role = "viewer",
): Promise<TargetRow> {
  const rows = await rowsOf(database, TARGET)`
    SELECT ${TARGET} FROM target t
     WHERE t.id = ${targetId}::uuid AND t.workspace_id IN ${idList(workspacesOf(caller))}`;
  const [row] = rows;
  if (!row) throw notThere();
  allow(caller, row.workspaceId, role);
  return row;
}

/** What credentials of targets are sealed for. */
const useOf = (targetId: string) => ({ purpose: "target credential", rowId: targetId });

/** What opens a target; null where nothing is needed. */
export async function credentialOf(
  { sealing }: Pick<Parts, "sealing">,
  { targetId, credential }: Pick<TargetRow, "targetId" | "credential">,
): Promise<Secret | null> {
  return credential === null ? null : await unseal(sealing, useOf(targetId), credential);
}

/** Fails with `invalid_request` for an address that may not be asked, `not_found` for a device. */
async function checkConfig(
  { database, outbound }: TargetParts,
  workspaceId: string,
  config: TargetConfig,
): Promise<void> {
  if (config.kind === "device") {
    const { rows } = await database.execute(sql`
      SELECT FROM device WHERE id = ${config.device_id}::uuid
         AND workspace_id = ${workspaceId}::uuid AND deleted_at IS NULL`);
    if (rows.length === 0) throw new Failure("not_found", "no such device in the workspace");
    return;
  }
  const problem = addressProblem(outbound, config.url);
  if (problem) throw new Failure("invalid_request", `config.url: ${problem}`);
  const { search, hash } = new URL(config.url);
  if (search || hash) throw new Failure("invalid_request", "config.url: must have no query");
}

/** What the audit log says of a target: its kind and server, and no credential. */
function shown(name: string, config: TargetConfig, enabled: boolean): string {
  const server = config.kind === "device" ? `device:${config.device_id}` : new URL(config.url).host;
  return JSON.stringify({ name, kind: config.kind, server, enabled });
}

const entryOf = (act: Act, { before, after }: { before: string | null; after: string | null }) =>
  auditEntries(act, {
    subject: sql`'target:' || t.id`,
    workspaceId: sql`t.workspace_id`,
    before: sql`${before}::jsonb`,
    after: sql`${after}::jsonb`,
    from: sql`t`,
  });

/** A new target. */
export interface NewTarget {
  workspaceId: string;
  name: string;
  config: TargetConfig;
  credential: string | null;
  enabled: boolean;
  act: Act;
}

/** Makes a target; fails with `state_conflict` where the workspace has as many as it may have. */
export async function createTarget(parts: TargetParts, target: NewTarget): Promise<TargetRow> {
  const { workspaceId, name, config, credential, enabled, act } = target;
  await checkConfig(parts, workspaceId, config);
  const id = crypto.randomUUID();
  const sealed = credential === null ? null : await seal(parts.sealing, useOf(id), credential);
  const now = instant(parts.clock());
  const rows = await rowsOf(parts.database, TARGET)`
    WITH t AS (
      INSERT INTO target (id, workspace_id, name, config, credential, enabled, next_check_at,
        created_by, created_at, updated_at)
      SELECT ${id}::uuid, ${workspaceId}::uuid, ${name}, ${jsonb(config)}, ${sealed}::text,
        ${enabled}::boolean, ${now}, ${act.actorId}::uuid, ${now}, ${now}
       WHERE (SELECT count(*) FROM target WHERE workspace_id = ${workspaceId}::uuid)
         < ${TARGETS_MAX}::int
      RETURNING *),
    logged AS (${entryOf(act, { before: null, after: shown(name, config, enabled) })})
    SELECT ${TARGET} FROM t`;
  const [row] = rows;
  if (row) return row;
  const detail = `the workspace has ${TARGETS_MAX} targets, which is as many as it may have`;
  throw new Failure("state_conflict", detail, { data: { targets_max: TARGETS_MAX } });
}

/** What is to change of a target; a credential of null is taken away. */
export interface TargetChange {
  name?: string | undefined;
  config?: TargetConfig | undefined;
  credential?: string | null | undefined;
  enabled?: boolean | undefined;
}

const originOf = (config: TargetConfig): string | null =>
  config.kind === "device" ? null : new URL(config.url).origin;

/**
 * Changes a target of the revision that was seen; fails with `revision_conflict` where another
 * change came before. What is known of its health is forgotten where it is another server now.
 */
export async function updateTarget(
  parts: TargetParts,
  row: TargetRow,
  { change, act }: { change: TargetChange; act: Act },
): Promise<TargetRow> {
  const name = change.name ?? row.name;
  const config = change.config ?? row.config;
  const enabled = change.enabled ?? row.enabled;
  if (change.config) await checkConfig(parts, row.workspaceId, change.config);
  const isElsewhere = originOf(config) !== originOf(row.config);
  if (isElsewhere && row.credential !== null && change.credential === undefined) {
    const detail = "credential: give it anew, or null: it was given for another server";
    throw new Failure("invalid_request", detail);
  }
  let sealed = row.credential;
  if (change.credential === null) sealed = null;
  else if (change.credential !== undefined) {
    sealed = await seal(parts.sealing, useOf(row.targetId), change.credential);
  }
  const isOther = change.config !== undefined || change.credential !== undefined;
  const forgotten: SQL = isOther
    ? sql`, state = 'unknown', since = NULL, problem = NULL, latency_ms = NULL, failures = 0`
    : sql``;
  const now = instant(parts.clock());
  const before = shown(row.name, row.config, row.enabled);
  const rows = await rowsOf(parts.database, TARGET)`
    WITH t AS (
      UPDATE target SET name = ${name}, config = ${jsonb(config)}, credential = ${sealed}::text,
        enabled = ${enabled}::boolean, revision = revision + 1, updated_at = ${now},
        next_check_at = ${now}${forgotten}
       WHERE id = ${row.targetId}::uuid AND revision = ${row.revision}::int RETURNING *),
    logged AS (${entryOf(act, { before, after: shown(name, config, enabled) })})
    SELECT ${TARGET} FROM t`;
  const [changed] = rows;
  if (changed) return changed;
  throw new Failure(
    "revision_conflict",
    "somebody changed the target meanwhile; look, and try again",
  );
}

/** Deletes a target with its history. */
export async function deleteTarget(
  { database }: Pick<Parts, "database">,
  row: TargetRow,
  act: Act,
): Promise<void> {
  const before = shown(row.name, row.config, row.enabled);
  const { rows } = await database.execute(sql`
    WITH t AS (DELETE FROM target WHERE id = ${row.targetId}::uuid RETURNING id, workspace_id),
    logged AS (${entryOf(act, { before, after: null })})
    SELECT id FROM t`);
  if (rows.length === 0) throw notThere();
}

const c = columnsOf(targetCheck, "c");
const CHECK: SQL<TargetCheck> = selection({
  at: c.at,
  up: c.up,
  latency_ms: c.latencyMs,
  problem: c.problem,
});

/** Looks at a target, newest first. */
export async function listChecks(
  { database }: Pick<Parts, "database">,
  targetId: string,
  limit: number,
): Promise<TargetCheck[]> {
  return await rowsOf(database, CHECK)`
    SELECT ${CHECK} FROM target_check c
     WHERE c.target_id = ${targetId}::uuid ORDER BY c.at DESC LIMIT ${limit}::int`;
}
