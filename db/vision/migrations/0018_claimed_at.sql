ALTER TABLE "task" ADD COLUMN "step_seconds" real[] DEFAULT '{}' NOT NULL;--> statement-breakpoint
ALTER TABLE "task" ADD COLUMN "claimed_at" timestamp (3) with time zone;