ALTER TABLE "annotation" ADD COLUMN "found_by" text;--> statement-breakpoint
ALTER TABLE "job_video" ADD COLUMN "searched" boolean DEFAULT true NOT NULL;