CREATE TABLE "backfill" (
	"id" uuid PRIMARY KEY NOT NULL,
	"job" text NOT NULL,
	"first" date NOT NULL,
	"last" date NOT NULL,
	"idempotency_key" text,
	"created_at" timestamp(3) with time zone NOT NULL,
	CONSTRAINT "backfill_idempotency_key_unique" UNIQUE("idempotency_key")
);
--> statement-breakpoint
CREATE TABLE "run" (
	"id" uuid PRIMARY KEY NOT NULL,
	"job" text NOT NULL,
	"partition" date NOT NULL,
	"trigger" text NOT NULL,
	"backfill_id" uuid,
	"reconstructed" boolean NOT NULL,
	"state" text NOT NULL,
	"attempt" integer DEFAULT 0 NOT NULL,
	"attempts_max" integer NOT NULL,
	"created_at" timestamp(3) with time zone NOT NULL,
	"available_at" timestamp(3) with time zone NOT NULL,
	"lease_until" timestamp(3) with time zone,
	"started_at" timestamp(3) with time zone,
	"finished_at" timestamp(3) with time zone,
	"error_code" text,
	"error_detail" text,
	"metadata" jsonb,
	CONSTRAINT "run_finished" CHECK ((state IN ('succeeded', 'failed')) = (finished_at IS NOT NULL)),
	CONSTRAINT "run_leased" CHECK ((state = 'running') = (lease_until IS NOT NULL))
);
--> statement-breakpoint
CREATE TABLE "schedule" (
	"name" text PRIMARY KEY NOT NULL,
	"enabled" boolean DEFAULT true NOT NULL,
	"last_tick" timestamp(3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "segment" (
	"object_key" text PRIMARY KEY NOT NULL,
	"series_id" integer NOT NULL,
	"level" smallint NOT NULL,
	"seq_min" bigint NOT NULL,
	"seq_max" bigint NOT NULL,
	"valid_min" timestamp(3) with time zone NOT NULL,
	"valid_max" timestamp(3) with time zone NOT NULL,
	"rows" integer NOT NULL,
	"bytes" integer NOT NULL,
	"sha256" "bytea" NOT NULL,
	"retired_at" timestamp(3) with time zone
);
--> statement-breakpoint
CREATE TABLE "series" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "series_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"library" text NOT NULL,
	"symbol" text NOT NULL,
	"value_columns" text[] NOT NULL,
	"sandbox" boolean NOT NULL,
	"head_seq" bigint NOT NULL,
	"head_as_of" timestamp(3) with time zone NOT NULL,
	"generation" bigint DEFAULT 0 NOT NULL,
	"valid_max" timestamp(3) with time zone NOT NULL,
	CONSTRAINT "series_library_symbol" UNIQUE("library","symbol")
);
--> statement-breakpoint
CREATE TABLE "tick" (
	"schedule" text NOT NULL,
	"scheduled_at" timestamp(3) with time zone NOT NULL,
	"run_id" uuid,
	"skip_reason" text,
	CONSTRAINT "tick_schedule_scheduled_at_pk" PRIMARY KEY("schedule","scheduled_at"),
	CONSTRAINT "tick_outcome" CHECK ((run_id IS NULL) <> (skip_reason IS NULL))
);
--> statement-breakpoint
CREATE TABLE "vintage" (
	"series_id" integer NOT NULL,
	"seq" bigint NOT NULL,
	"as_of" timestamp(3) with time zone NOT NULL,
	"reconstructed" boolean NOT NULL,
	"run_id" text NOT NULL,
	"partition" text NOT NULL,
	"source_url" text NOT NULL,
	"source_published_at" timestamp(3) with time zone,
	"covered_from" timestamp(3) with time zone NOT NULL,
	"covered_to" timestamp(3) with time zone NOT NULL,
	"valid_min" timestamp(3) with time zone NOT NULL,
	"valid_max" timestamp(3) with time zone NOT NULL,
	"inserted" integer NOT NULL,
	"revised" integer NOT NULL,
	"retracted" integer NOT NULL,
	"live_rows" bigint NOT NULL,
	"content_sha256" "bytea" NOT NULL,
	"inline" jsonb,
	CONSTRAINT "vintage_series_id_seq_pk" PRIMARY KEY("series_id","seq"),
	CONSTRAINT "vintage_changes" CHECK (inserted + revised + retracted > 0)
);
--> statement-breakpoint
ALTER TABLE "run" ADD CONSTRAINT "run_backfill_id_backfill_id_fk" FOREIGN KEY ("backfill_id") REFERENCES "public"."backfill"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "segment" ADD CONSTRAINT "segment_series_id_series_id_fk" FOREIGN KEY ("series_id") REFERENCES "public"."series"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "vintage" ADD CONSTRAINT "vintage_series_id_series_id_fk" FOREIGN KEY ("series_id") REFERENCES "public"."series"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "run_open" ON "run" USING btree ("state","available_at") WHERE state IN ('queued', 'running');--> statement-breakpoint
CREATE INDEX "run_newest" ON "run" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "run_backfill" ON "run" USING btree ("backfill_id");--> statement-breakpoint
CREATE INDEX "segment_live" ON "segment" USING btree ("series_id","valid_max") WHERE retired_at IS NULL;--> statement-breakpoint
CREATE INDEX "vintage_as_of" ON "vintage" USING btree ("series_id","as_of");--> statement-breakpoint
CREATE INDEX "vintage_newest" ON "vintage" USING btree ("as_of");--> statement-breakpoint
CREATE INDEX "vintage_run" ON "vintage" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "vintage_inline" ON "vintage" USING btree ("series_id","valid_max") WHERE inline IS NOT NULL;