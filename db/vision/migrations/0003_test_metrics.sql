ALTER TABLE "model" ADD COLUMN "test_metrics" jsonb;--> statement-breakpoint
ALTER TABLE "training_run" ADD COLUMN "test_metrics" jsonb;