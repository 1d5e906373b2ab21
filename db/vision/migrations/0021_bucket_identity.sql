CREATE TABLE "bucket_identity" (
	"only" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"id" uuid NOT NULL,
	"adopted_at" timestamp(3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "bucket_identity_only" CHECK ("bucket_identity"."only")
);
--> statement-breakpoint
CREATE TABLE "discarded_object" (
	"key" text PRIMARY KEY NOT NULL,
	"discarded_at" timestamp(3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE INDEX "discarded_object_due" ON "discarded_object" USING btree ("discarded_at");