CREATE TABLE "job_side" (
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"side" text NOT NULL,
	CONSTRAINT "job_side_job_id_video_id_frame_index_pk" PRIMARY KEY("job_id","video_id","frame_index"),
	CONSTRAINT "job_side_side" CHECK (side IN ('train', 'val', 'test'))
);
--> statement-breakpoint
ALTER TABLE "dataset_export" ALTER COLUMN "job_id" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "dataset_export" ADD COLUMN "dataset_version_id" uuid;--> statement-breakpoint
ALTER TABLE "model" ADD COLUMN "test_metrics" jsonb;--> statement-breakpoint
ALTER TABLE "training_run" ADD COLUMN "test_metrics" jsonb;--> statement-breakpoint
ALTER TABLE "job_side" ADD CONSTRAINT "job_side_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_export" ADD CONSTRAINT "dataset_export_dataset_version_id_dataset_version_id_fk" FOREIGN KEY ("dataset_version_id") REFERENCES "public"."dataset_version"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "dataset_export_version" ON "dataset_export" USING btree ("dataset_version_id","created_at");--> statement-breakpoint
ALTER TABLE "dataset_export" ADD CONSTRAINT "dataset_export_source" CHECK ((job_id IS NULL) <> (dataset_version_id IS NULL));