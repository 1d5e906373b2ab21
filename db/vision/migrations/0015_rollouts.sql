CREATE TABLE "device_desired" (
	"device_id" uuid PRIMARY KEY NOT NULL,
	"rollout_id" uuid,
	"version" bigserial NOT NULL,
	"confirmed" boolean DEFAULT false NOT NULL,
	"former_id" uuid,
	"set_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "rollout" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"group_name" text,
	"tags" text[] DEFAULT '{}' NOT NULL,
	"model_id" uuid NOT NULL,
	"export_id" uuid NOT NULL,
	"file" jsonb NOT NULL,
	"storage_key" text NOT NULL,
	"gates" jsonb NOT NULL,
	"confirm" jsonb NOT NULL,
	"confidence" double precision NOT NULL,
	"min_agent" text NOT NULL,
	"stages" double precision[] NOT NULL,
	"stage" integer DEFAULT 0 NOT NULL,
	"stage_since" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"state" text DEFAULT 'rolling' NOT NULL,
	"reason" text,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "rollout_state" CHECK (state IN ('rolling', 'paused', 'completed', 'superseded', 'rolled_back', 'aborted')),
	CONSTRAINT "rollout_stage" CHECK (stage >= 0 AND stage < cardinality(stages))
);
--> statement-breakpoint
CREATE TABLE "rollout_device" (
	"rollout_id" uuid NOT NULL,
	"device_id" uuid NOT NULL,
	"bucket" integer NOT NULL,
	"version" bigint NOT NULL,
	"former_id" uuid,
	"state" text DEFAULT 'pending' NOT NULL,
	"failure" text,
	"crashes" integer DEFAULT 0 NOT NULL,
	"inferences" bigint DEFAULT 0 NOT NULL,
	"inference_failures" bigint DEFAULT 0 NOT NULL,
	"latency_ms" double precision,
	"scores" bigint[],
	"assigned_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"reported_at" timestamp (3) with time zone,
	CONSTRAINT "rollout_device_rollout_id_device_id_pk" PRIMARY KEY("rollout_id","device_id"),
	CONSTRAINT "rollout_device_state" CHECK (state IN ('pending', 'downloading', 'verifying', 'staged', 'active', 'confirmed',
        'rolled_back', 'failed'))
);
--> statement-breakpoint
CREATE TABLE "rollout_hold" (
	"rollout_id" uuid PRIMARY KEY NOT NULL,
	"model_id" uuid NOT NULL,
	"export_id" uuid NOT NULL
);
--> statement-breakpoint
CREATE TABLE "rollout_move" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"rollout_id" uuid NOT NULL,
	"kind" text NOT NULL,
	"stage" integer NOT NULL,
	"reason" text,
	"figures" jsonb,
	"actor_id" uuid,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "device_desired" ADD CONSTRAINT "device_desired_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_desired" ADD CONSTRAINT "device_desired_rollout_id_rollout_id_fk" FOREIGN KEY ("rollout_id") REFERENCES "public"."rollout"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout" ADD CONSTRAINT "rollout_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_device" ADD CONSTRAINT "rollout_device_rollout_id_rollout_id_fk" FOREIGN KEY ("rollout_id") REFERENCES "public"."rollout"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_device" ADD CONSTRAINT "rollout_device_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_hold" ADD CONSTRAINT "rollout_hold_rollout_id_rollout_id_fk" FOREIGN KEY ("rollout_id") REFERENCES "public"."rollout"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_hold" ADD CONSTRAINT "rollout_hold_model_id_model_id_fk" FOREIGN KEY ("model_id") REFERENCES "public"."model"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_hold" ADD CONSTRAINT "rollout_hold_export_id_model_export_id_fk" FOREIGN KEY ("export_id") REFERENCES "public"."model_export"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_move" ADD CONSTRAINT "rollout_move_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "rollout_workspace" ON "rollout" USING btree ("workspace_id","created_at","id");--> statement-breakpoint
CREATE INDEX "rollout_live" ON "rollout" USING btree ("workspace_id","created_at") WHERE state IN ('rolling', 'paused', 'completed');--> statement-breakpoint
CREATE INDEX "rollout_device_device" ON "rollout_device" USING btree ("device_id");--> statement-breakpoint
CREATE INDEX "rollout_hold_model" ON "rollout_hold" USING btree ("model_id");--> statement-breakpoint
CREATE INDEX "rollout_hold_export" ON "rollout_hold" USING btree ("export_id");--> statement-breakpoint
CREATE INDEX "rollout_move_rollout" ON "rollout_move" USING btree ("rollout_id","id");