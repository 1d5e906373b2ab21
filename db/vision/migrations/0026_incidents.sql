CREATE TABLE "endpoint_faults" (
	"endpoint_id" uuid PRIMARY KEY NOT NULL,
	"requests" integer NOT NULL,
	"faults" integer NOT NULL,
	"at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "database_backup" (
	"id" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"made_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "database_backup_one" CHECK (id)
);
--> statement-breakpoint
CREATE TABLE "duty_failure" (
	"duty" text PRIMARY KEY NOT NULL,
	"failures" integer NOT NULL,
	"minute" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "incident" (
	"id" uuid PRIMARY KEY NOT NULL,
	"kind" text NOT NULL,
	"subject" text NOT NULL,
	"detail" text NOT NULL,
	"raised_at" timestamp (3) with time zone NOT NULL,
	"recovered_at" timestamp (3) with time zone,
	CONSTRAINT "incident_kind" CHECK (kind IN ('node_lost', 'queue_stalled', 'duty_failed', 'backup_missing',
        'endpoint_errors'))
);
--> statement-breakpoint
CREATE TABLE "incident_notice" (
	"id" uuid PRIMARY KEY NOT NULL,
	"incident_id" uuid NOT NULL,
	"kind" text NOT NULL,
	"delivery" text NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"next_at" timestamp (3) with time zone NOT NULL,
	"last_error" text,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "incident_notice_kind" CHECK (kind IN ('raised', 'recovered'))
);
--> statement-breakpoint
ALTER TABLE "endpoint_faults" ADD CONSTRAINT "endpoint_faults_endpoint_id_endpoint_id_fk" FOREIGN KEY ("endpoint_id") REFERENCES "public"."endpoint"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "incident_notice" ADD CONSTRAINT "incident_notice_incident_id_incident_id_fk" FOREIGN KEY ("incident_id") REFERENCES "public"."incident"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "incident_open" ON "incident" USING btree ("kind","subject") WHERE recovered_at IS NULL;--> statement-breakpoint
CREATE INDEX "incident_raised" ON "incident" USING btree ("raised_at");--> statement-breakpoint
CREATE INDEX "incident_recovered" ON "incident" USING btree ("recovered_at") WHERE recovered_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "incident_notice_due" ON "incident_notice" USING btree ("next_at") WHERE delivery = 'pending';--> statement-breakpoint
CREATE INDEX "incident_notice_incident" ON "incident_notice" USING btree ("incident_id");--> statement-breakpoint
CREATE INDEX "task_claimed" ON "task" USING btree ("kind","claimed_at") WHERE claimed_at IS NOT NULL;