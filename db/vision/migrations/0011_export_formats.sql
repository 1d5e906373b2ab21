ALTER TABLE "model_export" ADD COLUMN "artifact" text DEFAULT 'file' NOT NULL;--> statement-breakpoint
ALTER TABLE "model_export" ADD COLUMN "precision" text DEFAULT 'fp32' NOT NULL;--> statement-breakpoint
ALTER TABLE "model_export" ADD COLUMN "recommended_confidence" double precision;--> statement-breakpoint
ALTER TABLE "model_export" ADD COLUMN "calibration_images" integer;--> statement-breakpoint
ALTER TABLE "model_export" ADD COLUMN "calibration" jsonb;--> statement-breakpoint
ALTER TABLE "model_export" ADD COLUMN "not_verified" text[] DEFAULT '{}' NOT NULL;