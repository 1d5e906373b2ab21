ALTER TABLE "node" ADD COLUMN "workspace_id" uuid;--> statement-breakpoint
ALTER TABLE "node_code" ADD COLUMN "workspace_id" uuid;--> statement-breakpoint
ALTER TABLE "node" ADD CONSTRAINT "node_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "node_code" ADD CONSTRAINT "node_code_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "task_claim_own" ON "task" USING btree ("workspace_id","priority" DESC NULLS LAST,"available_at","place") WHERE state = 'queued';--> statement-breakpoint
-- Any workspace's admin could introduce a node that served all. One that no operator introduced is
-- its admin's workspace's own from now on, or nobody's.
UPDATE node SET workspace_id = own.workspace_id,
  revoked_at = CASE WHEN own.workspace_id IS NULL THEN coalesce(revoked_at, now()) ELSE revoked_at END
  FROM (
    SELECT n.id, (SELECT m.workspace_id FROM membership m
        WHERE m.account_id = a.actor_id AND m.role = 'admin' ORDER BY m.workspace_id LIMIT 1)
        AS workspace_id
      FROM node n JOIN audit_entry a ON a.action = 'node.register' AND a.subject = 'node:' || n.id
     WHERE a.actor_id IS NOT NULL AND NOT EXISTS (
       SELECT FROM membership m JOIN workspace w ON w.id = m.workspace_id
        WHERE m.account_id = a.actor_id AND m.role = 'admin' AND w.is_default)) own
 WHERE own.id = node.id;--> statement-breakpoint
DELETE FROM node_code WHERE used_at IS NULL;
