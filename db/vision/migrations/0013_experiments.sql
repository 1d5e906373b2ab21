CREATE TABLE "experiment" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"hypothesis" text DEFAULT '' NOT NULL,
	"source" text NOT NULL,
	"endpoint_id" uuid,
	"slug" text,
	"job_id" uuid,
	"baseline_model_id" uuid NOT NULL,
	"candidate_model_id" uuid NOT NULL,
	"metric" text NOT NULL,
	"rules" jsonb NOT NULL,
	"plan" jsonb NOT NULL,
	"state" text DEFAULT 'running' NOT NULL,
	"reason" text,
	"mark" jsonb,
	"counted" jsonb,
	"results" jsonb NOT NULL,
	"revision" integer DEFAULT 1 NOT NULL,
	"promotion" jsonb,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"looked_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "experiment_source" CHECK ((source = 'reviewed') = (job_id IS NOT NULL)),
	CONSTRAINT "experiment_endpoint" CHECK ((endpoint_id IS NULL) = (job_id IS NOT NULL)),
	CONSTRAINT "experiment_ended" CHECK ((state IN ('running', 'paused')) = (ended_at IS NULL)),
	CONSTRAINT "experiment_reason" CHECK ((state = 'running') = (reason IS NULL))
);
--> statement-breakpoint
CREATE TABLE "experiment_frame" (
	"number" bigserial PRIMARY KEY NOT NULL,
	"experiment_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"baseline_score" double precision,
	"candidate_score" double precision,
	"baseline_failed" boolean DEFAULT false NOT NULL,
	"candidate_failed" boolean DEFAULT false NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"scored_at" timestamp (3) with time zone,
	CONSTRAINT "experiment_frame_once" UNIQUE("experiment_id","video_id","frame_index")
);
--> statement-breakpoint
ALTER TABLE "experiment" ADD CONSTRAINT "experiment_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "experiment_frame" ADD CONSTRAINT "experiment_frame_experiment_id_experiment_id_fk" FOREIGN KEY ("experiment_id") REFERENCES "public"."experiment"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "experiment_workspace" ON "experiment" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "experiment_live" ON "experiment" USING btree ("looked_at") WHERE state IN ('running', 'paused');--> statement-breakpoint
CREATE INDEX "experiment_frame_scored" ON "experiment_frame" USING btree ("experiment_id","scored_at","number");