CREATE TABLE "frame_review" (
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"reviewed_by" uuid,
	"reviewed_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "frame_review_job_id_video_id_frame_index_pk" PRIMARY KEY("job_id","video_id","frame_index")
);
--> statement-breakpoint
ALTER TABLE "annotation" ADD COLUMN "keyframe" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "frame_review" ADD CONSTRAINT "frame_review_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "annotation_confidence" ON "annotation" USING btree ("job_id","confidence","id");--> statement-breakpoint
CREATE INDEX "annotation_track" ON "annotation" USING btree ("job_id","video_id","track_id","frame_index") WHERE track_id IS NOT NULL;