CREATE TABLE "model" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid,
	"run_id" uuid,
	"round" integer,
	"name" text NOT NULL,
	"version" integer NOT NULL,
	"variant" text NOT NULL,
	"task" text NOT NULL,
	"classes" text[] NOT NULL,
	"image_size" integer NOT NULL,
	"parameters" bigint NOT NULL,
	"storage_key" text NOT NULL,
	"bytes" bigint NOT NULL,
	"sha256" text NOT NULL,
	"metrics" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"active" boolean DEFAULT false NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "model_of_round" UNIQUE("run_id","round"),
	CONSTRAINT "model_version" UNIQUE("workspace_id","name","version")
);
--> statement-breakpoint
CREATE TABLE "model_alias" (
	"workspace_id" uuid NOT NULL,
	"alias" text NOT NULL,
	"model_id" uuid NOT NULL,
	CONSTRAINT "model_alias_workspace_id_alias_pk" PRIMARY KEY("workspace_id","alias"),
	CONSTRAINT "model_alias_name" CHECK (alias IN ('production', 'staging', 'canary'))
);
--> statement-breakpoint
CREATE TABLE "model_move" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"from_model_id" uuid,
	"to_model_id" uuid,
	"rollback_of" bigint,
	"actor_id" uuid,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "training_epoch" (
	"run_id" uuid NOT NULL,
	"epoch" integer NOT NULL,
	"record" jsonb NOT NULL,
	CONSTRAINT "training_epoch_run_id_epoch_pk" PRIMARY KEY("run_id","epoch")
);
--> statement-breakpoint
CREATE TABLE "training_run" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"job_id" uuid,
	"name" text NOT NULL,
	"notes" text DEFAULT '' NOT NULL,
	"state" text DEFAULT 'queued' NOT NULL,
	"failure" text,
	"settings" jsonb NOT NULL,
	"resolved" jsonb,
	"classes" text[] DEFAULT '{}' NOT NULL,
	"dataset" jsonb,
	"round" integer DEFAULT 1 NOT NULL,
	"checkpoint" jsonb,
	"live" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"best_metrics" jsonb,
	"best_epoch" integer,
	"artifacts" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"stop_requested_at" timestamp (3) with time zone,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"started_at" timestamp (3) with time zone,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "training_run_failure" CHECK ((state = 'failed') = (failure IS NOT NULL)),
	CONSTRAINT "training_run_ended" CHECK ((state IN ('queued', 'running')) = (ended_at IS NULL))
);
--> statement-breakpoint
CREATE TABLE "weights_file" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"dataset" text DEFAULT '' NOT NULL,
	"format" text NOT NULL,
	"storage_key" text NOT NULL,
	"bytes" bigint NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "model" ADD CONSTRAINT "model_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model" ADD CONSTRAINT "model_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model" ADD CONSTRAINT "model_run_id_training_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."training_run"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model_alias" ADD CONSTRAINT "model_alias_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model_alias" ADD CONSTRAINT "model_alias_model_id_model_id_fk" FOREIGN KEY ("model_id") REFERENCES "public"."model"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model_move" ADD CONSTRAINT "model_move_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "training_epoch" ADD CONSTRAINT "training_epoch_run_id_training_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."training_run"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "training_run" ADD CONSTRAINT "training_run_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "training_run" ADD CONSTRAINT "training_run_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "training_run" ADD CONSTRAINT "training_run_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "weights_file" ADD CONSTRAINT "weights_file_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "model_active" ON "model" USING btree ("workspace_id") WHERE active;--> statement-breakpoint
CREATE INDEX "model_workspace" ON "model" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "model_move_name" ON "model_move" USING btree ("workspace_id","name","id");--> statement-breakpoint
CREATE INDEX "training_run_workspace" ON "training_run" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "training_run_job" ON "training_run" USING btree ("job_id");--> statement-breakpoint
CREATE INDEX "weights_file_workspace" ON "weights_file" USING btree ("workspace_id","created_at");