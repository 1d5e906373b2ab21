CREATE TABLE "device" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"group_name" text,
	"tags" text[] DEFAULT '{}' NOT NULL,
	"project_id" uuid,
	"interval_seconds" integer DEFAULT 60 NOT NULL,
	"platform" text,
	"runtime" text,
	"enrolled_at" timestamp (3) with time zone,
	"revoked_at" timestamp (3) with time zone,
	"deleted_at" timestamp (3) with time zone,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "device_alert" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"device_id" uuid NOT NULL,
	"kind" text NOT NULL,
	"value" real,
	"raised_at" timestamp (3) with time zone NOT NULL,
	"recovered_at" timestamp (3) with time zone,
	CONSTRAINT "device_alert_kind" CHECK (kind IN ('lost', 'hot', 'low_battery'))
);
--> statement-breakpoint
CREATE TABLE "device_beat" (
	"device_id" uuid NOT NULL,
	"at" timestamp (3) with time zone NOT NULL,
	"battery" real,
	"temperature" real,
	"uptime_seconds" double precision,
	"free_bytes" bigint,
	"inference_rate" real,
	CONSTRAINT "device_beat_device_id_at_pk" PRIMARY KEY("device_id","at")
);
--> statement-breakpoint
CREATE TABLE "device_boot" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"device_id" uuid NOT NULL,
	"boot_id" text NOT NULL,
	"received" "int8multirange" DEFAULT '{}' NOT NULL,
	"dropped" bigint DEFAULT 0 NOT NULL,
	"lines" bigint DEFAULT 0 NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"seen_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "device_code" (
	"hash" "bytea" PRIMARY KEY NOT NULL,
	"device_id" uuid NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"used_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "device_image" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"device_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"landed" boolean DEFAULT false NOT NULL,
	"boot_id" text NOT NULL,
	"seq" bigint NOT NULL,
	"hash" bit(64),
	"sha256" "bytea" NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "device_log" (
	"boot" bigint NOT NULL,
	"seq" bigint NOT NULL,
	"device_id" uuid NOT NULL,
	"time" timestamp (3) with time zone NOT NULL,
	"received_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"kind" text NOT NULL,
	"model_id" uuid,
	"latency_ms" real,
	"confidence" real,
	"line" jsonb NOT NULL,
	CONSTRAINT "device_log_boot_seq_pk" PRIMARY KEY("boot","seq")
);
--> statement-breakpoint
CREATE TABLE "device_mean" (
	"device_id" uuid NOT NULL,
	"at" timestamp (3) with time zone NOT NULL,
	"beats" integer NOT NULL,
	"battery" real,
	"temperature" real,
	"uptime_seconds" double precision,
	"free_bytes" double precision,
	"inference_rate" real,
	CONSTRAINT "device_mean_device_id_at_pk" PRIMARY KEY("device_id","at")
);
--> statement-breakpoint
CREATE TABLE "device_notice" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"alert_id" uuid NOT NULL,
	"kind" text NOT NULL,
	"delivery" text NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"next_at" timestamp (3) with time zone NOT NULL,
	"last_error" text,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "device_notice_kind" CHECK (kind IN ('raised', 'recovered'))
);
--> statement-breakpoint
CREATE TABLE "device_state" (
	"device_id" uuid PRIMARY KEY NOT NULL,
	"beat_at" timestamp (3) with time zone NOT NULL,
	"battery" real,
	"temperature" real,
	"uptime_seconds" double precision,
	"free_bytes" bigint,
	"inference_rate" real,
	"agent_version" text,
	"boot_id" text,
	"clock_skew_seconds" double precision,
	"model" jsonb,
	"extra" jsonb DEFAULT '{}'::jsonb NOT NULL
);
--> statement-breakpoint
CREATE TABLE "device_token" (
	"hash" "bytea" PRIMARY KEY NOT NULL,
	"device_id" uuid NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"used_at" timestamp (3) with time zone,
	"expires_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "fleet_setting" (
	"workspace_id" uuid PRIMARY KEY NOT NULL,
	"hot_celsius" real,
	"low_battery" real,
	"webhook" text,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "target" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"config" jsonb NOT NULL,
	"credential" text,
	"enabled" boolean DEFAULT true NOT NULL,
	"state" text DEFAULT 'unknown' NOT NULL,
	"since" timestamp (3) with time zone,
	"problem" text,
	"latency_ms" double precision,
	"checked_at" timestamp (3) with time zone,
	"next_check_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"failures" integer DEFAULT 0 NOT NULL,
	"revision" integer DEFAULT 1 NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "target_state" CHECK (state IN ('unknown', 'up', 'down'))
);
--> statement-breakpoint
CREATE TABLE "target_check" (
	"target_id" uuid NOT NULL,
	"at" timestamp (3) with time zone NOT NULL,
	"up" boolean NOT NULL,
	"latency_ms" double precision,
	"problem" text,
	CONSTRAINT "target_check_target_id_at_pk" PRIMARY KEY("target_id","at")
);
--> statement-breakpoint
ALTER TABLE "device" ADD CONSTRAINT "device_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device" ADD CONSTRAINT "device_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_alert" ADD CONSTRAINT "device_alert_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_alert" ADD CONSTRAINT "device_alert_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_beat" ADD CONSTRAINT "device_beat_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_boot" ADD CONSTRAINT "device_boot_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_code" ADD CONSTRAINT "device_code_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_image" ADD CONSTRAINT "device_image_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_image" ADD CONSTRAINT "device_image_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_image" ADD CONSTRAINT "device_image_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_log" ADD CONSTRAINT "device_log_boot_device_boot_id_fk" FOREIGN KEY ("boot") REFERENCES "public"."device_boot"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_mean" ADD CONSTRAINT "device_mean_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_notice" ADD CONSTRAINT "device_notice_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_notice" ADD CONSTRAINT "device_notice_alert_id_device_alert_id_fk" FOREIGN KEY ("alert_id") REFERENCES "public"."device_alert"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_state" ADD CONSTRAINT "device_state_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_token" ADD CONSTRAINT "device_token_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "fleet_setting" ADD CONSTRAINT "fleet_setting_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "target" ADD CONSTRAINT "target_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "target_check" ADD CONSTRAINT "target_check_target_id_target_id_fk" FOREIGN KEY ("target_id") REFERENCES "public"."target"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "device_workspace" ON "device" USING btree ("workspace_id","created_at","id");--> statement-breakpoint
CREATE INDEX "device_deleted" ON "device" USING btree ("deleted_at") WHERE deleted_at IS NOT NULL;--> statement-breakpoint
CREATE UNIQUE INDEX "device_alert_open" ON "device_alert" USING btree ("device_id","kind") WHERE recovered_at IS NULL;--> statement-breakpoint
CREATE INDEX "device_alert_workspace" ON "device_alert" USING btree ("workspace_id","raised_at");--> statement-breakpoint
CREATE INDEX "device_beat_at" ON "device_beat" USING btree ("at");--> statement-breakpoint
CREATE UNIQUE INDEX "device_boot_device" ON "device_boot" USING btree ("device_id","boot_id");--> statement-breakpoint
CREATE INDEX "device_code_device" ON "device_code" USING btree ("device_id");--> statement-breakpoint
CREATE UNIQUE INDEX "device_image_line" ON "device_image" USING btree ("device_id","boot_id","seq");--> statement-breakpoint
CREATE INDEX "device_image_project" ON "device_image" USING btree ("project_id","created_at");--> statement-breakpoint
CREATE INDEX "device_log_time" ON "device_log" USING btree ("device_id","time","boot","seq");--> statement-breakpoint
CREATE INDEX "device_log_received" ON "device_log" USING btree ("received_at");--> statement-breakpoint
CREATE INDEX "device_mean_at" ON "device_mean" USING btree ("at");--> statement-breakpoint
CREATE INDEX "device_notice_due" ON "device_notice" USING btree ("next_at") WHERE delivery = 'pending';--> statement-breakpoint
CREATE INDEX "device_notice_alert" ON "device_notice" USING btree ("alert_id");--> statement-breakpoint
CREATE INDEX "device_token_device" ON "device_token" USING btree ("device_id");--> statement-breakpoint
CREATE INDEX "target_workspace" ON "target" USING btree ("workspace_id","name");--> statement-breakpoint
CREATE INDEX "target_due" ON "target" USING btree ("next_check_at") WHERE enabled;--> statement-breakpoint
CREATE INDEX "target_check_at" ON "target_check" USING btree ("at");--> statement-breakpoint
-- Every heartbeat writes its row over: room on the page lets it do so without touching the index.
ALTER TABLE "device_state" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
