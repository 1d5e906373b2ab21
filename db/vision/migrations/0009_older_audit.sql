ALTER TABLE "audit_entry" ADD COLUMN "detail" jsonb;--> statement-breakpoint
-- Workers of the release before run on until theirs is uploaded, and say what they did in a detail.
-- Their entries are told as 0008 tells those from before it; only they say no actor_kind.
CREATE FUNCTION "read_older_audit_entry"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  named uuid := substring(NEW.subject FROM '[0-9a-f-]{36}$')::uuid;
BEGIN
  NEW.actor_kind := CASE WHEN NEW.actor_id IS NULL THEN 'service' ELSE 'member' END;
  NEW.workspace_id := CASE
    WHEN NEW.action IN ('set_role', 'node.code') THEN (NEW.detail->>'workspace_id')::uuid
    WHEN NEW.action = 'create_workspace' THEN named
    WHEN NEW.action IN ('node.register', 'node.revoke') THEN
      (SELECT workspace_id FROM node WHERE id = named)
    WHEN NEW.action = 'task.revoke' THEN (SELECT workspace_id FROM task WHERE id = named)
    WHEN NEW.action = 'job.mark-failed' THEN (SELECT workspace_id FROM job WHERE id = named)
    WHEN NEW.action = 'training.mark-failed' THEN
      (SELECT workspace_id FROM training_run WHERE id = named)
    END;
  NEW.before := CASE WHEN NEW.detail ? 'from'
    THEN jsonb_build_object('status', NEW.detail->'from') END;
  NEW.after := CASE WHEN NEW.detail ? 'from' THEN jsonb_build_object('status', 'failed')
    WHEN NEW.action = 'set_role' THEN NEW.detail - 'workspace_id' ELSE NEW.detail END;
  NEW.action := CASE NEW.action WHEN 'set_role' THEN 'setRole'
    WHEN 'create_workspace' THEN 'makeWorkspace' WHEN 'node.code' THEN 'makeNodeCode'
    WHEN 'node.register' THEN 'registerNode' WHEN 'node.revoke' THEN 'revokeNode'
    WHEN 'task.revoke' THEN 'revokeTask' WHEN 'queue.purge' THEN 'purgeQueue'
    WHEN 'job.mark-failed' THEN 'failJob' WHEN 'training.mark-failed' THEN 'failRun'
    ELSE NEW.action END;
  NEW.detail := NULL;
  RETURN NEW;
END $$;
--> statement-breakpoint
CREATE TRIGGER "read_older_audit_entry" BEFORE INSERT ON "audit_entry" FOR EACH ROW
  WHEN (NEW.actor_kind IS NULL) EXECUTE FUNCTION "read_older_audit_entry"();
