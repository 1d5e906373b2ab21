CREATE TABLE "model_export" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"model_id" uuid NOT NULL,
	"fingerprint" text NOT NULL,
	"format" text NOT NULL,
	"output" text NOT NULL,
	"height" integer NOT NULL,
	"width" integer NOT NULL,
	"batch" integer,
	"state" text DEFAULT 'queued' NOT NULL,
	"failure" text,
	"round" integer DEFAULT 1 NOT NULL,
	"bytes_expected" bigint NOT NULL,
	"storage_key" text,
	"bytes" bigint,
	"sha256" text,
	"opset" integer,
	"verification" jsonb,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "model_export_once" UNIQUE("model_id","fingerprint"),
	CONSTRAINT "model_export_failure" CHECK ((state = 'failed') = (failure IS NOT NULL)),
	CONSTRAINT "model_export_file" CHECK ((state = 'completed') = (storage_key IS NOT NULL))
);
--> statement-breakpoint
ALTER TABLE "model_export" ADD CONSTRAINT "model_export_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model_export" ADD CONSTRAINT "model_export_model_id_model_id_fk" FOREIGN KEY ("model_id") REFERENCES "public"."model"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "model_export_workspace" ON "model_export" USING btree ("workspace_id");--> statement-breakpoint
CREATE INDEX "model_export_queued" ON "model_export" USING btree ("created_at") WHERE state = 'queued';