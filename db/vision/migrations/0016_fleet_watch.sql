CREATE TABLE "fleet_watch" (
	"id" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"since" timestamp (3) with time zone NOT NULL,
	"seen_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "fleet_watch_one" CHECK (id)
);
