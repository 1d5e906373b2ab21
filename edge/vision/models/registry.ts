// The model registry: what was trained, and which model each name means. A name is an alias or
// `active`. The log of moves decides: whoever moves a name adds to the log, and aliases and the
// active mark are made to say what its newest entry does, under the lock of the workspace.

import { type SQL, sql } from "drizzle-orm";
import { model, modelMove } from "../../../db/vision/training.ts";
import { assert, Failure } from "../../../shared/errors.ts";
import type { ModelSource } from "../../../shared/tasks/tasks.ts";
import { edgeRefusal } from "../../../shared/wire/edge-inference.ts";
import {
  type Alias,
  MODEL_NAMES,
  type Model,
  type ModelMove,
  type ModelName,
} from "../../../shared/wire/training.ts";
import { batch, type Database } from "../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../http/selection.ts";
import { type Act, auditEntries } from "../auth/audit.ts";
import { API, type Page } from "../base/api.ts";
import { discardObjects } from "../base/discard.ts";
import { type LoggedMove, stepBack } from "../base/history.ts";
import { isWanted, type ListPage, type ListQuery, pageOf } from "../base/lists.ts";
import type { Parts } from "../base/parts.ts";
import { allOf, breaksReference, idList, textList } from "../base/sql.ts";
import { source } from "../tasks/objects.ts";

const m = columnsOf(model, "m");
const MODEL = selection({
  modelId: m.id,
  workspaceId: m.workspaceId,
  projectId: m.projectId,
  runId: m.runId,
  name: m.name,
  version: m.version,
  variant: typed<Model["variant"]>(m.variant),
  task: m.task,
  /** In index order. */
  classes: m.classes,
  imageSize: m.imageSize,
  parameters: m.parameters,
  storageKey: m.storageKey,
  bytes: m.bytes,
  sha256: m.sha256,
  metrics: typed<Model["metrics"]>(m.metrics),
  testMetrics: typed<Model["test_metrics"]>(m.testMetrics),
  /** Its detections on the validation split, by confidence; null where they were not measured. */
  confidenceBins: m.confidenceBins,
  active: m.active,
  createdAt: m.createdAt,
  aliases: sql<Alias[]>`coalesce((SELECT jsonb_agg(alias ORDER BY alias) FROM model_alias
    WHERE model_id = m.id), '[]')`,
});
/** A model of the registry. */
export type ModelRow = RowOf<typeof MODEL>;

/** The models that tables of a `FROM` join as `m`, as one column of a list. */
export const modelList = (tables: SQL): SQL<ModelRow[]> => sql`
  (SELECT coalesce(jsonb_agg(to_jsonb(listed)), '[]') FROM (SELECT ${MODEL} FROM ${tables}) listed)`;

/** A model as it goes over the wire. */
export const modelRecord = (row: ModelRow, origin: string): Model => ({
  model_id: row.modelId,
  project_id: row.projectId,
  run_id: row.runId,
  name: row.name,
  version: row.version,
  variant: row.variant,
  task: row.task,
  classes: row.classes,
  image_size: row.imageSize,
  parameters: row.parameters,
  bytes: row.bytes,
  sha256: row.sha256,
  metrics: row.metrics,
  test_metrics: row.testMetrics,
  metrics_rule: row.runId === null ? null : "coco_at_image_edge",
  aliases: row.aliases,
  active: row.active,
  download_url: `${origin}${API}/models/${row.modelId}/weights`,
  edge: edgeAbility(row),
  created_at: row.createdAt,
});

function edgeAbility(row: ModelRow): Model["edge"] {
  const reason = edgeRefusal(row);
  return { able: reason === null, reason };
}

/** A model as a task's payload names it. */
export const modelSource = (row: ModelRow): ModelSource => ({
  model_id: row.modelId,
  variant: row.variant,
  task: row.task,
  classes: row.classes,
  image_size: row.imageSize,
  sha256: row.sha256,
  weights: source(row.storageKey, row.bytes),
});

/** Which models are meant; each member narrows it. */
export interface ModelFilter {
  modelId?: string | undefined;
  name?: string | undefined;
  /** An alias, or `active`. */
  called?: ModelName | undefined;
  projectId?: string | undefined;
  runId?: string | undefined;
  /** Those of these ids, and those that these names mean. */
  among?: { modelIds: readonly string[]; names: readonly ModelName[] } | undefined;
}

/** Models of the workspaces, newest first. */
export async function listModels(
  database: Database,
  workspaces: readonly string[],
  filter: ModelFilter = {},
): Promise<ModelRow[]> {
  const rows = await rowsOf(database, MODEL)`
    SELECT ${MODEL} FROM model m WHERE ${modelIs(workspaces, filter)} ORDER BY ${NEWEST_FIRST}`;
  return rows;
}

/** A page of the models of the workspaces, newest first. */
export const modelPage = (
  database: Database,
  workspaces: readonly string[],
  { filter, query }: { filter: ModelFilter; query: ListQuery },
): Promise<ListPage<ModelRow>> => {
  const where = sql`${modelIs(workspaces, filter)} AND ${isWanted(query, { name: sql`m.name` })}`;
  return pageOf(database, MODEL, { from: sql`model m`, where, order: NEWEST_FIRST }, query);
};

const NEWEST_FIRST = sql`m.created_at DESC, m.id`;

/** The condition on a model `m` to be of the workspaces and meant by a filter. */
function modelIs(workspaces: readonly string[], filter: ModelFilter): SQL {
  const { modelId, name, called, projectId, runId, among } = filter;
  return allOf([
    sql`m.workspace_id IN ${idList(workspaces)}`,
    modelId && sql`m.id = ${modelId}::uuid`,
    name !== undefined && sql`m.name = ${name}`,
    called === "active" && sql`m.active`,
    called &&
      called !== "active" &&
      sql`EXISTS (SELECT FROM model_alias WHERE model_id = m.id AND alias = ${called})`,
    projectId && sql`m.project_id = ${projectId}::uuid`,
    runId && sql`m.run_id = ${runId}::uuid`,
    among &&
      sql`(m.id IN ${idList(among.modelIds)}
        OR (m.active AND 'active' IN ${textList(among.names)})
        OR EXISTS (SELECT FROM model_alias WHERE model_id = m.id
          AND alias IN ${textList(among.names)}))`,
  ]);
}

/** The model of this id, if it is of these workspaces; fails with `not_found`. */
export async function findModel(
  database: Database,
  workspaces: readonly string[],
  modelId: string,
): Promise<ModelRow> {
  const [row] = await listModels(database, workspaces, { modelId });
  if (!row) throw new Failure("not_found", "no such model in your workspaces");
  return row;
}

/**
 * The model of an id, or that a name means. Fails with `not_found`, and with `state_conflict` where
 * no model is called so.
 */
export async function modelCalled(
  database: Database,
  workspaceId: string,
  idOrName: string,
): Promise<ModelRow> {
  const name = MODEL_NAMES.find((one) => one === idOrName);
  if (!name) return findModel(database, [workspaceId], idOrName);
  const model = await namedModel(database, workspaceId, name);
  if (model) return model;
  throw new Failure("state_conflict", `no model is called ${name}: promote or activate one first`);
}

/** The model that a name means in a workspace, or null. */
export async function namedModel(
  database: Database,
  workspaceId: string,
  name: ModelName,
): Promise<ModelRow | null> {
  const [row] = await listModels(database, [workspaceId], { called: name });
  return row ?? null;
}

/** Locks a registry: of requests that change it at once, each sees what the one before did. */
export const lockRegistry = (workspaceId: string): SQL =>
  sql`SELECT FROM workspace WHERE id = ${workspaceId}::uuid FOR NO KEY UPDATE`;

/** A move of a name to a model. */
export interface Move {
  workspaceId: string;
  name: ModelName;
  /** Null takes the name from whatever model has it. */
  modelId: string | null;
  actorId: string | null;
  /** Where given, the name must still mean this model, or none. */
  from?: string | null;
  /** The oldest of the moves that this one takes back. */
  rollbackOf?: number;
  /** Where it is to be written down as what somebody did. */
  act?: Act;
}

/** The entry that a move made in the log, its fields null where it made none. */
type NotedMove = ModelMove & { held: string | null };

/**
 * Makes a name mean a model, at once and for good: there is no moment at which it means two, or
 * none. Returns the entry of the log, or null when the name meant the model already. Fails with
 * `not_found` when the workspace has no such model, and with `state_conflict` when the name does
 * not mean `from` any more.
 */
export async function moveName(
  { database }: Pick<Parts, "database">,
  move: Move,
): Promise<ModelMove | null> {
  const { workspaceId, name, modelId } = move;
  const own = sql`workspace_id = ${workspaceId}::uuid`;
  const newest = newestOf(move);
  const expected =
    move.from === undefined ? sql`true` : sql`held.id IS NOT DISTINCT FROM ${move.from}::uuid`;
  const note = sql`
    WITH held AS (SELECT ${newest} AS id), e AS (
      INSERT INTO model_move (workspace_id, name, from_model_id, to_model_id, rollback_of, actor_id)
      SELECT ${workspaceId}::uuid, ${name}, held.id, ${modelId}::uuid,
        ${move.rollbackOf ?? null}::bigint, ${move.actorId}::uuid FROM held
       WHERE held.id IS DISTINCT FROM ${modelId}::uuid AND ${expected} AND (${modelId}::uuid IS NULL
         OR EXISTS (SELECT FROM model WHERE id = ${modelId}::uuid AND ${own}))
      RETURNING *)
    ${move.act ? sql`, logged AS (${moveEntry(move.act)})` : sql``}
    SELECT held.id::text AS held, ${MOVE} FROM held LEFT JOIN e ON true`;
  const [, [noted]] = await batch<[unknown, NotedMove, ...unknown[]]>(database, [
    lockRegistry(workspaceId),
    note,
    ...applied(move),
  ]);
  assert(noted, "the statement answers one row");
  const { held, ...entry } = noted;
  if (entry.move_id !== null) return entry;
  if (move.from !== undefined && held !== move.from) {
    throw new Failure("state_conflict", `${name} came to name another model meanwhile`);
  }
  if (held === modelId) return null;
  throw new Failure("not_found", "no such model in your workspaces");
}

/** What the audit log says of a move: its name with the model before and after. */
const moveEntry = (act: Act): SQL =>
  auditEntries(act, {
    subject: sql`'model:' || coalesce(to_model_id, from_model_id)`,
    workspaceId: sql`workspace_id`,
    before: sql`jsonb_build_object(name, from_model_id)`,
    after: sql`jsonb_build_object(name, to_model_id)`,
    from: sql`e`,
  });

const newestOf = ({ workspaceId, name }: Pick<Move, "workspaceId" | "name">) => sql`(
  SELECT to_model_id FROM model_move WHERE workspace_id = ${workspaceId}::uuid AND name = ${name}
   ORDER BY id DESC LIMIT 1)`;

const e = columnsOf(modelMove, "e");
const MOVE: SQL<ModelMove> = selection({
  move_id: e.id,
  name: typed<ModelName>(e.name),
  from_model_id: e.fromModelId,
  to_model_id: e.toModelId,
  rollback_of: e.rollbackOf,
  actor_id: e.actorId,
  at: e.at,
});

/** What makes the name mean what the newest entry of the log says. */
function applied({ workspaceId, name }: Move): SQL[] {
  const own = sql`workspace_id = ${workspaceId}::uuid`;
  const newest = newestOf({ workspaceId, name });
  if (name === "active") {
    // Two statements: at no moment are two of them active.
    return [
      sql`UPDATE model SET active = false
           WHERE ${own} AND active AND id IS DISTINCT FROM ${newest}`,
      sql`UPDATE model SET active = true WHERE ${own} AND NOT active AND id = ${newest}`,
    ];
  }
  return [
    sql`DELETE FROM model_alias WHERE ${own} AND alias = ${name} AND ${newest} IS NULL`,
    sql`INSERT INTO model_alias (workspace_id, alias, model_id)
        SELECT ${workspaceId}::uuid, ${name}, to_id FROM (SELECT ${newest} AS to_id) n
         WHERE to_id IS NOT NULL
        ON CONFLICT (workspace_id, alias) DO UPDATE SET model_id = excluded.model_id`,
  ];
}

/** Moves of the workspaces, newest first. */
export async function listMoves(
  database: Database,
  workspaces: readonly string[],
  { name, limit, offset }: Page & { name?: ModelName | undefined },
): Promise<ModelMove[]> {
  const named = name ? sql`AND e.name = ${name}` : sql``;
  const rows = await rowsOf(database, MOVE)`
    SELECT ${MOVE} FROM model_move e WHERE e.workspace_id IN ${idList(workspaces)} ${named}
     ORDER BY e.id DESC LIMIT ${limit}::int OFFSET ${offset}::int`;
  return rows;
}

/** Where a rollback leads. */
export interface NameStepBack {
  modelId: string;
  /** What the name means now; the move back is only made while it still does. */
  from: string | null;
  rollbackOf: number;
  /** Models in between that were deleted. */
  skipped: string[];
}

/**
 * Where a rollback of a name leads: to the model before the newest move that was not taken back
 * yet. Models that were deleted are passed over. Fails with `state_conflict` when there is none.
 */
export async function nameStepBack(
  database: Database,
  { workspaceId, name }: Pick<Move, "workspaceId" | "name">,
): Promise<NameStepBack> {
  const { rows } = await database.execute<NameMove>(sql`
    SELECT id::float8 AS id, from_model_id::text AS "from", to_model_id::text AS "to",
      rollback_of::float8 AS "rollbackOf",
      EXISTS (SELECT FROM model WHERE id = from_model_id) AS "exists"
      FROM model_move WHERE workspace_id = ${workspaceId}::uuid AND name = ${name} ORDER BY id`);
  const from = rows.at(-1)?.to ?? null;
  const { move, skipped: passed } = await stepBack(rows, {
    leadsBack: (one) => one.from !== null && one.from !== from,
    isThere: async ({ exists }) => exists,
  });
  const skipped = passed.flatMap((one) => one.from ?? []);
  if (move?.from) return { modelId: move.from, from, rollbackOf: move.id, skipped };
  const why = skipped.length > 0 ? "was deleted" : "is not there";
  throw new Failure("state_conflict", `a model that ${name} named before ${why}`, {
    data: { skipped },
  });
}

type NameMove = LoggedMove &
  Record<string, unknown> & { from: string | null; to: string | null; exists: boolean };

/**
 * Deletes a model that nothing names, then its weights, which its run lists no more; otherwise
 * fails with `state_conflict`. The log of moves keeps its id.
 */
export async function deleteModel(parts: Parts, row: ModelRow): Promise<void> {
  const { database } = parts;
  const id = sql`${row.modelId}::uuid`;
  const remove = sql`
    WITH gone AS (
      DELETE FROM model WHERE id = ${id} AND NOT active
        AND NOT EXISTS (SELECT FROM model_alias WHERE model_id = ${id})
        AND NOT EXISTS (SELECT FROM training_run WHERE state IN ('queued', 'running')
          AND settings->'pretrained'->>'model_id' = ${row.modelId})
      RETURNING id, run_id, storage_key),
    listed AS (
      UPDATE training_run r SET artifacts = (
          SELECT coalesce(jsonb_agg(one ORDER BY n), '[]')
            FROM jsonb_array_elements(r.artifacts) WITH ORDINALITY a(one, n)
           WHERE one->>'key' <> gone.storage_key)
        FROM gone WHERE r.id = gone.run_id)
    SELECT id FROM gone`;
  const lock = lockRegistry(row.workspaceId);
  const [, rows] = await batch<[unknown, unknown]>(database, [lock, remove]).catch(
    (thrown: unknown) => {
      // A row of another room refers to it.
      if (breaksReference(thrown)) return [[], []];
      throw thrown;
    },
  );
  if (rows.length === 0) {
    const [now] = await listModels(database, [row.workspaceId], { modelId: row.modelId });
    if (!now) throw new Failure("not_found", "no such model in your workspaces");
    const named = [...(now.active ? ["active"] : []), ...now.aliases].join(", ");
    const why = named
      ? `it is ${named}; name another one first`
      : "a run, endpoint or rollout uses it";
    throw new Failure("state_conflict", `the model cannot be deleted: ${why}`);
  }
  await discardObjects(parts, [row.storageKey]);
}
