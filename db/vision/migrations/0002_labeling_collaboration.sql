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
ALTER TABLE "annotation_comment" ADD CONSTRAINT "annotation_comment_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "frame_assignment" ADD CONSTRAINT "frame_assignment_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "annotation_comment_job" ON "annotation_comment" USING btree ("job_id","created_at","id");