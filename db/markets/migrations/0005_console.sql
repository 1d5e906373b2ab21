CREATE TABLE "wrong_token" (
	"bucket" integer PRIMARY KEY NOT NULL,
	"attempts" integer NOT NULL,
	"window_ends_at" timestamp(3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE INDEX "run_job_newest" ON "run" USING btree ("job","created_at");