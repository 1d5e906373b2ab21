CREATE TABLE "ended_session" (
	"id" uuid PRIMARY KEY NOT NULL,
	"ended_at" timestamp(3) with time zone DEFAULT now() NOT NULL
);
