// Secrets that workflows name: sealed, bound to their row, written and never read back. They are
// opened for one delivery, and shown in no answer, log line or error.

import { type SQL, sql } from "drizzle-orm";
import { workflowSecret } from "../../../db/vision/workflows.ts";
import { Failure } from "../../../shared/errors.ts";
import type { Secret } from "../../../shared/secret.ts";
import type { WorkflowSecret } from "../../../shared/wire/workflows.ts";
import type { Database } from "../../http/database.ts";
import { columnsOf, rowsOf, selection } from "../../http/selection.ts";
import { type Act, auditEntries } from "../auth/audit.ts";
import type { Parts } from "../base/parts.ts";
import { seal, unseal } from "../base/sealing.ts";
import { idList, instant, textList } from "../base/sql.ts";

/** Secrets of a workspace. */
const SECRETS_MAX = 200;

const useOf = (id: string) => ({ purpose: "workflow secret", rowId: id });

const s = columnsOf(workflowSecret, "s");
const SECRET: SQL<WorkflowSecret> = selection({
  workspace_id: s.workspaceId,
  name: s.name,
  created_at: s.createdAt,
  updated_at: s.updatedAt,
});

/** The names of the secrets of workspaces. */
export async function listSecrets(
  database: Database,
  workspaces: readonly string[],
): Promise<WorkflowSecret[]> {
  const rows = await rowsOf(database, SECRET)`
    SELECT ${SECRET} FROM workflow_secret s WHERE s.workspace_id IN ${idList(workspaces)}
     ORDER BY s.name, s.id`;
  return rows;
}

/** Which secret is meant. */
export interface SecretName {
  workspaceId: string;
  name: string;
}

/** The entry of the audit log, which has the secret's name alone, in terms of the part `s`. */
function entryOf(act: Act, isThere: boolean) {
  const name = sql`jsonb_build_object('name', s.name)`;
  return auditEntries(act, {
    subject: sql`'secret:' || s.name`,
    workspaceId: sql`s.workspace_id`,
    before: isThere ? sql`CASE WHEN s.updated_at > s.created_at THEN ${name} END` : name,
    after: isThere ? name : sql`NULL::jsonb`,
    from: sql`s`,
  });
}

/**
 * Gives a secret its value, a new one or another. Fails with `state_conflict` where the workspace
 * has as many as it may have.
 */
export async function putSecret(
  { database, clock, sealing }: Pick<Parts, "database" | "clock" | "sealing">,
  { workspaceId, name }: SecretName,
  { value, act }: { value: string; act: Act },
): Promise<WorkflowSecret> {
  const now = instant(clock());
  const own = sql`workspace_id = ${workspaceId}::uuid`;
  // A row of its own id whenever the value changes: an envelope opens in the row it was made for.
  const id = crypto.randomUUID();
  const sealed = await seal(sealing, useOf(id), value);
  const rows = await rowsOf(database, SECRET)`
    WITH s AS (
      INSERT INTO workflow_secret (id, workspace_id, name, sealed, created_by, created_at,
        updated_at)
      SELECT ${id}::uuid, ${workspaceId}::uuid, ${name}, ${sealed}, ${act.actorId}::uuid, ${now},
        ${now}
       WHERE EXISTS (SELECT FROM workflow_secret WHERE ${own} AND name = ${name})
          OR (SELECT count(*) FROM workflow_secret WHERE ${own}) < ${SECRETS_MAX}::int
      ON CONFLICT (workspace_id, name) DO UPDATE SET id = excluded.id, sealed = excluded.sealed,
        updated_at = excluded.updated_at
      RETURNING *),
    logged AS (${entryOf(act, true)})
    SELECT ${SECRET} FROM s`;
  const [secret] = rows;
  if (secret) return secret;
  const detail = `the workspace has ${SECRETS_MAX} secrets, which is as many as it may have`;
  throw new Failure("state_conflict", detail, { data: { secrets_max: SECRETS_MAX } });
}

/** Deletes a secret; fails with `not_found`. What names it is sent no more. */
export async function deleteSecret(
  { database }: Pick<Parts, "database">,
  { workspaceId, name }: SecretName,
  act: Act,
): Promise<void> {
  const { rows } = await database.execute(sql`
    WITH s AS (
      DELETE FROM workflow_secret WHERE workspace_id = ${workspaceId}::uuid AND name = ${name}
      RETURNING *),
    logged AS (${entryOf(act, false)})
    SELECT FROM s`);
  if (rows.length === 0) throw new Failure("not_found", "no such secret in your workspaces");
}

/**
 * Opens secrets of a workspace by their names; those that are not there are left out. Fails with
 * `bad_configuration` where one does not open.
 */
export async function openSecrets(
  { database, sealing }: Pick<Parts, "database" | "sealing">,
  workspaceId: string,
  names: readonly string[],
): Promise<Map<string, Secret>> {
  const opened = new Map<string, Secret>();
  if (names.length === 0) return opened;
  const { rows } = await database.execute<{ id: string; name: string; sealed: string }>(sql`
    SELECT id::text, name, sealed FROM workflow_secret
     WHERE workspace_id = ${workspaceId}::uuid AND name IN ${textList(names)}`);
  for (const { id, name, sealed } of rows) {
    opened.set(name, await unseal(sealing, useOf(id), sealed));
  }
  return opened;
}
