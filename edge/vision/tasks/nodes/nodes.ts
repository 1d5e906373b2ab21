// GPU nodes: introduced by a one-time code, known by a token, both kept as hashes only. A node is
// live while it was heard of within a minute.

import { type SQL, sql } from "drizzle-orm";
import type { Context, MiddlewareHandler } from "hono";
import { assert, Failure } from "../../../../shared/errors.ts";
import type { LineKind } from "../../../../shared/tasks/line.ts";
import {
  type Capabilities,
  type InstalledWeights,
  NODE_PROTOCOL,
  SEGMENTER_PREFIX,
} from "../../../../shared/tasks/node-protocol.ts";
import { HOUR, iso } from "../../../../shared/time.ts";
import { type Database, wireTime } from "../../../http/database.ts";
import type { Audience } from "../../../http/route.ts";
import { jsonb, storable } from "../../../http/storable.ts";
import { type Act, actorKindOf, auditEntries } from "../../auth/audit.ts";
import { randomText, sha256 } from "../../auth/digest.ts";
import { type Realm, within } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";

const CODE_PREFIX = "vnc_";
const TOKEN_PREFIX = "vnt_";
const CODE_MS = HOUR;
/** Silence after which a node is not there. */
const LIVE_SECONDS = 60;
/** Seconds within which a node's requests are noted as one sign of life. */
const NOTED_SECONDS = 2;

const LIVE = sql`node.revoked_at IS NULL
  AND node.last_heartbeat_at > now() - ${sql.raw(String(LIVE_SECONDS))} * interval '1 second'`;

/** Whether a row of `node` is of one that claims now: one of another protocol is given nothing. */
const CLAIMING = sql`${LIVE} AND NOT node.draining
  AND node.capabilities->'protocol' = ${sql.raw(`'${NODE_PROTOCOL}'`)}`;

/** Whether a row of `node` was not heard of for a minute, and should have been. */
export const IS_LOST = sql`(node.revoked_at IS NULL AND NOT (${LIVE}))`;

/** Names of segmenters that one node must have; null is any, which is then its default. */
export type SegmenterNames = readonly (string | null)[];

/** Which nodes are meant. What is left out of it is of no matter. */
export interface WantedNodes {
  /** Whose tasks they take: the operators' nodes serve all. */
  workspaceId: string | SQL;
  kind?: string | SQL;
  /** When they were heard of: `lately` those that claim now, or since an instant, or ever. */
  heard?: "lately" | "ever" | { since: SQL };
  segmenters?: SegmenterNames;
  /** Whether they keep a direct line. */
  line?: true;
}

/** Whether a row of `node` is one of those that are meant, as a condition. */
export function nodesWhere({
  workspaceId,
  kind,
  heard = "lately",
  segmenters = [],
  line,
}: WantedNodes): SQL {
  const conditions = [
    heard === "lately" ? CLAIMING : sql`node.revoked_at IS NULL`,
    sql`(node.workspace_id IS NULL OR node.workspace_id = ${idOf(workspaceId)})`,
    ...segmenters.map((name) => sql`(${hasSegmenter(name)})`),
  ];
  if (typeof heard === "object") conditions.push(sql`node.last_heartbeat_at > ${heard.since}`);
  if (kind !== undefined) conditions.push(sql`node.capabilities->'kinds' ? ${kind}`);
  if (line) conditions.push(sql`node.capabilities->'line' = 'true'`);
  return sql`(${sql.join(conditions, sql` AND `)})`;
}

const idOf = (id: string | SQL): SQL => (typeof id === "string" ? sql`${id}::uuid` : id);

/** Whether a row of `node` has the segmenter of a name; of null, any. */
const hasSegmenter = (name: string | null): SQL =>
  name === null
    ? sql`jsonb_array_length(node.capabilities->'segmenters') > 0`
    : sql`node.capabilities->'segmenters' @>
        jsonb_build_array(jsonb_build_object('name', ${name}::text))`;

/** A new secret of so many random bytes. */
const secretText = (prefix: string, bytes: number): string => prefix + randomText(bytes);

/**
 * Makes a code with which one node may register within the hour: a node of one workspace, or with
 * null one of the operators', which serves all.
 */
export async function createCode(
  { database, clock }: Pick<Parts, "database" | "clock">,
  {
    workspaceId,
    createdBy,
    act = { action: "makeNodeCode", actorId: createdBy, actorKind: "service", requestId: null },
  }: { workspaceId: string | null; createdBy: string | null; act?: Act },
): Promise<{ code: string; expiresAt: string }> {
  const code = secretText(CODE_PREFIX, 16);
  const expiresAt = iso(clock() + CODE_MS);
  const entry = auditEntries(act, {
    // A code has no name but itself, which is a secret.
    subject: sql`'nodes'`,
    workspaceId: sql`workspace_id`,
    before: sql`NULL::jsonb`,
    after: sql`jsonb_build_object('workspace_id', workspace_id,
      'expires_at', ${wireTime(sql`expires_at`)})`,
    from: sql`made`,
  });
  await database.execute(sql`
    WITH made AS (
      INSERT INTO node_code (hash, workspace_id, created_by, expires_at)
      VALUES (decode(${await sha256(code)}, 'hex'), ${workspaceId}::uuid, ${createdBy}::uuid,
        ${expiresAt}::timestamptz) RETURNING workspace_id, expires_at)
    ${entry}`);
  return { code, expiresAt };
}

/**
 * Trades a code for a node's identity, once; whoever made the code is written down as who did it.
 * Fails with `unauthorized` for any other code.
 */
export async function registerNode(
  { database, clock }: Pick<Parts, "database" | "clock">,
  node: { code: string; name: string; capabilities: Capabilities; requestId: string },
): Promise<{ nodeId: string; nodeToken: string }> {
  const [nodeId, nodeToken] = [crypto.randomUUID(), secretText(TOKEN_PREFIX, 32)];
  const now = sql`${iso(clock())}::timestamptz`;
  const { rows } = await database.execute(sql`
    WITH used AS (
      UPDATE node_code SET used_at = ${now}
       WHERE hash = decode(${await sha256(node.code)}, 'hex') AND used_at IS NULL
         AND expires_at > ${now}
      RETURNING created_by, workspace_id),
    made AS (
      INSERT INTO node (id, workspace_id, name, token_hash, capabilities)
      SELECT ${nodeId}::uuid, workspace_id, ${storable(node.name)},
        decode(${await sha256(nodeToken)}, 'hex'), ${jsonb(node.capabilities)} FROM used)
    INSERT INTO audit_entry (actor_id, actor_kind, action, subject, workspace_id, after, request_id)
    SELECT created_by, ${actorKindOf(sql`created_by`)}, 'registerNode', ${`node:${nodeId}`},
      workspace_id,
      jsonb_build_object('name', ${storable(node.name)}::text, 'workspace_id', workspace_id),
      ${node.requestId} FROM used RETURNING id`);
  if (rows.length === 0) {
    throw new Failure("unauthorized", "the code is unknown, used or expired; ask for a new one");
  }
  return { nodeId, nodeToken };
}

export interface NodeIdentity {
  nodeId: string;
  /** The one workspace that it serves; null serves all. */
  workspaceId: string | null;
  name: string;
  protocol: number;
  kinds: readonly string[];
}

/** Lets a request pass only with a node's token, and notes that the node was heard of. */
const authenticateNode: MiddlewareHandler = async (context, next) => {
  const { database } = context.get("service") as Parts;
  const token = /^Bearer (vnt_[\w-]+)$/i.exec(context.req.header("Authorization") ?? "")?.[1];
  const node = token ? await nodeOf(database, token) : null;
  if (!node) {
    context.header("WWW-Authenticate", "Bearer");
    throw new Failure("unauthorized", "send a valid node token as Authorization: Bearer");
  }
  context.set("node", node);
  await next();
};

/** GPU nodes. */
export const gpuNode: Audience = {
  schemes: { nodeToken: { type: "http", scheme: "bearer" } },
  guards: [authenticateNode],
  description: "For GPU nodes.",
};

/** The node that a route of theirs was called by. */
export function nodeFor(context: Pick<Context, "get">): NodeIdentity {
  const node = context.get("node") as NodeIdentity | undefined;
  assert(node, "a route that asks for its node is for GPU nodes");
  return node;
}

async function nodeOf(database: Database, token: string): Promise<NodeIdentity | null> {
  const hash = sql`decode(${await sha256(token)}, 'hex')`;
  const { rows } = await database.execute<NodeIdentity & Record<string, unknown>>(sql`
    WITH heard AS (
      UPDATE node SET last_heartbeat_at = now()
       WHERE token_hash = ${hash} AND revoked_at IS NULL
         AND last_heartbeat_at < now() - ${NOTED_SECONDS}::int * interval '1 second')
    SELECT id::text AS "nodeId", workspace_id::text AS "workspaceId", name,
        (capabilities->>'protocol')::int AS protocol, capabilities->'kinds' AS kinds
      FROM node WHERE token_hash = ${hash} AND revoked_at IS NULL`);
  return rows[0] ?? null;
}

interface NodeReport {
  draining: boolean;
  capabilities?: Capabilities | undefined;
  loaded?: string[] | undefined;
  loaded_sizes?: Record<string, number[]> | undefined;
  line?: boolean | undefined;
}

/** Keeps what a heartbeat says of the node itself. */
export async function noteHeartbeat(
  database: Database,
  nodeId: string,
  { draining, capabilities, loaded, loaded_sizes, line }: NodeReport,
): Promise<void> {
  await database.execute(sql`
    UPDATE node SET last_heartbeat_at = now(), draining = ${draining}::boolean,
      capabilities = coalesce(${capabilities ? jsonb(capabilities) : null}, capabilities)
        || ${jsonb({ loaded, loaded_sizes: loaded && (loaded_sizes ?? {}), line })}
     WHERE id = ${nodeId}::uuid`);
}

/**
 * Ends the token of a realm's node. Its tasks go to others as their leases expire. False for a node
 * that is another's, unknown or was revoked before.
 */
export async function revokeNode(
  database: Database,
  { realm, nodeId, act }: { realm: Realm; nodeId: string; act: Act },
): Promise<boolean> {
  const entry = auditEntries(act, {
    subject: sql`'node:' || id`,
    workspaceId: sql`workspace_id`,
    before: sql`jsonb_build_object('revoked_at', NULL)`,
    after: sql`jsonb_build_object('revoked_at', ${wireTime(sql`revoked_at`)})`,
    from: sql`revoked`,
  });
  const { rows } = await database.execute(sql`
    WITH revoked AS (
      UPDATE node SET revoked_at = now() WHERE id = ${nodeId}::uuid AND revoked_at IS NULL
         AND ${within(realm, sql`workspace_id`)}
      RETURNING id, workspace_id, revoked_at),
    logged AS (${entry})
    SELECT id FROM revoked`);
  return rows.length > 0;
}

/** How many live nodes take a workspace's tasks of a kind, as a subselect; `also` narrows it. */
export const offering = (kind: string, workspaceId: SQL, also = sql`true`): SQL => sql`(
  SELECT count(*)::int FROM node WHERE ${nodesWhere({ kind, workspaceId })} AND ${also})`;

/** Whether a row of `node` has first weights of a set for a variant. */
export const hasWeights = (dataset: SQL, variant: SQL): SQL =>
  sql`capabilities->'weights' @>
    jsonb_build_array(jsonb_build_object('dataset', ${dataset}, 'variant', ${variant}))`;

/**
 * The first weights that nodes which train for one of some workspaces have, live or not, by set and
 * variant: a node that is away for a moment comes back with them.
 */
export async function knownWeights(
  database: Database,
  workspaces: readonly string[],
): Promise<InstalledWeights[]> {
  const { rows } = await database.execute<{ weights: InstalledWeights }>(sql`
    SELECT DISTINCT ON (one->>'dataset', one->>'variant') one AS weights
      FROM node, jsonb_array_elements(capabilities->'weights') AS one
     WHERE revoked_at IS NULL AND capabilities->'kinds' ? 'train'
       AND (workspace_id IS NULL OR workspace_id IN ${idList(workspaces)})
     ORDER BY one->>'dataset', one->>'variant', last_heartbeat_at DESC NULLS LAST`);
  return rows.map(({ weights }) => weights);
}

/** How many nodes are meant. */
export async function offeringNodes(database: Database, wanted: WantedNodes): Promise<number> {
  const { rows } = await database.execute<{ count: number }>(sql`
    SELECT count(*)::int AS count FROM node WHERE ${nodesWhere(wanted)}`);
  return rows[0]?.count ?? 0;
}

/** A model at a size of image, pixels a side. */
export interface OpenedModel {
  modelId: string;
  imageSize: number;
}

/**
 * Whether a node that takes a workspace's tasks of a kind and has all segmenters of a list of names
 * was heard of since an instant, as a condition.
 */
export const hasHeardOfNode = ({
  kind,
  workspaceId,
  names,
  since,
}: Record<"workspaceId" | "names" | "since", SQL> & { kind: string }): SQL => sql`EXISTS (
  SELECT FROM node WHERE ${nodesWhere({ kind, workspaceId, heard: { since } })}
     AND NOT EXISTS (SELECT FROM unnest(${names}) AS wanted(name)
       WHERE NOT capabilities->'segmenters' @>
         jsonb_build_array(jsonb_build_object('name', wanted.name))))`;

/**
 * Names of the segmenters of all nodes that take a workspace's tasks of a kind, live or not: what a
 * definition may name. Null where no such node is known.
 */
export async function knownSegmenters(
  database: Database,
  { kind, workspaceId }: { kind: string; workspaceId: string },
): Promise<string[] | null> {
  const { rows } = await database.execute<{ names: string[] }>(sql`
    SELECT coalesce(array_agg(DISTINCT one->>'name') FILTER (WHERE one IS NOT NULL), '{}') AS names
      FROM node LEFT JOIN LATERAL jsonb_array_elements(capabilities->'segmenters') AS one ON true
     WHERE ${nodesWhere({ kind, workspaceId, heard: "ever" })}
    HAVING count(*) > 0`);
  return rows[0]?.names ?? null;
}

/** Live nodes that predict for a workspace, and how many of them have the model open. */
export async function servingNodes(
  database: Database,
  { workspaceId, model }: { workspaceId: string; model: OpenedModel | null },
): Promise<{ able: number; warm: number }> {
  const { rows } = await database.execute<{ able: number; warm: number }>(sql`
    SELECT count(*)::int AS able,
      (count(*) FILTER (WHERE ${model ? isModelOpen(model) : sql`false`}))::int AS warm FROM node
     WHERE ${nodesWhere({ kind: "predict", workspaceId })}`);
  return rows[0] ?? { able: 0, warm: 0 };
}

/** A live node that keeps a direct line. */
export interface LineNode extends Record<string, unknown> {
  nodeId: string;
  name: string;
  /** It has the model open, or the segmenter. */
  warm: boolean;
}

/** The nodes with a direct line that predict for a workspace. */
export const listLineNodes = (
  database: Database,
  { workspaceId, ...model }: { workspaceId: string } & OpenedModel,
): Promise<LineNode[]> =>
  lineNodes(database, { workspaceId, kind: "predict", isWarm: isModelOpen(model) });

/**
 * The nodes with a direct line on which a workspace may run a workflow: they have all segmenters
 * that its steps name, and are warm with all its models and segmenters open.
 */
export const listWorkflowNodes = (
  database: Database,
  {
    workspaceId,
    models,
    segmenters,
  }: { workspaceId: string; models: readonly OpenedModel[]; segmenters: SegmenterNames },
): Promise<LineNode[]> => {
  const opened = [
    ...models.map(isModelOpen),
    ...segmenters.map((name) => isOpen(sql`${SEGMENTER_PREFIX} || ${nameOrDefault(name)}`)),
  ];
  return lineNodes(database, {
    workspaceId,
    kind: "workflow",
    segmenters,
    isWarm: sql.join([sql`true`, ...opened], sql` AND `),
  });
};

/**
 * The nodes with a direct line on which a workspace may ask a segmenter: the named one, or with
 * null the node's default, which is the first that it lists.
 */
export const listSegmenterNodes = (
  database: Database,
  { workspaceId, segmenter }: { workspaceId: string; segmenter: string | null },
): Promise<LineNode[]> =>
  lineNodes(database, {
    workspaceId,
    kind: "sam",
    segmenters: segmenter === null ? [] : [segmenter],
    isWarm: isOpen(sql`${SEGMENTER_PREFIX} || ${nameOrDefault(segmenter)}`),
  });

/** A node's default segmenter is the first that it lists. */
const nameOrDefault = (name: string | null): SQL =>
  sql`coalesce(${name}::text, capabilities->'segmenters'->0->>'name')`;

const isModelOpen = ({ modelId, imageSize }: OpenedModel): SQL =>
  sql`capabilities->'loaded_sizes'->${modelId}::text @> to_jsonb(${imageSize}::int)`;

const isOpen = (name: SQL): SQL => sql`capabilities->'loaded' ? (${name})::text`;

async function lineNodes(
  database: Database,
  { isWarm, ...wanted }: WantedNodes & { kind: LineKind; isWarm: SQL },
): Promise<LineNode[]> {
  const { rows } = await database.execute<LineNode>(sql`
    SELECT id::text AS "nodeId", name, coalesce(${isWarm}, false) AS warm
      FROM node WHERE ${nodesWhere({ ...wanted, line: true })}`);
  return rows;
}

/** A task in a node's hands. */
export interface CurrentTask {
  task_id: string;
  kind: string;
  subject: string;
  started_at: string;
  lease_expired: boolean;
}

export interface NodeRecord extends Record<string, unknown> {
  node_id: string;
  /** Null for one of the operators', which serves all. */
  workspace_id: string | null;
  name: string;
  live: boolean;
  draining: boolean;
  last_heartbeat_at: string;
  created_at: string;
  revoked_at: string | null;
  capabilities: Capabilities;
  tasks: CurrentTask[];
}

/** The nodes of a realm with what they work on; the live ones first, then by name. */
export async function listNodes(database: Database, realm: Realm): Promise<NodeRecord[]> {
  const { rows } = await database.execute<NodeRecord>(sql`
    SELECT node.id::text AS node_id, node.workspace_id::text, name, ${LIVE} AS live, draining,
      ${wireTime(sql`last_heartbeat_at`)} AS last_heartbeat_at,
      ${wireTime(sql`node.created_at`)} AS created_at,
      ${wireTime(sql`revoked_at`)} AS revoked_at, capabilities, coalesce(held.tasks, '[]') AS tasks
      FROM node LEFT JOIN LATERAL (
        SELECT jsonb_agg(jsonb_build_object('task_id', id, 'kind', kind, 'subject', subject,
          'started_at', ${wireTime(sql`started_at`)}, 'lease_expired', lease_until < now())
          ORDER BY started_at, id) AS tasks
          FROM task WHERE state = 'running' AND node_id = node.id) held ON true
     WHERE ${within(realm, sql`node.workspace_id`)}
     ORDER BY live DESC, name, node.id`);
  return rows;
}

/** How many nodes there are of each state, of those that were not revoked. */
export interface NodeCounts extends Record<string, unknown> {
  /** Live, with nothing to do. */
  ready: number;
  /** Live, and at work on tasks. */
  busy: number;
  /** Live, and taking no more. */
  draining: number;
  /** Not heard of for a minute. */
  lost: number;
  /** Live ones that keep a direct line. */
  lines: number;
}

/** The nodes that serve a realm: its own and the operators'. */
export async function countNodes(database: Database, realm: Realm): Promise<NodeCounts> {
  const { rows } = await database.execute<NodeCounts>(sql`
    SELECT (count(*) FILTER (WHERE live AND NOT draining AND NOT busy))::int AS ready,
      (count(*) FILTER (WHERE live AND NOT draining AND busy))::int AS busy,
      (count(*) FILTER (WHERE live AND draining))::int AS draining,
      (count(*) FILTER (WHERE NOT live))::int AS lost,
      (count(*) FILTER (WHERE live AND line))::int AS lines
      FROM (SELECT ${LIVE} AS live, draining, working.node_id IS NOT NULL AS busy,
          coalesce(capabilities->'line' = 'true', false) AS line
        FROM node LEFT JOIN (SELECT DISTINCT node_id FROM task WHERE state = 'running') working
          ON working.node_id = node.id
       WHERE revoked_at IS NULL
         AND (workspace_id IS NULL OR ${within(realm, sql`workspace_id`)})) nodes`);
  return rows[0] ?? { ready: 0, busy: 0, draining: 0, lost: 0, lines: 0 };
}

/** The segmenters of live nodes that serve a workspace: what prompts can be grounded in now. */
export async function listCapabilities(
  database: Database,
  workspaceId: string,
): Promise<Capabilities[]> {
  const { rows } = await database.execute<{ capabilities: Capabilities }>(sql`
    SELECT capabilities FROM node
     WHERE ${nodesWhere({ workspaceId })} ORDER BY created_at`);
  return rows.map(({ capabilities }) => capabilities);
}
