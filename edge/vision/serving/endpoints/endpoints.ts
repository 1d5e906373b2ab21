// Named endpoints as rows, and the log of their moves. A move changes an endpoint and is written to
// the log in one statement, of the revision that its maker saw: of two at once one is told of the
// other. A deleted endpoint's row stays, so that its deletion can be taken back.

import { type SQL, sql } from "drizzle-orm";
import { endpoint, endpointMove } from "../../../../db/vision/endpoints.ts";
import { Failure } from "../../../../shared/errors.ts";
import { iso } from "../../../../shared/time.ts";
import { type EndpointMove, EndpointSettings } from "../../../../shared/wire/endpoints.ts";
import { batch, type Database } from "../../../http/database.ts";
import {
  columnsOf,
  extended,
  type RowOf,
  rowsOf,
  selection,
  typed,
} from "../../../http/selection.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Page } from "../../base/api.ts";
import { changeRevised, type LoggedMove, stepBack } from "../../base/history.ts";
import type { Parts } from "../../base/parts.ts";
import { breaksReference, idList } from "../../base/sql.ts";
import { lockRegistry, modelList } from "../../models/registry.ts";

/** Endpoints of a workspace. */
const ENDPOINTS_MAX = 100;

const e = columnsOf(endpoint, "e");
/** The columns of an endpoint `e`. */
export const ENDPOINT = selection({
  endpointId: e.id,
  workspaceId: e.workspaceId,
  slug: e.slug,
  settings: typed<EndpointSettings>(e.settings),
  revision: e.revision,
  createdAt: e.createdAt,
  updatedAt: e.updatedAt,
  deleted: sql<boolean>`e.deleted_at IS NOT NULL`,
});
/** An endpoint. */
export type EndpointRow = RowOf<typeof ENDPOINT>;

/** The columns of an endpoint `e` and its models, which are found by their keys. */
export const SERVED_ENDPOINT = extended(ENDPOINT, {
  models: modelList(sql`
    jsonb_array_elements(e.settings->'models' || coalesce(e.settings->'shadow', 'null')) target
    JOIN model m ON m.workspace_id = e.workspace_id AND m.id = CASE target->>'alias'
      WHEN 'active' THEN (SELECT id FROM model WHERE workspace_id = e.workspace_id AND active)
      ELSE coalesce((target->>'model_id')::uuid, (SELECT model_id FROM model_alias
        WHERE workspace_id = e.workspace_id AND alias = target->>'alias')) END`),
});
/** An endpoint, and the models that its settings and its shadow come to at that moment. */
export type ServedEndpoint = RowOf<typeof SERVED_ENDPOINT>;

/** What is said of an endpoint that is none of the caller's, or none any more. */
export const notThere = () => new Failure("not_found", "no such endpoint in your workspaces");

/** Endpoints of the workspaces, by slug. */
export async function listEndpoints(
  database: Database,
  workspaces: readonly string[],
): Promise<EndpointRow[]> {
  const rows = await rowsOf(database, ENDPOINT)`
    SELECT ${ENDPOINT} FROM endpoint e
     WHERE e.workspace_id IN ${idList(workspaces)} AND e.deleted_at IS NULL ORDER BY e.slug, e.id`;
  return rows;
}

/** Ids of a workspace's endpoints that were there at an instant, or came since. */
export async function endpointIdsSince(
  database: Database,
  workspaceId: string,
  instant: number,
): Promise<string[]> {
  const { rows } = await database.execute<{ id: string }>(sql`
    SELECT id::text FROM endpoint WHERE workspace_id = ${workspaceId}::uuid
       AND (deleted_at IS NULL OR deleted_at >= ${iso(instant)}::timestamptz)`);
  return rows.map(({ id }) => id);
}

/**
 * The endpoint of a slug; with `orFormer` the newest deleted one where there is no other. Fails
 * with `not_found`, and with `invalid_request` where several of the workspaces have one.
 */
export async function findEndpoint(
  database: Database,
  workspaces: readonly string[],
  { slug, orFormer = false }: { slug: string; orFormer?: boolean },
): Promise<ServedEndpoint> {
  const rows = await rowsOf(database, SERVED_ENDPOINT)`
    SELECT DISTINCT ON (e.workspace_id) ${SERVED_ENDPOINT} FROM endpoint e
     WHERE e.workspace_id IN ${idList(workspaces)} AND e.slug = ${slug}
       AND (e.deleted_at IS NULL OR ${orFormer}::boolean)
     ORDER BY e.workspace_id, (e.deleted_at IS NULL) DESC, e.deleted_at DESC`;
  const [row] = rows;
  if (!row) throw notThere();
  if (rows.length === 1) return row;
  const detail = `workspace_id: required, since several of your workspaces have an endpoint ${slug}`;
  throw new Failure("invalid_request", detail);
}

const n = columnsOf(endpointMove, "n");
const MOVE: SQL<EndpointMove> = selection({
  move_id: n.id,
  endpoint_id: n.endpointId,
  kind: n.kind,
  before: typed<EndpointMove["before"]>(n.before),
  after: typed<EndpointMove["after"]>(n.after),
  rollback_of: n.rollbackOf,
  actor_id: n.actorId,
  at: n.at,
});

/** The models that settings name by their ids. */
export const pinnedModels = ({ models, shadow }: EndpointSettings): string[] => [
  ...new Set([...models, ...(shadow ? [shadow] : [])].flatMap(({ model_id }) => model_id ?? [])),
];

/** Makes a move: writes it to the log, and which models the endpoint holds on to. */
const noted = (
  changed: SQL,
  { kind, before, after, rollbackOf, actorId }: Omit<NewMove, "row">,
): SQL => sql`
  WITH changed AS (${changed}),
  dropped AS (DELETE FROM endpoint_model USING changed
    WHERE endpoint_id = changed.id AND model_id NOT IN ${idList(after ? pinnedModels(after) : [])}),
  added AS (INSERT INTO endpoint_model (endpoint_id, model_id)
    SELECT changed.id, pinned.id FROM changed, ${idList(after ? pinnedModels(after) : [])}
      AS pinned (id) ON CONFLICT DO NOTHING),
  n AS (INSERT INTO endpoint_move
      (workspace_id, endpoint_id, slug, kind, before, after, rollback_of, actor_id)
    SELECT workspace_id, id, slug, ${kind}, ${before ? jsonb(before) : sql`NULL`},
      ${after ? jsonb(after) : sql`NULL`}, ${rollbackOf ?? null}::bigint, ${actorId}::uuid
      FROM changed RETURNING *)
  SELECT ${MOVE} FROM n`;

/** A move of an endpoint. */
interface NewMove {
  row: EndpointRow;
  kind: EndpointMove["kind"];
  before: EndpointSettings | null;
  after: EndpointSettings | null;
  rollbackOf?: number;
  actorId: string;
}

const modelIsGone = () => new Failure("not_found", "no such model in your workspaces");

/**
 * Runs a move under the lock of its workspace's registry; null where its condition does not hold.
 */
async function perform(
  database: Database,
  workspaceId: string,
  statement: SQL,
): Promise<EndpointMove | null> {
  try {
    const [, [move]] = await batch<[unknown, EndpointMove]>(database, [
      lockRegistry(workspaceId),
      statement,
    ]);
    return move ?? null;
  } catch (thrown) {
    // A model that it names was deleted since it was looked up.
    if (breaksReference(thrown)) throw modelIsGone();
    throw thrown;
  }
}

/**
 * Makes an endpoint; returns it. Fails with `state_conflict` where the workspace has one of this
 * slug, or as many as it may have.
 */
export async function createEndpoint(
  { database }: Pick<Parts, "database">,
  endpoint: {
    workspaceId: string;
    slug: string;
    settings: EndpointSettings;
    actorId: string;
  },
): Promise<EndpointRow> {
  const { workspaceId, slug, settings, actorId } = endpoint;
  const own = sql`workspace_id = ${workspaceId}::uuid AND deleted_at IS NULL`;
  const made = sql`
    INSERT INTO endpoint (id, workspace_id, slug, settings, created_by)
    SELECT ${crypto.randomUUID()}::uuid, ${workspaceId}::uuid, ${slug}, ${jsonb(settings)},
      ${actorId}::uuid
     WHERE (SELECT count(*) FROM endpoint WHERE ${own}) < ${ENDPOINTS_MAX}::int
    ON CONFLICT (workspace_id, slug) WHERE deleted_at IS NULL DO NOTHING
    RETURNING id, workspace_id, slug`;
  const move = { kind: "create" as const, before: null, after: settings, actorId };
  const done = await perform(database, workspaceId, noted(made, move));
  if (done) return findEndpoint(database, [workspaceId], { slug });
  const { rows } = await database.execute(sql`
    SELECT FROM endpoint WHERE ${own} AND slug = ${slug}`);
  if (rows.length > 0) {
    throw new Failure("state_conflict", `slug: the workspace has an endpoint ${slug}`);
  }
  const detail = `the workspace has ${ENDPOINTS_MAX} endpoints, which is as many as it may have`;
  throw new Failure("state_conflict", detail, { data: { endpoints_max: ENDPOINTS_MAX } });
}

/** Makes a move of the revision that was seen; null where another one came before. */
function moveOf(database: Database, { row, ...move }: NewMove): Promise<EndpointMove | null> {
  const changed = sql`
    UPDATE endpoint e SET settings = ${move.after ? jsonb(move.after) : sql`settings`},
      deleted_at = ${move.after ? sql`NULL::timestamptz` : sql`now()`},
      revision = revision + 1, updated_at = now()
     WHERE id = ${row.endpointId}::uuid AND revision = ${row.revision}::int
       AND (deleted_at IS NULL OR NOT EXISTS (SELECT FROM endpoint o
         WHERE o.workspace_id = e.workspace_id AND o.slug = e.slug AND o.deleted_at IS NULL)
         AND (SELECT count(*) FROM endpoint o WHERE o.workspace_id = e.workspace_id
           AND o.deleted_at IS NULL) < ${ENDPOINTS_MAX}::int)
    RETURNING id, workspace_id, slug`;
  return perform(database, row.workspaceId, noted(changed, move));
}

/** Settings with their members in one order, to be compared as text. */
const ordered = (settings: EndpointSettings): string =>
  JSON.stringify(EndpointSettings.parse(settings));

/** Whether two settings are the same. */
export const isSame = (one: EndpointSettings, other: EndpointSettings) =>
  ordered(one) === ordered(other);

/**
 * Changes an endpoint to what `edit` makes of its settings; returns it as it is then, and the
 * move; null of an edit that changes nothing. Fails with `revision_conflict` where `revision` is
 * given and is not the endpoint's any more; without one the edit is made again of what another
 * left.
 */
export async function changeEndpoint(
  { database }: Pick<Parts, "database">,
  row: EndpointRow,
  change: {
    actorId: string;
    revision?: number | undefined;
    edit: (settings: EndpointSettings) => Promise<EndpointSettings>;
  },
): Promise<{ changed: EndpointRow; move: EndpointMove | null }> {
  const { actorId, revision, edit } = change;
  const again = () => sameEndpoint(database, row);
  return changeRevised<EndpointRow, { changed: EndpointRow; move: EndpointMove | null }>(row, {
    what: "endpoint",
    revision,
    again,
    change: async (seen) => {
      const before = seen.settings;
      const after = await edit(before);
      if (isSame(before, after)) return { changed: seen, move: null };
      const move = await moveOf(database, { row: seen, kind: "change", before, after, actorId });
      return move && { changed: await again(), move };
    },
  });
}

/** An endpoint as it is now; fails with `not_found` where its slug is another's by now. */
async function sameEndpoint(database: Database, row: EndpointRow): Promise<EndpointRow> {
  const found = await findEndpoint(database, [row.workspaceId], { slug: row.slug });
  if (found.endpointId !== row.endpointId) throw notThere();
  return found;
}

/**
 * Deletes an endpoint, with its keys as they are: taking it back brings both. Fails with
 * `revision_conflict` where others keep changing it.
 */
export async function deleteEndpoint(
  { database }: Pick<Parts, "database">,
  row: EndpointRow,
  actorId: string,
): Promise<void> {
  await changeRevised(row, {
    what: "endpoint",
    again: () => sameEndpoint(database, row),
    change: (seen) => {
      const own = { row: seen, kind: "delete" as const, before: seen.settings, after: null };
      return moveOf(database, { ...own, actorId });
    },
  });
}

/** Where a rollback of an endpoint leads. */
export interface EndpointStepBack {
  settings: EndpointSettings;
  rollbackOf: number;
  /** Moves that are passed over, since models that they lead back to were deleted. */
  skipped: number[];
}

type SettingsMove = LoggedMove & Record<string, unknown> & { before: EndpointSettings | null };

/**
 * Where a rollback leads: to what the endpoint was before the newest move that was not taken back
 * yet. Fails with `state_conflict` where there is none.
 */
export async function endpointStepBack(
  database: Database,
  row: EndpointRow,
): Promise<EndpointStepBack> {
  const { rows } = await database.execute<SettingsMove>(sql`
    SELECT id::float8 AS id, rollback_of::float8 AS "rollbackOf", before FROM endpoint_move
     WHERE endpoint_id = ${row.endpointId}::uuid ORDER BY id`);
  const { move, skipped: passed } = await stepBack(rows, {
    leadsBack: ({ before }) => before !== null && (row.deleted || !isSame(before, row.settings)),
    isThere: async ({ before }) =>
      before !== null && areThere(database, row.workspaceId, pinnedModels(before)),
  });
  const skipped = passed.map(({ id }) => id);
  if (move?.before) return { settings: move.before, rollbackOf: move.id, skipped };
  const why = skipped.length > 0 ? "names models that were deleted" : "is not there";
  throw new Failure("state_conflict", `what the endpoint was before ${why}`, { data: { skipped } });
}

async function areThere(
  database: Database,
  workspaceId: string,
  modelIds: readonly string[],
): Promise<boolean> {
  const { rows } = await database.execute<{ count: number }>(sql`
    SELECT count(*)::int AS count FROM model
     WHERE workspace_id = ${workspaceId}::uuid AND id IN ${idList(modelIds)}`);
  return rows[0]?.count === modelIds.length;
}

/** Makes the move of a rollback. Fails with `state_conflict` where another move came before. */
export async function rollBackEndpoint(
  { database }: Pick<Parts, "database">,
  row: EndpointRow,
  { settings, rollbackOf, actorId }: EndpointStepBack & { actorId: string },
): Promise<EndpointMove> {
  const before = row.deleted ? null : row.settings;
  const own = { row, kind: "rollback" as const, before, after: settings };
  const move = await moveOf(database, { ...own, rollbackOf, actorId });
  if (move) return move;
  throw new Failure("state_conflict", "the endpoint was moved meanwhile; look, and try again");
}

/** Moves of a slug in a workspace, newest first; of all endpoints that had it. */
export async function listEndpointMoves(
  database: Database,
  { workspaceId, slug }: EndpointRow,
  { limit, offset }: Page,
): Promise<EndpointMove[]> {
  const rows = await rowsOf(database, MOVE)`
    SELECT ${MOVE} FROM endpoint_move n WHERE n.workspace_id = ${workspaceId}::uuid
       AND n.slug = ${slug} ORDER BY n.id DESC LIMIT ${limit}::int OFFSET ${offset}::int`;
  return rows;
}
