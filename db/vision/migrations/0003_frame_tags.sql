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
ALTER TABLE "frame_tag" ADD CONSTRAINT "frame_tag_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "frame_tag" ADD CONSTRAINT "frame_tag_video_id_video_id_fk" FOREIGN KEY ("video_id") REFERENCES "public"."video"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "frame_tag_key" ON "frame_tag" USING btree ("workspace_id","key","video_id","frame_index");--> statement-breakpoint
CREATE INDEX "job_video_video" ON "job_video" USING btree ("video_id");