ALTER TABLE "audit_entry" ADD COLUMN "actor_kind" text DEFAULT 'member' NOT NULL;--> statement-breakpoint
ALTER TABLE "audit_entry" ALTER COLUMN "actor_kind" DROP DEFAULT;--> statement-breakpoint
ALTER TABLE "audit_entry" ADD COLUMN "workspace_id" uuid;--> statement-breakpoint
ALTER TABLE "audit_entry" ADD COLUMN "before" jsonb;--> statement-breakpoint
ALTER TABLE "audit_entry" ADD COLUMN "after" jsonb;--> statement-breakpoint
ALTER TABLE "audit_entry" ADD COLUMN "request_id" text;--> statement-breakpoint
-- Older entries in the words of the newer: operations by their ids, whose they are, what they did.
-- Who was an operator at that time is not known any more; tasks have subjects of their own.
UPDATE audit_entry SET
  actor_kind = CASE WHEN actor_id IS NULL THEN 'service' ELSE 'member' END,
  action = CASE action WHEN 'set_role' THEN 'setRole' WHEN 'create_workspace' THEN 'makeWorkspace'
    WHEN 'node.code' THEN 'makeNodeCode' WHEN 'node.register' THEN 'registerNode'
    WHEN 'node.revoke' THEN 'revokeNode' WHEN 'task.revoke' THEN 'revokeTask'
    WHEN 'queue.purge' THEN 'purgeQueue' WHEN 'job.mark-failed' THEN 'failJob'
    WHEN 'training.mark-failed' THEN 'failRun' ELSE action END,
  workspace_id = CASE
    WHEN action IN ('set_role', 'node.code') THEN (detail->>'workspace_id')::uuid
    WHEN action = 'create_workspace' THEN substring(audit_entry.subject FROM '[0-9a-f-]{36}$')::uuid
    WHEN action IN ('node.register', 'node.revoke') THEN
      (SELECT n.workspace_id FROM node n WHERE n.id = substring(audit_entry.subject FROM '[0-9a-f-]{36}$')::uuid)
    WHEN action = 'task.revoke' THEN
      (SELECT t.workspace_id FROM task t WHERE t.id = substring(audit_entry.subject FROM '[0-9a-f-]{36}$')::uuid)
    WHEN action = 'job.mark-failed' THEN
      (SELECT j.workspace_id FROM job j WHERE j.id = substring(audit_entry.subject FROM '[0-9a-f-]{36}$')::uuid)
    WHEN action = 'training.mark-failed' THEN
      (SELECT r.workspace_id FROM training_run r WHERE r.id = substring(audit_entry.subject FROM '[0-9a-f-]{36}$')::uuid)
    END,
  before = CASE WHEN detail ? 'from' THEN jsonb_build_object('status', detail->'from') END,
  after = CASE WHEN detail ? 'from' THEN jsonb_build_object('status', 'failed')
    WHEN action = 'set_role' THEN detail - 'workspace_id' ELSE detail END;--> statement-breakpoint
ALTER TABLE "audit_entry" DROP COLUMN "detail";--> statement-breakpoint
CREATE INDEX "audit_entry_workspace" ON "audit_entry" USING btree ("workspace_id","id");--> statement-breakpoint
CREATE INDEX "audit_entry_actor" ON "audit_entry" USING btree ("actor_id","id");--> statement-breakpoint
CREATE INDEX "audit_entry_action" ON "audit_entry" USING btree ("action","id");--> statement-breakpoint
CREATE INDEX "audit_entry_subject" ON "audit_entry" USING btree ("subject","id");--> statement-breakpoint
ALTER TABLE "audit_entry" ADD CONSTRAINT "audit_entry_actor_kind" CHECK (actor_kind IN ('member', 'operator', 'service'));--> statement-breakpoint
-- What was written down stays as it is, and for 30 days at least, whoever asks.
CREATE FUNCTION "keep_audit_entry"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND OLD.at < now() - interval '30 days' THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'the audit log is not changed' USING ERRCODE = 'restrict_violation';
END $$;
--> statement-breakpoint
CREATE TRIGGER "keep_audit_entry" BEFORE UPDATE OR DELETE ON "audit_entry" FOR EACH ROW EXECUTE FUNCTION "keep_audit_entry"();--> statement-breakpoint
CREATE TRIGGER "keep_audit_log" BEFORE TRUNCATE ON "audit_entry" FOR EACH STATEMENT EXECUTE FUNCTION "keep_audit_entry"();
