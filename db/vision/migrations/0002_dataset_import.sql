CREATE TABLE "dataset_import" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"name" text NOT NULL,
	"format" text,
	"state" text DEFAULT 'running' NOT NULL,
	"failure_code" text,
	"failure" text,
	"storage_key" text NOT NULL,
	"bytes" bigint NOT NULL,
	"summary" jsonb,
	"attempts" integer DEFAULT 0 NOT NULL,
	"leased_until" timestamp (3) with time zone,
	"created_by" uuid NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "dataset_import_failure" CHECK ((state = 'failed') = (failure IS NOT NULL))
);
--> statement-breakpoint
CREATE TABLE "dataset_import_image" (
	"import_id" uuid NOT NULL,
	"position" integer NOT NULL,
	"name" text NOT NULL,
	"state" text DEFAULT 'pending' NOT NULL,
	"video_id" uuid NOT NULL,
	"failure_code" text,
	"failure" text,
	CONSTRAINT "dataset_import_image_import_id_position_pk" PRIMARY KEY("import_id","position")
);
--> statement-breakpoint
ALTER TABLE "upload" ADD COLUMN "kind" text DEFAULT 'video' NOT NULL;--> statement-breakpoint
ALTER TABLE "upload" ADD COLUMN "completed_at" timestamp (3) with time zone;--> statement-breakpoint
ALTER TABLE "dataset_import" ADD CONSTRAINT "dataset_import_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_import" ADD CONSTRAINT "dataset_import_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_import_image" ADD CONSTRAINT "dataset_import_image_import_id_dataset_import_id_fk" FOREIGN KEY ("import_id") REFERENCES "public"."dataset_import"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "dataset_import_running" ON "dataset_import" USING btree ("project_id") WHERE state = 'running';