CREATE TABLE "account" (
	"id" uuid PRIMARY KEY NOT NULL,
	"email" text NOT NULL,
	"display_name" text NOT NULL,
	"password_hash" text NOT NULL,
	"session_version" integer DEFAULT 1 NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "account_email_unique" UNIQUE("email")
);
--> statement-breakpoint
CREATE TABLE "annotation" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"class_number" integer NOT NULL,
	"x1" real NOT NULL,
	"y1" real NOT NULL,
	"x2" real NOT NULL,
	"y2" real NOT NULL,
	"confidence" real,
	"review" text DEFAULT 'pending' NOT NULL,
	"source" text NOT NULL,
	"track_id" integer,
	"duplicate_of" uuid,
	"polygon" jsonb,
	"revision" integer DEFAULT 1 NOT NULL,
	"updated_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "annotation_box" CHECK (x2 > x1 AND y2 > y1)
);
--> statement-breakpoint
CREATE TABLE "audit_entry" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"actor_id" uuid,
	"action" text NOT NULL,
	"subject" text NOT NULL,
	"detail" jsonb DEFAULT '{}'::jsonb NOT NULL
);
--> statement-breakpoint
CREATE TABLE "change" (
	"id" uuid PRIMARY KEY NOT NULL,
	"job_id" uuid NOT NULL,
	"actor_id" uuid,
	"kind" text NOT NULL,
	"summary" jsonb NOT NULL,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"undone_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "change_item" (
	"change_id" uuid NOT NULL,
	"annotation_id" uuid NOT NULL,
	"before" jsonb,
	"after" jsonb,
	CONSTRAINT "change_item_change_id_annotation_id_pk" PRIMARY KEY("change_id","annotation_id")
);
--> statement-breakpoint
CREATE TABLE "dataset_export" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"job_id" uuid NOT NULL,
	"format" text NOT NULL,
	"state" text DEFAULT 'queued' NOT NULL,
	"failure" text,
	"options" jsonb NOT NULL,
	"storage_key" text NOT NULL,
	"bytes" bigint,
	"summary" jsonb,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "idempotent_answer" (
	"workspace_id" uuid NOT NULL,
	"key" text NOT NULL,
	"route" text NOT NULL,
	"body_sha256" "bytea" NOT NULL,
	"status" smallint NOT NULL,
	"body" jsonb NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "idempotent_answer_workspace_id_route_key_pk" PRIMARY KEY("workspace_id","route","key")
);
--> statement-breakpoint
CREATE TABLE "job" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"name" text NOT NULL,
	"description" text DEFAULT '' NOT NULL,
	"kind" text NOT NULL,
	"state" text DEFAULT 'queued' NOT NULL,
	"failure" text,
	"threshold" real NOT NULL,
	"resolution" integer,
	"fps" double precision,
	"settings" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"frames_total" integer DEFAULT 0 NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"started_at" timestamp (3) with time zone,
	"ended_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "job_class" (
	"job_id" uuid NOT NULL,
	"number" integer NOT NULL,
	"name" text NOT NULL,
	"prompt" text,
	CONSTRAINT "job_class_job_id_number_pk" PRIMARY KEY("job_id","number"),
	CONSTRAINT "job_class_name" UNIQUE("job_id","name")
);
--> statement-breakpoint
CREATE TABLE "job_video" (
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"position" integer NOT NULL,
	"frames" integer[] NOT NULL,
	CONSTRAINT "job_video_job_id_video_id_pk" PRIMARY KEY("job_id","video_id")
);
--> statement-breakpoint
CREATE TABLE "membership" (
	"workspace_id" uuid NOT NULL,
	"account_id" uuid NOT NULL,
	"role" text NOT NULL,
	CONSTRAINT "membership_workspace_id_account_id_pk" PRIMARY KEY("workspace_id","account_id"),
	CONSTRAINT "membership_role" CHECK (role IN ('viewer', 'annotator', 'engineer', 'admin'))
);
--> statement-breakpoint
CREATE TABLE "node" (
	"id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"token_hash" "bytea" NOT NULL,
	"capabilities" jsonb NOT NULL,
	"last_heartbeat_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"draining" boolean DEFAULT false NOT NULL,
	"revoked_at" timestamp (3) with time zone,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "node_token_hash_unique" UNIQUE("token_hash")
);
--> statement-breakpoint
CREATE TABLE "node_code" (
	"hash" "bytea" PRIMARY KEY NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"used_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "project" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"description" text DEFAULT '' NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "refresh_token" (
	"hash" "bytea" PRIMARY KEY NOT NULL,
	"family" uuid NOT NULL,
	"account_id" uuid NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"used_at" timestamp (3) with time zone,
	"revoked_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "task" (
	"id" uuid PRIMARY KEY NOT NULL,
	"place" bigserial NOT NULL,
	"kind" text NOT NULL,
	"workspace_id" uuid NOT NULL,
	"subject" text NOT NULL,
	"payload" jsonb NOT NULL,
	"priority" smallint DEFAULT 0 NOT NULL,
	"state" text DEFAULT 'queued' NOT NULL,
	"attempt" integer DEFAULT 0 NOT NULL,
	"attempts_max" integer DEFAULT 3 NOT NULL,
	"fence" bigint DEFAULT 0 NOT NULL,
	"node_id" uuid,
	"lease_until" timestamp (3) with time zone,
	"available_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"cancel_requested_at" timestamp (3) with time zone,
	"revoke_requested_at" timestamp (3) with time zone,
	"progress" jsonb,
	"progress_at" timestamp (3) with time zone,
	"errors" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"result" jsonb,
	"idempotency_key" text,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"started_at" timestamp (3) with time zone,
	"ended_at" timestamp (3) with time zone,
	"settled_at" timestamp (3) with time zone,
	CONSTRAINT "task_idempotency_key_unique" UNIQUE("idempotency_key"),
	CONSTRAINT "task_ended" CHECK ((state IN ('queued', 'running')) = (ended_at IS NULL)),
	CONSTRAINT "task_running" CHECK ((state = 'running') = (lease_until IS NOT NULL))
);
--> statement-breakpoint
CREATE TABLE "throttle" (
	"key" text PRIMARY KEY NOT NULL,
	"attempts" integer NOT NULL,
	"window_ends_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "upload" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"filename" text NOT NULL,
	"storage_key" text NOT NULL,
	"multipart_id" text NOT NULL,
	"bytes" bigint NOT NULL,
	"part_bytes" integer NOT NULL,
	"parts" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"video_id" uuid,
	"aborted_at" timestamp (3) with time zone,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "video" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"filename" text NOT NULL,
	"storage_key" text NOT NULL,
	"source" text NOT NULL,
	"state" text DEFAULT 'probing' NOT NULL,
	"failure" text,
	"bytes" bigint NOT NULL,
	"content_type" text NOT NULL,
	"width" integer,
	"height" integer,
	"fps" double precision,
	"duration_seconds" double precision,
	"frame_count" integer,
	"time_base" integer[],
	"pts_key" text,
	"thumbnail_key" text,
	"probe" jsonb,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "video_failure" CHECK ((state = 'failed') = (failure IS NOT NULL)),
	CONSTRAINT "video_ready" CHECK (state <> 'ready' OR frame_count IS NOT NULL)
);
--> statement-breakpoint
CREATE TABLE "workspace" (
	"id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"is_default" boolean DEFAULT false NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "annotation" ADD CONSTRAINT "annotation_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "annotation" ADD CONSTRAINT "annotation_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "annotation" ADD CONSTRAINT "annotation_of_class" FOREIGN KEY ("job_id","class_number") REFERENCES "public"."job_class"("job_id","number") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "change" ADD CONSTRAINT "change_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "change_item" ADD CONSTRAINT "change_item_change_id_change_id_fk" FOREIGN KEY ("change_id") REFERENCES "public"."change"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_export" ADD CONSTRAINT "dataset_export_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_export" ADD CONSTRAINT "dataset_export_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "idempotent_answer" ADD CONSTRAINT "idempotent_answer_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job" ADD CONSTRAINT "job_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job" ADD CONSTRAINT "job_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job_class" ADD CONSTRAINT "job_class_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job_video" ADD CONSTRAINT "job_video_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job_video" ADD CONSTRAINT "job_video_video_id_video_id_fk" FOREIGN KEY ("video_id") REFERENCES "public"."video"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "membership" ADD CONSTRAINT "membership_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "membership" ADD CONSTRAINT "membership_account_id_account_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."account"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project" ADD CONSTRAINT "project_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "refresh_token" ADD CONSTRAINT "refresh_token_account_id_account_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."account"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "task" ADD CONSTRAINT "task_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "task" ADD CONSTRAINT "task_node_id_node_id_fk" FOREIGN KEY ("node_id") REFERENCES "public"."node"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "upload" ADD CONSTRAINT "upload_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "upload" ADD CONSTRAINT "upload_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "upload" ADD CONSTRAINT "upload_video_id_video_id_fk" FOREIGN KEY ("video_id") REFERENCES "public"."video"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "video" ADD CONSTRAINT "video_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "video" ADD CONSTRAINT "video_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "annotation_place" ON "annotation" USING btree ("job_id","video_id","frame_index","id");--> statement-breakpoint
CREATE INDEX "annotation_class" ON "annotation" USING btree ("job_id","class_number");--> statement-breakpoint
CREATE INDEX "audit_entry_at" ON "audit_entry" USING btree ("at");--> statement-breakpoint
CREATE INDEX "change_job" ON "change" USING btree ("job_id","at");--> statement-breakpoint
CREATE INDEX "dataset_export_job" ON "dataset_export" USING btree ("job_id","created_at");--> statement-breakpoint
CREATE INDEX "job_project" ON "job" USING btree ("project_id","created_at");--> statement-breakpoint
CREATE INDEX "job_workspace" ON "job" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "membership_account" ON "membership" USING btree ("account_id");--> statement-breakpoint
CREATE INDEX "project_workspace" ON "project" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "refresh_token_family" ON "refresh_token" USING btree ("family");--> statement-breakpoint
CREATE INDEX "task_claim" ON "task" USING btree ("priority" DESC NULLS LAST,"available_at","place") WHERE state = 'queued';--> statement-breakpoint
CREATE INDEX "task_lease" ON "task" USING btree ("lease_until") WHERE state = 'running';--> statement-breakpoint
CREATE INDEX "task_subject" ON "task" USING btree ("subject","kind");--> statement-breakpoint
CREATE INDEX "task_unsettled" ON "task" USING btree ("ended_at") WHERE ended_at IS NOT NULL AND settled_at IS NULL;--> statement-breakpoint
CREATE INDEX "video_project" ON "video" USING btree ("project_id","created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "workspace_default" ON "workspace" USING btree ("is_default") WHERE is_default;--> statement-breakpoint
INSERT INTO "workspace" ("id", "name", "is_default") VALUES (gen_random_uuid(), 'Default', true);
