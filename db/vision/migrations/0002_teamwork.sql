CREATE TABLE "api_token" (
	"id" uuid PRIMARY KEY NOT NULL,
	"hash" "bytea" NOT NULL,
	"account_id" uuid NOT NULL,
	"workspace_id" uuid,
	"name" text NOT NULL,
	"prefix" text NOT NULL,
	"role" text NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"last_used_at" timestamp (3) with time zone,
	CONSTRAINT "api_token_hash_unique" UNIQUE("hash"),
	CONSTRAINT "api_token_role" CHECK (role IN ('viewer', 'annotator', 'engineer', 'admin'))
);
--> statement-breakpoint
CREATE TABLE "password_reset" (
	"account_id" uuid PRIMARY KEY NOT NULL,
	"hash" "bytea" NOT NULL,
	"created_by" uuid NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "password_reset_hash_unique" UNIQUE("hash")
);
--> statement-breakpoint
CREATE TABLE "annotation_comment" (
	"id" uuid PRIMARY KEY NOT NULL,
	"job_id" uuid NOT NULL,
	"annotation_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"text" text NOT NULL,
	"author_id" uuid NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"resolved_at" timestamp (3) with time zone,
	"resolved_by" uuid
);
--> statement-breakpoint
CREATE TABLE "dataset" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"name" text NOT NULL,
	"description" text DEFAULT '' NOT NULL,
	"classes" text[] DEFAULT '{}' NOT NULL,
	"include" text NOT NULL,
	"val_share" double precision NOT NULL,
	"test_share" double precision NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
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
CREATE TABLE "dataset_job" (
	"dataset_id" uuid NOT NULL,
	"job_id" uuid NOT NULL,
	"classes" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"without" text[] DEFAULT '{}' NOT NULL,
	"added_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "dataset_job_dataset_id_job_id_pk" PRIMARY KEY("dataset_id","job_id")
);
--> statement-breakpoint
CREATE TABLE "dataset_side" (
	"dataset_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"from_index" integer NOT NULL,
	"side" text NOT NULL,
	"origin" text NOT NULL,
	CONSTRAINT "dataset_side_dataset_id_video_id_from_index_pk" PRIMARY KEY("dataset_id","video_id","from_index"),
	CONSTRAINT "dataset_side_side" CHECK (side IN ('train', 'val', 'test'))
);
--> statement-breakpoint
CREATE TABLE "dataset_version" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"dataset_id" uuid NOT NULL,
	"number" integer NOT NULL,
	"note" text DEFAULT '' NOT NULL,
	"settings" jsonb NOT NULL,
	"classes" text[] NOT NULL,
	"counts" jsonb NOT NULL,
	"changes" jsonb NOT NULL,
	"storage_key" text NOT NULL,
	"bytes" bigint NOT NULL,
	"sha256" text NOT NULL,
	"sources" jsonb NOT NULL,
	"videos" jsonb NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "dataset_version_number" UNIQUE("dataset_id","number")
);
--> statement-breakpoint
CREATE TABLE "frame_assignment" (
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"labeler_id" uuid,
	"reviewer_id" uuid,
	"stage" text DEFAULT 'label' NOT NULL,
	CONSTRAINT "frame_assignment_job_id_video_id_frame_index_pk" PRIMARY KEY("job_id","video_id","frame_index"),
	CONSTRAINT "frame_assignment_stage" CHECK (stage IN ('label', 'review'))
);
--> statement-breakpoint
ALTER TABLE "invitation" DROP CONSTRAINT "invitation_created_by_account_id_fk";
--> statement-breakpoint
ALTER TABLE "invitation" DROP CONSTRAINT "invitation_used_by_account_id_fk";
--> statement-breakpoint
ALTER TABLE "workspace" DROP CONSTRAINT "workspace_made_by_account_id_fk";
--> statement-breakpoint
ALTER TABLE "upload" ADD COLUMN "kind" text DEFAULT 'video' NOT NULL;--> statement-breakpoint
ALTER TABLE "upload" ADD COLUMN "completed_at" timestamp (3) with time zone;--> statement-breakpoint
ALTER TABLE "annotation" ADD COLUMN "found_by" text;--> statement-breakpoint
ALTER TABLE "job_video" ADD COLUMN "searched" boolean DEFAULT true NOT NULL;--> statement-breakpoint
ALTER TABLE "training_run" ADD COLUMN "dataset_version_id" uuid;--> statement-breakpoint
ALTER TABLE "audit_entry" ADD COLUMN "token_id" uuid;--> statement-breakpoint
ALTER TABLE "api_token" ADD CONSTRAINT "api_token_account_id_account_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."account"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "api_token" ADD CONSTRAINT "api_token_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "password_reset" ADD CONSTRAINT "password_reset_account_id_account_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."account"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "annotation_comment" ADD CONSTRAINT "annotation_comment_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset" ADD CONSTRAINT "dataset_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset" ADD CONSTRAINT "dataset_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_import" ADD CONSTRAINT "dataset_import_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_import" ADD CONSTRAINT "dataset_import_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_import_image" ADD CONSTRAINT "dataset_import_image_import_id_dataset_import_id_fk" FOREIGN KEY ("import_id") REFERENCES "public"."dataset_import"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_job" ADD CONSTRAINT "dataset_job_dataset_id_dataset_id_fk" FOREIGN KEY ("dataset_id") REFERENCES "public"."dataset"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_job" ADD CONSTRAINT "dataset_job_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_side" ADD CONSTRAINT "dataset_side_dataset_id_dataset_id_fk" FOREIGN KEY ("dataset_id") REFERENCES "public"."dataset"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_version" ADD CONSTRAINT "dataset_version_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_version" ADD CONSTRAINT "dataset_version_dataset_id_dataset_id_fk" FOREIGN KEY ("dataset_id") REFERENCES "public"."dataset"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "frame_assignment" ADD CONSTRAINT "frame_assignment_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "api_token_account" ON "api_token" USING btree ("account_id");--> statement-breakpoint
CREATE INDEX "api_token_expires" ON "api_token" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "password_reset_expires" ON "password_reset" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "annotation_comment_job" ON "annotation_comment" USING btree ("job_id","created_at","id");--> statement-breakpoint
CREATE INDEX "dataset_workspace" ON "dataset" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "dataset_import_running" ON "dataset_import" USING btree ("project_id") WHERE state = 'running';--> statement-breakpoint
CREATE INDEX "dataset_job_job" ON "dataset_job" USING btree ("job_id");--> statement-breakpoint
ALTER TABLE "training_run" ADD CONSTRAINT "training_run_dataset_version_id_dataset_version_id_fk" FOREIGN KEY ("dataset_version_id") REFERENCES "public"."dataset_version"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "task_annotated" ON "task" USING btree ("workspace_id") WHERE kind = 'predict' AND state = 'finished' AND payload ? 'annotated';--> statement-breakpoint
CREATE INDEX "training_run_dataset_version" ON "training_run" USING btree ("dataset_version_id");