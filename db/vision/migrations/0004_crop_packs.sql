CREATE TABLE "crop_pack" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"key" text NOT NULL,
	"from_frame" integer NOT NULL,
	"to_frame" integer NOT NULL,
	"entries" integer NOT NULL,
	"bytes" integer NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "crop_pack_key_unique" UNIQUE("key")
);
--> statement-breakpoint
ALTER TABLE "crop_pack" ADD CONSTRAINT "crop_pack_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "crop_pack" ADD CONSTRAINT "crop_pack_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "crop_pack_frames" ON "crop_pack" USING btree ("job_id","video_id","from_frame","to_frame");