CREATE TABLE "comparison" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"settings" jsonb NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "comparison_session" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"comparison_id" uuid,
	"settings" jsonb NOT NULL,
	"models" jsonb NOT NULL,
	"input" jsonb NOT NULL,
	"state" text DEFAULT 'queued' NOT NULL,
	"failure" text,
	"outcome" jsonb,
	"report_key" text,
	"overlay_keys" text[],
	"bytes" bigint,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	"forgotten_at" timestamp (3) with time zone,
	CONSTRAINT "comparison_session_failure" CHECK ((state = 'failed') = (failure IS NOT NULL)),
	CONSTRAINT "comparison_session_report" CHECK ((state = 'completed') = (report_key IS NOT NULL))
);
--> statement-breakpoint
ALTER TABLE "comparison" ADD CONSTRAINT "comparison_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "comparison_session" ADD CONSTRAINT "comparison_session_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "comparison_workspace" ON "comparison" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "comparison_session_workspace" ON "comparison_session" USING btree ("workspace_id");--> statement-breakpoint
CREATE INDEX "comparison_session_comparison" ON "comparison_session" USING btree ("comparison_id");--> statement-breakpoint
CREATE INDEX "comparison_session_queued" ON "comparison_session" USING btree ("created_at") WHERE state = 'queued';--> statement-breakpoint
CREATE INDEX "comparison_session_ended" ON "comparison_session" USING btree ("ended_at");