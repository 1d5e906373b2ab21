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
ALTER TABLE "series" ADD COLUMN "archived_seq" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "vintage_archive" ADD CONSTRAINT "vintage_archive_series_id_series_id_fk" FOREIGN KEY ("series_id") REFERENCES "public"."series"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "feed_archive_position" ON "feed_archive" USING btree ("xact","series_id","seq");--> statement-breakpoint
CREATE INDEX "feed_archive_newest" ON "feed_archive" USING btree ("as_of_max");