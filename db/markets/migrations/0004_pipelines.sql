CREATE TABLE "run_event" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "run_event_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"run_id" uuid NOT NULL,
	"attempt" integer NOT NULL,
	"at" timestamp(3) with time zone NOT NULL,
	"level" text NOT NULL,
	"event" text NOT NULL,
	"detail" jsonb NOT NULL
);
--> statement-breakpoint
ALTER TABLE "run" DROP CONSTRAINT "run_finished";--> statement-breakpoint
ALTER TABLE "backfill" ADD COLUMN "canceled_at" timestamp(3) with time zone;--> statement-breakpoint
ALTER TABLE "run" ADD COLUMN "scheduled_at" timestamp(3) with time zone;--> statement-breakpoint
ALTER TABLE "run" ADD COLUMN "covered_from" timestamp(3) with time zone;--> statement-breakpoint
ALTER TABLE "run" ADD COLUMN "covered_to" timestamp(3) with time zone;--> statement-breakpoint
ALTER TABLE "run" ADD COLUMN "revised" jsonb;--> statement-breakpoint
ALTER TABLE "run_event" ADD CONSTRAINT "run_event_run_id_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."run"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "run_event_run" ON "run_event" USING btree ("run_id","id");--> statement-breakpoint
CREATE INDEX "run_event_at" ON "run_event" USING btree ("at");--> statement-breakpoint
CREATE INDEX "run_partition" ON "run" USING btree ("job","partition");--> statement-breakpoint
ALTER TABLE "run" ADD CONSTRAINT "run_finished" CHECK ((state IN ('queued', 'running')) = (finished_at IS NULL));