ALTER TABLE "workspace" ADD COLUMN "made_by" uuid;--> statement-breakpoint
ALTER TABLE "workspace" ADD CONSTRAINT "workspace_made_by_account_id_fk" FOREIGN KEY ("made_by") REFERENCES "public"."account"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "workspace_made_by" ON "workspace" USING btree ("made_by");--> statement-breakpoint
UPDATE "workspace" SET "made_by" = "audit_entry"."actor_id" FROM "audit_entry"
  WHERE "action" = 'makeWorkspace' AND "subject" = 'workspace:' || "workspace"."id"
    AND EXISTS (SELECT FROM "account" WHERE "account"."id" = "audit_entry"."actor_id");
