// Workflows: their versions, what was deployed of them and every move of that, how they are used,
// what they remember, the secrets that they name, and what waits to be sent. Part of the vision
// database; the rest is `schema.ts`.

import { sql } from "drizzle-orm";
import {
  bigserial,
  check,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  smallint,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { count, createdAt, id, instant, ownWorkspace } from "./schema.ts";

const ownWorkflow = () =>
  uuid("workflow_id")
    .notNull()
    .references(() => workflow.id, { onDelete: "cascade" });

/** A workflow. A deleted one stays, so that the deletion can be taken back. */
export const workflow = pgTable(
  "workflow",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    slug: text("slug").notNull(),
    name: text("name").notNull(),
    description: text("description").notNull().default(""),
    /** The newest version's number. */
    version: integer("version").notNull().default(1),
    /** What is served, of `workflow_deployment`; null: nothing is. */
    deploymentId: uuid("deployment_id"),
    /** Rises with each change; an edit is of the one that it saw. */
    revision: integer("revision").notNull().default(1),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    updatedAt: instant("updated_at").notNull().defaultNow(),
    deletedAt: instant("deleted_at"),
  },
  (table) => [
    uniqueIndex("workflow_slug").on(table.workspaceId, table.slug).where(sql`deleted_at IS NULL`),
    index("workflow_former").on(table.workspaceId, table.slug, table.createdAt),
  ],
);

/** A definition as it was saved. A trigger of the migrations refuses every UPDATE. */
export const workflowVersion = pgTable(
  "workflow_version",
  {
    id: id(),
    workflowId: ownWorkflow(),
    /** From 1 on. */
    version: integer("version").notNull(),
    /** The wire's `WorkflowDefinition`. */
    definition: jsonb("definition").notNull(),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
  },
  (table) => [uniqueIndex("workflow_version_number").on(table.workflowId, table.version)],
);

/**
 * A version as it was deployed, with the steps of its sub-workflows as they were then. A trigger of
 * the migrations refuses every UPDATE.
 */
export const workflowDeployment = pgTable(
  "workflow_deployment",
  {
    id: id(),
    workflowId: ownWorkflow(),
    versionId: uuid("version_id")
      .notNull()
      .references(() => workflowVersion.id, { onDelete: "cascade" }),
    version: integer("version").notNull(),
    /** The wire's `WorkflowDefinition`, without sub-workflows. */
    definition: jsonb("definition").notNull(),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
  },
  (table) => [
    index("workflow_deployment_workflow").on(table.workflowId),
    index("workflow_deployment_version").on(table.versionId),
  ],
);

/** Each time that a workflow was deployed, rolled back or deleted; kept for ever. */
export const workflowMove = pgTable(
  "workflow_move",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    workspaceId: ownWorkspace(),
    workflowId: uuid("workflow_id").notNull(),
    slug: text("slug").notNull(),
    kind: text("kind").$type<"deploy" | "rollback" | "delete">().notNull(),
    /** Deployments; null: nothing was, or is, served. */
    beforeId: uuid("before_id"),
    afterId: uuid("after_id"),
    /** The oldest of the moves that this one took back. */
    rollbackOf: count("rollback_of"),
    actorId: uuid("actor_id"),
    at: instant("at").notNull().defaultNow(),
  },
  (table) => [
    index("workflow_move_workflow").on(table.workflowId, table.id),
    index("workflow_move_slug").on(table.workspaceId, table.slug, table.id),
    check("workflow_move_kind", sql`kind IN ('deploy', 'rollback', 'delete')`),
  ],
);

/** How often a version was served in an hour, by how long it took. */
export const workflowUse = pgTable(
  "workflow_use",
  {
    versionId: uuid("version_id")
      .notNull()
      .references(() => workflowVersion.id, { onDelete: "cascade" }),
    /** The hour's beginning. */
    hour: instant("hour").notNull(),
    /** Bucket of the time that a run took; buckets grow by a fixed ratio. */
    bucket: smallint("bucket").notNull(),
    runs: count("runs").notNull(),
    failures: count("failures").notNull(),
    dryRuns: count("dry_runs").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.versionId, table.hour, table.bucket] }),
    index("workflow_use_hour").on(table.hour),
  ],
);

/** What a version's steps remember of a stream. */
export const workflowStream = pgTable(
  "workflow_stream",
  {
    versionId: uuid("version_id")
      .notNull()
      .references(() => workflowVersion.id, { onDelete: "cascade" }),
    stream: text("stream").notNull(),
    workflowId: ownWorkflow(),
    /** Rises with each run; one saves what it made of the state that it read. */
    revision: integer("revision").notNull().default(1),
    /** States by step. */
    state: jsonb("state").notNull(),
    usedAt: instant("used_at").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.versionId, table.stream] }),
    index("workflow_stream_workflow").on(table.workflowId, table.usedAt),
    index("workflow_stream_used").on(table.usedAt),
  ],
);

/** What workflows of a workspace may name and nobody may read. */
export const workflowSecret = pgTable(
  "workflow_secret",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    name: text("name").notNull(),
    /** Bound to the row's id. */
    sealed: text("sealed").notNull(),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    updatedAt: instant("updated_at").notNull().defaultNow(),
  },
  (table) => [uniqueIndex("workflow_secret_name").on(table.workspaceId, table.name)],
);

/** A webhook of a run, and what became of it. */
export const workflowDelivery = pgTable(
  "workflow_delivery",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    /** No reference: what was asked for is sent, whatever becomes of the workflow. */
    workflowId: uuid("workflow_id"),
    runId: uuid("run_id").notNull(),
    step: text("step").notNull(),
    /** Index of the element at each level, with dots between. */
    element: text("element").notNull(),
    /** The sink's request, in which secrets are named; null once it is over. */
    request: jsonb("request"),
    delivery: text("delivery").$type<"pending" | "delivered" | "given_up">().notNull(),
    attempts: integer("attempts").notNull().default(0),
    nextAt: instant("next_at").notNull(),
    lastError: text("last_error"),
    createdAt: createdAt(),
    endedAt: instant("ended_at"),
  },
  (table) => [
    uniqueIndex("workflow_delivery_once").on(table.runId, table.step, table.element),
    index("workflow_delivery_due").on(table.nextAt).where(sql`delivery = 'pending'`),
    index("workflow_delivery_workspace").on(table.workspaceId, table.createdAt),
    index("workflow_delivery_created").on(table.createdAt),
    check("workflow_delivery_kind", sql`delivery IN ('pending', 'delivered', 'given_up')`),
    check("workflow_delivery_over", sql`(delivery = 'pending') = (request IS NOT NULL)`),
  ],
);
