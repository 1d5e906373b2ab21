CREATE TABLE "instrument" (
	"id" text PRIMARY KEY NOT NULL,
	"series_id" integer NOT NULL,
	"valid_max" timestamp(3) with time zone NOT NULL,
	"retired_at" timestamp(3) with time zone,
	"retired_by" text
);
--> statement-breakpoint
ALTER TABLE "instrument" ADD CONSTRAINT "instrument_series_id_series_id_fk" FOREIGN KEY ("series_id") REFERENCES "public"."series"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "instrument_series" ON "instrument" USING btree ("series_id");