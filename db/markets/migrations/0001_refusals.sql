CREATE TABLE "refusal" (
	"id" uuid PRIMARY KEY NOT NULL,
	"series_id" integer NOT NULL,
	"job" text NOT NULL,
	"run_id" uuid NOT NULL,
	"partition" date NOT NULL,
	"reconstructed" boolean NOT NULL,
	"stored" integer NOT NULL,
	"inserted" integer NOT NULL,
	"revised" integer NOT NULL,
	"withdrawn" integer NOT NULL,
	"changes" jsonb NOT NULL,
	"refused_at" timestamp(3) with time zone NOT NULL,
	"accepted_at" timestamp(3) with time zone,
	"accepted_by" text,
	"ended_at" timestamp(3) with time zone
);
--> statement-breakpoint
ALTER TABLE "refusal" ADD CONSTRAINT "refusal_series_id_series_id_fk" FOREIGN KEY ("series_id") REFERENCES "public"."series"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "refusal" ADD CONSTRAINT "refusal_run_id_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."run"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "refusal_open" ON "refusal" USING btree ("job","series_id") WHERE ended_at IS NULL;--> statement-breakpoint
CREATE INDEX "refusal_newest" ON "refusal" USING btree ("refused_at");--> statement-breakpoint
CREATE INDEX "refusal_run" ON "refusal" USING btree ("run_id");