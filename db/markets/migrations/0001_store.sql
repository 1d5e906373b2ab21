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
CREATE TABLE "snapshot" (
	"name" text PRIMARY KEY NOT NULL,
	"as_of" timestamp(3) with time zone NOT NULL,
	"note" text NOT NULL,
	"created_at" timestamp(3) with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "series" ADD COLUMN "pending_vintages" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "series" ADD COLUMN "pending_rows" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "series" ADD COLUMN "pending_objects" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "series" ADD COLUMN "compacted_at" timestamp(3) with time zone;--> statement-breakpoint
ALTER TABLE "vintage" ADD COLUMN "xact" "xid8" DEFAULT pg_current_xact_id() NOT NULL;--> statement-breakpoint
ALTER TABLE "ingest_memo" ADD CONSTRAINT "ingest_memo_series_id_series_id_fk" FOREIGN KEY ("series_id") REFERENCES "public"."series"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "series_pending" ON "series" USING btree ("id") WHERE pending_vintages > 0;--> statement-breakpoint
CREATE INDEX "vintage_xact" ON "vintage" USING btree ("xact","series_id","seq");