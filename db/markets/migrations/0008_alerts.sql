CREATE TABLE "alert" (
	"id" uuid PRIMARY KEY NOT NULL,
	"kind" text NOT NULL,
	"incident_id" uuid NOT NULL,
	"job" text NOT NULL,
	"subject" text NOT NULL,
	"run_id" uuid,
	"error_code" text,
	"detail" text NOT NULL,
	"created_at" timestamp(3) with time zone NOT NULL,
	"ended_at" timestamp(3) with time zone,
	"delivery" text NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"next_at" timestamp(3) with time zone NOT NULL,
	"delivered_at" timestamp(3) with time zone,
	"last_error" text,
	CONSTRAINT "alert_cause" UNIQUE("job","subject","run_id"),
	CONSTRAINT "alert_begins" CHECK ((kind IN ('recovered', 'test')) <= (ended_at IS NOT NULL))
);
--> statement-breakpoint
ALTER TABLE "backfill" ADD COLUMN "launched_by" text;--> statement-breakpoint
ALTER TABLE "backfill" ADD COLUMN "canceled_by" text;--> statement-breakpoint
ALTER TABLE "run" ADD COLUMN "launched_by" text;--> statement-breakpoint
ALTER TABLE "schedule" ADD COLUMN "switched_by" text;--> statement-breakpoint
ALTER TABLE "schedule" ADD COLUMN "switched_at" timestamp(3) with time zone;--> statement-breakpoint
CREATE UNIQUE INDEX "alert_open" ON "alert" USING btree ("job","subject") WHERE ended_at IS NULL;--> statement-breakpoint
CREATE INDEX "alert_newest" ON "alert" USING btree ("created_at","id");--> statement-breakpoint
CREATE INDEX "alert_due" ON "alert" USING btree ("next_at") WHERE delivery = 'pending';--> statement-breakpoint
CREATE INDEX "run_ended" ON "run" USING btree ("finished_at") WHERE finished_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "run_succeeded" ON "run" USING btree ("job","finished_at") WHERE state = 'succeeded';