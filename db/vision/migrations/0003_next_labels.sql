CREATE TABLE "frame_tag" (
	"workspace_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"key" text NOT NULL,
	"tag" text NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "frame_tag_video_id_frame_index_key_pk" PRIMARY KEY("video_id","frame_index","key")
);
--> statement-breakpoint
CREATE TABLE "job_side" (
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"side" text NOT NULL,
	CONSTRAINT "job_side_job_id_video_id_frame_index_pk" PRIMARY KEY("job_id","video_id","frame_index"),
	CONSTRAINT "job_side_side" CHECK (side IN ('train', 'val', 'test'))
);
--> statement-breakpoint
CREATE TABLE "frame_embedding" (
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"segmenter" text NOT NULL,
	"vector" "bytea" NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "frame_embedding_video_id_segmenter_frame_index_pk" PRIMARY KEY("video_id","segmenter","frame_index")
);
--> statement-breakpoint
CREATE TABLE "suggestion" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"state" text DEFAULT 'running' NOT NULL,
	"failure" text,
	"budget" integer NOT NULL,
	"model_id" uuid,
	"segmenter" text NOT NULL,
	"unlabeled" integer NOT NULL,
	"candidates" integer NOT NULL,
	"labeled" integer NOT NULL,
	"unreadable" integer DEFAULT 0 NOT NULL,
	"planned" boolean DEFAULT false NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "suggestion_failure" CHECK ((state = 'failed') = (failure IS NOT NULL))
);
--> statement-breakpoint
CREATE TABLE "suggestion_frame" (
	"suggestion_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"position" integer NOT NULL,
	"labeled" boolean NOT NULL,
	"embed" boolean NOT NULL,
	"done" boolean DEFAULT false NOT NULL,
	"entropies" jsonb,
	"rank" integer,
	"uncertainty" real,
	"distance" real,
	CONSTRAINT "suggestion_frame_suggestion_id_video_id_frame_index_pk" PRIMARY KEY("suggestion_id","video_id","frame_index")
);
--> statement-breakpoint
DROP INDEX "task_annotated";--> statement-breakpoint
ALTER TABLE "dataset_export" ALTER COLUMN "job_id" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "dataset_export" ADD COLUMN "dataset_version_id" uuid;--> statement-breakpoint
ALTER TABLE "model" ADD COLUMN "test_metrics" jsonb;--> statement-breakpoint
ALTER TABLE "training_run" ADD COLUMN "test_metrics" jsonb;--> statement-breakpoint
ALTER TABLE "frame_tag" ADD CONSTRAINT "frame_tag_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "frame_tag" ADD CONSTRAINT "frame_tag_video_id_video_id_fk" FOREIGN KEY ("video_id") REFERENCES "public"."video"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job_side" ADD CONSTRAINT "job_side_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "frame_embedding" ADD CONSTRAINT "frame_embedding_video_id_video_id_fk" FOREIGN KEY ("video_id") REFERENCES "public"."video"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "suggestion" ADD CONSTRAINT "suggestion_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "suggestion" ADD CONSTRAINT "suggestion_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "suggestion_frame" ADD CONSTRAINT "suggestion_frame_suggestion_id_suggestion_id_fk" FOREIGN KEY ("suggestion_id") REFERENCES "public"."suggestion"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "frame_tag_key" ON "frame_tag" USING btree ("workspace_id","key","video_id","frame_index");--> statement-breakpoint
CREATE INDEX "suggestion_project" ON "suggestion" USING btree ("project_id","created_at");--> statement-breakpoint
ALTER TABLE "dataset_export" ADD CONSTRAINT "dataset_export_dataset_version_id_dataset_version_id_fk" FOREIGN KEY ("dataset_version_id") REFERENCES "public"."dataset_version"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "dataset_export_version" ON "dataset_export" USING btree ("dataset_version_id","created_at");--> statement-breakpoint
CREATE INDEX "job_video_video" ON "job_video" USING btree ("video_id");--> statement-breakpoint
CREATE INDEX "task_annotated" ON "task" USING btree ("workspace_id") WHERE state = 'finished' AND payload ? 'annotated';--> statement-breakpoint
ALTER TABLE "dataset_export" ADD CONSTRAINT "dataset_export_source" CHECK ((job_id IS NULL) <> (dataset_version_id IS NULL));