ALTER TABLE "node" ADD COLUMN "workspace_id" uuid;--> statement-breakpoint
ALTER TABLE "node_code" ADD COLUMN "workspace_id" uuid;--> statement-breakpoint
ALTER TABLE "node" ADD CONSTRAINT "node_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "node_code" ADD CONSTRAINT "node_code_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "task_claim_own" ON "task" USING btree ("workspace_id","priority" DESC NULLS LAST,"available_at","place") WHERE state = 'queued';