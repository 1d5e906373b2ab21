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
CREATE TABLE "backfill" (
	"id" uuid PRIMARY KEY NOT NULL,
	"job" text NOT NULL,
	"first" date NOT NULL,
	"last" date NOT NULL,
	"idempotency_key" text,
	"created_at" timestamp(3) with time zone NOT NULL,
	"launched_by" text,
	"canceled_at" timestamp(3) with time zone,
	"canceled_by" text,
	CONSTRAINT "backfill_idempotency_key_unique" UNIQUE("idempotency_key")
);
--> statement-breakpoint
CREATE TABLE "ended_session" (
	"id" uuid PRIMARY KEY NOT NULL,
	"ended_at" timestamp(3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "feed_archive" (
	"id" integer PRIMARY KEY NOT NULL,
	"object_key" text NOT NULL,
	"rows" integer NOT NULL,
	"libraries" text[] NOT NULL,
	"as_of_max" timestamp(3) with time zone NOT NULL,
	"xact" "xid8" NOT NULL,
	"series_id" integer NOT NULL,
	"seq" bigint NOT NULL,
	"bytes" integer NOT NULL,
	"sha256" "bytea" NOT NULL,
	CONSTRAINT "feed_archive_object_key_unique" UNIQUE("object_key")
);
--> statement-breakpoint
CREATE TABLE "housekeeping" (
	"chore" text PRIMARY KEY NOT NULL,
	"last_at" timestamp(3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "ingest_memo" (
	"series_id" integer NOT NULL,
	"partition" text NOT NULL,
	"payload_sha256" "bytea" NOT NULL,
	"seq" bigint NOT NULL,
	CONSTRAINT "ingest_memo_series_id_partition_pk" PRIMARY KEY("series_id","partition")
);
--> statement-breakpoint
CREATE TABLE "instrument" (
	"id" text PRIMARY KEY NOT NULL,
	"series_id" integer NOT NULL,
	"valid_max" timestamp(3) with time zone NOT NULL,
	"retired_at" timestamp(3) with time zone,
	"retired_by" text
);
--> statement-breakpoint
CREATE TABLE "run" (
	"id" uuid PRIMARY KEY NOT NULL,
	"job" text NOT NULL,
	"partition" date NOT NULL,
	"trigger" text NOT NULL,
	"scheduled_at" timestamp(3) with time zone,
	"backfill_id" uuid,
	"launched_by" text,
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
	"covered_from" timestamp(3) with time zone,
	"covered_to" timestamp(3) with time zone,
	"revised" jsonb,
	CONSTRAINT "run_finished" CHECK ((state IN ('queued', 'running')) = (finished_at IS NULL)),
	CONSTRAINT "run_leased" CHECK ((state = 'running') = (lease_until IS NOT NULL))
);
--> statement-breakpoint
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
CREATE TABLE "schedule" (
	"name" text PRIMARY KEY NOT NULL,
	"enabled" boolean DEFAULT true NOT NULL,
	"last_tick" timestamp(3) with time zone NOT NULL,
	"switched_by" text,
	"switched_at" timestamp(3) with time zone
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
	"index" jsonb NOT NULL,
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
	"pending_vintages" integer DEFAULT 0 NOT NULL,
	"pending_rows" bigint DEFAULT 0 NOT NULL,
	"pending_objects" integer DEFAULT 0 NOT NULL,
	"compacted_at" timestamp(3) with time zone,
	"compaction_tried_at" timestamp(3) with time zone,
	"archived_seq" bigint DEFAULT 0 NOT NULL,
	CONSTRAINT "series_library_symbol" UNIQUE("library","symbol")
);
--> statement-breakpoint
CREATE TABLE "snapshot" (
	"name" text PRIMARY KEY NOT NULL,
	"as_of" timestamp(3) with time zone NOT NULL,
	"note" text NOT NULL,
	"created_at" timestamp(3) with time zone NOT NULL
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
	"xact" "xid8" DEFAULT pg_current_xact_id() NOT NULL,
	CONSTRAINT "vintage_series_id_seq_pk" PRIMARY KEY("series_id","seq"),
	CONSTRAINT "vintage_changes" CHECK (inserted + revised + retracted > 0)
);
--> statement-breakpoint
CREATE TABLE "vintage_archive" (
	"object_key" text PRIMARY KEY NOT NULL,
	"series_id" integer NOT NULL,
	"seq_min" bigint NOT NULL,
	"seq_max" bigint NOT NULL,
	"as_of_min" timestamp(3) with time zone NOT NULL,
	"as_of_max" timestamp(3) with time zone NOT NULL,
	"valid_min" timestamp(3) with time zone NOT NULL,
	"valid_max" timestamp(3) with time zone NOT NULL,
	"versions" bigint NOT NULL,
	"published_at" timestamp(3) with time zone,
	"published_url" text,
	"bytes" integer NOT NULL,
	"sha256" "bytea" NOT NULL,
	CONSTRAINT "vintage_archive_series" UNIQUE("series_id","seq_max")
);
--> statement-breakpoint
CREATE TABLE "wrong_token" (
	"bucket" integer PRIMARY KEY NOT NULL,
	"attempts" integer NOT NULL,
	"window_ends_at" timestamp(3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "bucket_identity" (
	"only" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"id" uuid NOT NULL,
	"adopted_at" timestamp(3) with time zone DEFAULT now() NOT NULL,
	"is_in_bucket" boolean DEFAULT false NOT NULL,
	CONSTRAINT "bucket_identity_only" CHECK ("bucket_identity"."only")
);
--> statement-breakpoint
CREATE TABLE "discarded_object" (
	"key" text PRIMARY KEY NOT NULL,
	"discarded_at" timestamp(3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "ingest_memo" ADD CONSTRAINT "ingest_memo_series_id_series_id_fk" FOREIGN KEY ("series_id") REFERENCES "public"."series"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "instrument" ADD CONSTRAINT "instrument_series_id_series_id_fk" FOREIGN KEY ("series_id") REFERENCES "public"."series"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "run" ADD CONSTRAINT "run_backfill_id_backfill_id_fk" FOREIGN KEY ("backfill_id") REFERENCES "public"."backfill"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "run_event" ADD CONSTRAINT "run_event_run_id_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."run"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "segment" ADD CONSTRAINT "segment_series_id_series_id_fk" FOREIGN KEY ("series_id") REFERENCES "public"."series"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "vintage" ADD CONSTRAINT "vintage_series_id_series_id_fk" FOREIGN KEY ("series_id") REFERENCES "public"."series"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "vintage_archive" ADD CONSTRAINT "vintage_archive_series_id_series_id_fk" FOREIGN KEY ("series_id") REFERENCES "public"."series"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "alert_open" ON "alert" USING btree ("job","subject") WHERE ended_at IS NULL;--> statement-breakpoint
CREATE INDEX "alert_newest" ON "alert" USING btree ("created_at","id");--> statement-breakpoint
CREATE INDEX "alert_due" ON "alert" USING btree ("next_at") WHERE delivery = 'pending';--> statement-breakpoint
CREATE INDEX "feed_archive_position" ON "feed_archive" USING btree ("xact","series_id","seq");--> statement-breakpoint
CREATE INDEX "feed_archive_newest" ON "feed_archive" USING btree ("as_of_max");--> statement-breakpoint
CREATE INDEX "instrument_series" ON "instrument" USING btree ("series_id");--> statement-breakpoint
CREATE INDEX "run_open" ON "run" USING btree ("state","available_at") WHERE state IN ('queued', 'running');--> statement-breakpoint
CREATE INDEX "run_newest" ON "run" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "run_backfill" ON "run" USING btree ("backfill_id");--> statement-breakpoint
CREATE INDEX "run_partition" ON "run" USING btree ("job","partition");--> statement-breakpoint
CREATE INDEX "run_job_newest" ON "run" USING btree ("job","created_at");--> statement-breakpoint
CREATE INDEX "run_ended" ON "run" USING btree ("finished_at") WHERE finished_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "run_succeeded" ON "run" USING btree ("job","finished_at") WHERE state = 'succeeded';--> statement-breakpoint
CREATE INDEX "run_event_run" ON "run_event" USING btree ("run_id","id");--> statement-breakpoint
CREATE INDEX "run_event_at" ON "run_event" USING btree ("at");--> statement-breakpoint
CREATE INDEX "segment_live" ON "segment" USING btree ("series_id","valid_max") WHERE retired_at IS NULL;--> statement-breakpoint
CREATE INDEX "series_pending" ON "series" USING btree ("id") WHERE pending_vintages > 0;--> statement-breakpoint
CREATE INDEX "series_sandbox" ON "series" USING btree ("id") WHERE sandbox;--> statement-breakpoint
CREATE INDEX "vintage_as_of" ON "vintage" USING btree ("series_id","as_of");--> statement-breakpoint
CREATE INDEX "vintage_newest" ON "vintage" USING btree ("as_of");--> statement-breakpoint
CREATE INDEX "vintage_run" ON "vintage" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "vintage_xact" ON "vintage" USING btree ("xact","series_id","seq");--> statement-breakpoint
CREATE INDEX "vintage_published" ON "vintage" USING btree ("series_id","source_published_at") WHERE source_published_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "vintage_inline" ON "vintage" USING btree ("series_id","valid_max") WHERE inline IS NOT NULL;--> statement-breakpoint
CREATE INDEX "discarded_object_due" ON "discarded_object" USING btree ("discarded_at");
--> statement-breakpoint
-- A vintage is deleted only once an archived object holds it, whoever asks.
CREATE FUNCTION "keep_vintage"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM public.vintage_archive
     WHERE series_id = OLD.series_id AND seq_max >= OLD.seq AND seq_min <= OLD.seq
  ) THEN
    RAISE EXCEPTION 'vintage % of series % is not archived', OLD.seq, OLD.series_id
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
--> statement-breakpoint
CREATE TRIGGER "keep_vintage" BEFORE DELETE ON "vintage" FOR EACH ROW EXECUTE FUNCTION "keep_vintage"();
