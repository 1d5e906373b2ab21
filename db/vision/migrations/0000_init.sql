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
CREATE TABLE "account" (
	"id" uuid PRIMARY KEY NOT NULL,
	"email" text NOT NULL,
	"display_name" text NOT NULL,
	"password_hash" text NOT NULL,
	"session_version" integer DEFAULT 1 NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "account_email_unique" UNIQUE("email")
);
--> statement-breakpoint
CREATE TABLE "idempotent_answer" (
	"workspace_id" uuid NOT NULL,
	"key" text NOT NULL,
	"route" text NOT NULL,
	"body_sha256" "bytea" NOT NULL,
	"status" smallint NOT NULL,
	"body" jsonb NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "idempotent_answer_workspace_id_route_key_pk" PRIMARY KEY("workspace_id","route","key")
);
--> statement-breakpoint
CREATE TABLE "invitation" (
	"id" uuid PRIMARY KEY NOT NULL,
	"hash" "bytea" NOT NULL,
	"workspace_id" uuid NOT NULL,
	"role" text NOT NULL,
	"email" text,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"used_at" timestamp (3) with time zone,
	"used_by" uuid,
	"revoked_at" timestamp (3) with time zone,
	CONSTRAINT "invitation_hash_unique" UNIQUE("hash"),
	CONSTRAINT "invitation_role" CHECK (role IN ('viewer', 'annotator', 'engineer', 'admin'))
);
--> statement-breakpoint
CREATE TABLE "membership" (
	"workspace_id" uuid NOT NULL,
	"account_id" uuid NOT NULL,
	"role" text NOT NULL,
	CONSTRAINT "membership_workspace_id_account_id_pk" PRIMARY KEY("workspace_id","account_id"),
	CONSTRAINT "membership_role" CHECK (role IN ('viewer', 'annotator', 'engineer', 'admin'))
);
--> statement-breakpoint
CREATE TABLE "node" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid,
	"name" text NOT NULL,
	"token_hash" "bytea" NOT NULL,
	"capabilities" jsonb NOT NULL,
	"last_heartbeat_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"draining" boolean DEFAULT false NOT NULL,
	"revoked_at" timestamp (3) with time zone,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "node_token_hash_unique" UNIQUE("token_hash")
);
--> statement-breakpoint
CREATE TABLE "node_code" (
	"hash" "bytea" PRIMARY KEY NOT NULL,
	"workspace_id" uuid,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"used_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "project" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"description" text DEFAULT '' NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "refresh_token" (
	"hash" "bytea" PRIMARY KEY NOT NULL,
	"family" uuid NOT NULL,
	"account_id" uuid NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"used_at" timestamp (3) with time zone,
	"revoked_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "task" (
	"id" uuid PRIMARY KEY NOT NULL,
	"place" bigserial NOT NULL,
	"kind" text NOT NULL,
	"workspace_id" uuid NOT NULL,
	"subject" text NOT NULL,
	"payload" jsonb NOT NULL,
	"priority" smallint DEFAULT 0 NOT NULL,
	"state" text DEFAULT 'queued' NOT NULL,
	"attempt" integer DEFAULT 0 NOT NULL,
	"attempts_max" integer DEFAULT 3 NOT NULL,
	"fence" bigint DEFAULT 0 NOT NULL,
	"node_id" uuid,
	"lease_until" timestamp (3) with time zone,
	"available_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"cancel_requested_at" timestamp (3) with time zone,
	"revoke_requested_at" timestamp (3) with time zone,
	"progress" jsonb,
	"progress_at" timestamp (3) with time zone,
	"step_seconds" real[] DEFAULT '{}' NOT NULL,
	"errors" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"result" jsonb,
	"frames_done" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"idempotency_key" text,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"started_at" timestamp (3) with time zone,
	"claimed_at" timestamp (3) with time zone,
	"ended_at" timestamp (3) with time zone,
	"settled_at" timestamp (3) with time zone,
	CONSTRAINT "task_idempotency_key_unique" UNIQUE("idempotency_key"),
	CONSTRAINT "task_ended" CHECK ((state IN ('queued', 'running')) = (ended_at IS NULL)),
	CONSTRAINT "task_running" CHECK ((state = 'running') = (lease_until IS NOT NULL))
);
--> statement-breakpoint
CREATE TABLE "throttle" (
	"key" text PRIMARY KEY NOT NULL,
	"attempts" integer NOT NULL,
	"window_ends_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "upload" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"filename" text NOT NULL,
	"storage_key" text NOT NULL,
	"multipart_id" text NOT NULL,
	"bytes" bigint NOT NULL,
	"part_bytes" integer NOT NULL,
	"parts" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"video_id" uuid,
	"aborted_at" timestamp (3) with time zone,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "video" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"filename" text NOT NULL,
	"storage_key" text NOT NULL,
	"source" text NOT NULL,
	"state" text DEFAULT 'probing' NOT NULL,
	"failure" text,
	"bytes" bigint NOT NULL,
	"content_type" text NOT NULL,
	"width" integer,
	"height" integer,
	"fps" double precision,
	"duration_seconds" double precision,
	"frame_count" integer,
	"time_base" integer[],
	"pts_key" text,
	"thumbnail_key" text,
	"probe" jsonb,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "video_failure" CHECK ((state = 'failed') = (failure IS NOT NULL)),
	CONSTRAINT "video_ready" CHECK (state <> 'ready' OR frame_count IS NOT NULL)
);
--> statement-breakpoint
CREATE TABLE "workspace" (
	"id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"is_default" boolean DEFAULT false NOT NULL,
	"made_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "annotation" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"class_number" integer NOT NULL,
	"x1" real NOT NULL,
	"y1" real NOT NULL,
	"x2" real NOT NULL,
	"y2" real NOT NULL,
	"confidence" real,
	"review" text DEFAULT 'pending' NOT NULL,
	"source" text NOT NULL,
	"keyframe" boolean DEFAULT false NOT NULL,
	"track_id" integer,
	"duplicate_of" uuid,
	"repeats_to" real,
	"polygon" jsonb,
	"revision" integer DEFAULT 1 NOT NULL,
	"updated_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "annotation_box" CHECK (x2 > x1 AND y2 > y1)
);
--> statement-breakpoint
CREATE TABLE "annotation_count" (
	"job_id" uuid NOT NULL,
	"class_number" integer NOT NULL,
	"review" text NOT NULL,
	"source" text NOT NULL,
	"shown" boolean NOT NULL,
	"repeated" boolean NOT NULL,
	"bin" smallint NOT NULL,
	"annotations" integer NOT NULL,
	CONSTRAINT "annotation_count_pk" PRIMARY KEY("job_id","class_number","review","source","shown","repeated","bin")
);
--> statement-breakpoint
CREATE TABLE "area_count" (
	"job_id" uuid NOT NULL,
	"review" text NOT NULL,
	"repeated" boolean NOT NULL,
	"bin" smallint NOT NULL,
	"annotations" integer NOT NULL,
	CONSTRAINT "area_count_job_id_review_repeated_bin_pk" PRIMARY KEY("job_id","review","repeated","bin")
);
--> statement-breakpoint
CREATE TABLE "change" (
	"id" uuid PRIMARY KEY NOT NULL,
	"job_id" uuid NOT NULL,
	"actor_id" uuid,
	"kind" text NOT NULL,
	"summary" jsonb NOT NULL,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"undoing_at" timestamp (3) with time zone,
	"undone_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "change_item" (
	"change_id" uuid NOT NULL,
	"annotation_id" uuid NOT NULL,
	"before" jsonb,
	"after" jsonb,
	CONSTRAINT "change_item_change_id_annotation_id_pk" PRIMARY KEY("change_id","annotation_id")
);
--> statement-breakpoint
CREATE TABLE "dataset_export" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"job_id" uuid NOT NULL,
	"format" text NOT NULL,
	"state" text DEFAULT 'queued' NOT NULL,
	"failure" text,
	"options" jsonb NOT NULL,
	"storage_key" text NOT NULL,
	"bytes" bigint,
	"summary" jsonb,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "frame_count" (
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"stored" integer NOT NULL,
	"pending" integer NOT NULL,
	"accepted" integer NOT NULL,
	"rejected" integer NOT NULL,
	"repeated" integer NOT NULL,
	"classes" integer[] NOT NULL,
	CONSTRAINT "frame_count_job_id_video_id_frame_index_pk" PRIMARY KEY("job_id","video_id","frame_index")
);
--> statement-breakpoint
CREATE TABLE "frame_review" (
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"reviewed_by" uuid,
	"reviewed_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "frame_review_job_id_video_id_frame_index_pk" PRIMARY KEY("job_id","video_id","frame_index")
);
--> statement-breakpoint
CREATE TABLE "job" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"name" text NOT NULL,
	"description" text DEFAULT '' NOT NULL,
	"kind" text NOT NULL,
	"state" text DEFAULT 'queued' NOT NULL,
	"failure" text,
	"threshold" real NOT NULL,
	"resolution" integer,
	"fps" double precision,
	"settings" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"frames_total" integer DEFAULT 0 NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"started_at" timestamp (3) with time zone,
	"ended_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "job_class" (
	"job_id" uuid NOT NULL,
	"number" integer NOT NULL,
	"name" text NOT NULL,
	"prompt" text,
	CONSTRAINT "job_class_job_id_number_pk" PRIMARY KEY("job_id","number"),
	CONSTRAINT "job_class_name" UNIQUE("job_id","name")
);
--> statement-breakpoint
CREATE TABLE "job_video" (
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"position" integer NOT NULL,
	"frames" integer[] NOT NULL,
	CONSTRAINT "job_video_job_id_video_id_pk" PRIMARY KEY("job_id","video_id")
);
--> statement-breakpoint
CREATE TABLE "model" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid,
	"run_id" uuid,
	"round" integer,
	"name" text NOT NULL,
	"version" integer NOT NULL,
	"variant" text NOT NULL,
	"task" text NOT NULL,
	"classes" text[] NOT NULL,
	"image_size" integer NOT NULL,
	"parameters" bigint NOT NULL,
	"storage_key" text NOT NULL,
	"bytes" bigint NOT NULL,
	"sha256" text NOT NULL,
	"metrics" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"confidence_bins" jsonb,
	"active" boolean DEFAULT false NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "model_of_round" UNIQUE("run_id","round"),
	CONSTRAINT "model_version" UNIQUE("workspace_id","name","version")
);
--> statement-breakpoint
CREATE TABLE "model_alias" (
	"workspace_id" uuid NOT NULL,
	"alias" text NOT NULL,
	"model_id" uuid NOT NULL,
	CONSTRAINT "model_alias_workspace_id_alias_pk" PRIMARY KEY("workspace_id","alias"),
	CONSTRAINT "model_alias_name" CHECK (alias IN ('production', 'staging', 'canary'))
);
--> statement-breakpoint
CREATE TABLE "model_export" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"model_id" uuid NOT NULL,
	"fingerprint" text NOT NULL,
	"format" text NOT NULL,
	"artifact" text NOT NULL,
	"precision" text NOT NULL,
	"output" text NOT NULL,
	"height" integer NOT NULL,
	"width" integer NOT NULL,
	"batch" integer,
	"state" text DEFAULT 'queued' NOT NULL,
	"failure" text,
	"round" integer DEFAULT 1 NOT NULL,
	"bytes_expected" bigint NOT NULL,
	"storage_key" text,
	"bytes" bigint,
	"sha256" text,
	"opset" integer,
	"verification" jsonb,
	"recommended_confidence" double precision,
	"calibration_images" integer,
	"calibration" jsonb,
	"not_verified" text[] DEFAULT '{}' NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "model_export_once" UNIQUE("model_id","fingerprint"),
	CONSTRAINT "model_export_failure" CHECK ((state = 'failed') = (failure IS NOT NULL)),
	CONSTRAINT "model_export_file" CHECK ((state = 'completed') = (storage_key IS NOT NULL))
);
--> statement-breakpoint
CREATE TABLE "model_move" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"from_model_id" uuid,
	"to_model_id" uuid,
	"rollback_of" bigint,
	"actor_id" uuid,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "training_epoch" (
	"run_id" uuid NOT NULL,
	"epoch" integer NOT NULL,
	"record" jsonb NOT NULL,
	CONSTRAINT "training_epoch_run_id_epoch_pk" PRIMARY KEY("run_id","epoch")
);
--> statement-breakpoint
CREATE TABLE "training_run" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"job_id" uuid,
	"name" text NOT NULL,
	"notes" text DEFAULT '' NOT NULL,
	"state" text DEFAULT 'queued' NOT NULL,
	"failure" text,
	"settings" jsonb NOT NULL,
	"resolved" jsonb,
	"classes" text[] DEFAULT '{}' NOT NULL,
	"dataset" jsonb NOT NULL,
	"round" integer DEFAULT 1 NOT NULL,
	"checkpoint" jsonb,
	"live" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"best_metrics" jsonb,
	"best_epoch" integer,
	"artifacts" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"stop_requested_at" timestamp (3) with time zone,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"started_at" timestamp (3) with time zone,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "training_run_failure" CHECK ((state = 'failed') = (failure IS NOT NULL)),
	CONSTRAINT "training_run_ended" CHECK ((state IN ('queued', 'running')) = (ended_at IS NULL))
);
--> statement-breakpoint
CREATE TABLE "weights_file" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"dataset" text DEFAULT '' NOT NULL,
	"format" text NOT NULL,
	"storage_key" text NOT NULL,
	"bytes" bigint NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "endpoint" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"slug" text NOT NULL,
	"settings" jsonb NOT NULL,
	"revision" integer DEFAULT 1 NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"deleted_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "endpoint_faults" (
	"endpoint_id" uuid PRIMARY KEY NOT NULL,
	"requests" integer NOT NULL,
	"faults" integer NOT NULL,
	"at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "endpoint_key" (
	"id" uuid PRIMARY KEY NOT NULL,
	"endpoint_id" uuid NOT NULL,
	"name" text NOT NULL,
	"prefix" text NOT NULL,
	"hash" "bytea" NOT NULL,
	"requests_per_minute" integer,
	"burst" integer,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"revoked_at" timestamp (3) with time zone,
	CONSTRAINT "endpoint_key_hash_unique" UNIQUE("hash"),
	CONSTRAINT "endpoint_key_limit" CHECK ((requests_per_minute IS NULL) = (burst IS NULL))
);
--> statement-breakpoint
CREATE TABLE "endpoint_model" (
	"endpoint_id" uuid NOT NULL,
	"model_id" uuid NOT NULL,
	CONSTRAINT "endpoint_model_endpoint_id_model_id_pk" PRIMARY KEY("endpoint_id","model_id")
);
--> statement-breakpoint
CREATE TABLE "endpoint_move" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"endpoint_id" uuid NOT NULL,
	"slug" text NOT NULL,
	"kind" text NOT NULL,
	"before" jsonb,
	"after" jsonb,
	"rollback_of" bigint,
	"actor_id" uuid,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "endpoint_move_kind" CHECK (kind IN ('create', 'change', 'rollback', 'delete'))
);
--> statement-breakpoint
CREATE TABLE "comparison" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"settings" jsonb NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "comparison_session" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"comparison_id" uuid,
	"settings" jsonb NOT NULL,
	"models" jsonb NOT NULL,
	"input" jsonb NOT NULL,
	"state" text DEFAULT 'queued' NOT NULL,
	"failure" text,
	"outcome" jsonb,
	"report_key" text,
	"overlay_keys" text[],
	"bytes" bigint,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	"forgotten_at" timestamp (3) with time zone,
	CONSTRAINT "comparison_session_failure" CHECK ((state = 'failed') = (failure IS NOT NULL)),
	CONSTRAINT "comparison_session_report" CHECK ((state = 'completed') = (report_key IS NOT NULL))
);
--> statement-breakpoint
CREATE TABLE "experiment" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"hypothesis" text DEFAULT '' NOT NULL,
	"source" text NOT NULL,
	"endpoint_id" uuid,
	"slug" text,
	"job_id" uuid,
	"baseline_model_id" uuid NOT NULL,
	"candidate_model_id" uuid NOT NULL,
	"metric" text NOT NULL,
	"rules" jsonb NOT NULL,
	"plan" jsonb NOT NULL,
	"state" text DEFAULT 'running' NOT NULL,
	"reason" text,
	"mark" jsonb,
	"counted" jsonb,
	"results" jsonb NOT NULL,
	"revision" integer DEFAULT 1 NOT NULL,
	"promotion" jsonb,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"looked_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "experiment_source" CHECK ((source = 'reviewed') = (job_id IS NOT NULL)),
	CONSTRAINT "experiment_endpoint" CHECK ((endpoint_id IS NULL) = (job_id IS NOT NULL)),
	CONSTRAINT "experiment_ended" CHECK ((state IN ('running', 'paused')) = (ended_at IS NULL)),
	CONSTRAINT "experiment_reason" CHECK ((state = 'running') = (reason IS NULL))
);
--> statement-breakpoint
CREATE TABLE "experiment_frame" (
	"number" bigserial PRIMARY KEY NOT NULL,
	"experiment_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"frame_index" integer NOT NULL,
	"baseline_score" double precision,
	"candidate_score" double precision,
	"baseline_failed" boolean DEFAULT false NOT NULL,
	"candidate_failed" boolean DEFAULT false NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"scored_at" timestamp (3) with time zone,
	CONSTRAINT "experiment_frame_once" UNIQUE("experiment_id","video_id","frame_index")
);
--> statement-breakpoint
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
	"bytes" bigint DEFAULT 0 NOT NULL,
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
	"bytes" integer DEFAULT 0 NOT NULL,
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
CREATE TABLE "fleet_watch" (
	"id" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"since" timestamp (3) with time zone NOT NULL,
	"seen_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "fleet_watch_one" CHECK (id)
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
CREATE TABLE "device_desired" (
	"device_id" uuid PRIMARY KEY NOT NULL,
	"rollout_id" uuid,
	"version" bigserial NOT NULL,
	"confirmed" boolean DEFAULT false NOT NULL,
	"former_id" uuid,
	"set_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "rollout" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"group_name" text,
	"tags" text[] DEFAULT '{}' NOT NULL,
	"model_id" uuid NOT NULL,
	"export_id" uuid NOT NULL,
	"file" jsonb NOT NULL,
	"storage_key" text NOT NULL,
	"gates" jsonb NOT NULL,
	"confirm" jsonb NOT NULL,
	"confidence" double precision NOT NULL,
	"min_agent" text NOT NULL,
	"stages" double precision[] NOT NULL,
	"stage" integer DEFAULT 0 NOT NULL,
	"stage_since" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"state" text DEFAULT 'rolling' NOT NULL,
	"reason" text,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "rollout_state" CHECK (state IN ('rolling', 'paused', 'completed', 'superseded', 'rolled_back', 'aborted')),
	CONSTRAINT "rollout_stage" CHECK (stage >= 0 AND stage < cardinality(stages))
);
--> statement-breakpoint
CREATE TABLE "rollout_device" (
	"rollout_id" uuid NOT NULL,
	"device_id" uuid NOT NULL,
	"bucket" integer NOT NULL,
	"version" bigint NOT NULL,
	"former_id" uuid,
	"state" text DEFAULT 'pending' NOT NULL,
	"failure" text,
	"crashes" integer DEFAULT 0 NOT NULL,
	"inferences" bigint DEFAULT 0 NOT NULL,
	"inference_failures" bigint DEFAULT 0 NOT NULL,
	"latency_ms" double precision,
	"scores" bigint[],
	"assigned_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"reported_at" timestamp (3) with time zone,
	CONSTRAINT "rollout_device_rollout_id_device_id_pk" PRIMARY KEY("rollout_id","device_id"),
	CONSTRAINT "rollout_device_state" CHECK (state IN ('pending', 'downloading', 'verifying', 'staged', 'active', 'confirmed',
        'rolled_back', 'failed'))
);
--> statement-breakpoint
CREATE TABLE "rollout_hold" (
	"rollout_id" uuid PRIMARY KEY NOT NULL,
	"model_id" uuid NOT NULL,
	"export_id" uuid NOT NULL
);
--> statement-breakpoint
CREATE TABLE "rollout_move" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"rollout_id" uuid NOT NULL,
	"kind" text NOT NULL,
	"stage" integer NOT NULL,
	"reason" text,
	"figures" jsonb,
	"actor_id" uuid,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "workflow" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"slug" text NOT NULL,
	"name" text NOT NULL,
	"description" text DEFAULT '' NOT NULL,
	"version" integer DEFAULT 1 NOT NULL,
	"deployment_id" uuid,
	"revision" integer DEFAULT 1 NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"deleted_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "workflow_delivery" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"workflow_id" uuid,
	"run_id" uuid NOT NULL,
	"step" text NOT NULL,
	"element" text NOT NULL,
	"request" jsonb,
	"delivery" text NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"next_at" timestamp (3) with time zone NOT NULL,
	"last_error" text,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "workflow_delivery_kind" CHECK (delivery IN ('pending', 'delivered', 'given_up')),
	CONSTRAINT "workflow_delivery_over" CHECK ((delivery = 'pending') = (request IS NOT NULL))
);
--> statement-breakpoint
CREATE TABLE "workflow_deployment" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workflow_id" uuid NOT NULL,
	"version_id" uuid NOT NULL,
	"version" integer NOT NULL,
	"definition" jsonb NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "workflow_move" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"workflow_id" uuid NOT NULL,
	"slug" text NOT NULL,
	"kind" text NOT NULL,
	"before_id" uuid,
	"after_id" uuid,
	"rollback_of" bigint,
	"actor_id" uuid,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "workflow_move_kind" CHECK (kind IN ('deploy', 'rollback', 'delete'))
);
--> statement-breakpoint
CREATE TABLE "workflow_secret" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"name" text NOT NULL,
	"sealed" text NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "workflow_stream" (
	"version_id" uuid NOT NULL,
	"stream" text NOT NULL,
	"workflow_id" uuid NOT NULL,
	"revision" integer DEFAULT 1 NOT NULL,
	"state" jsonb NOT NULL,
	"used_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "workflow_stream_version_id_stream_pk" PRIMARY KEY("version_id","stream")
);
--> statement-breakpoint
CREATE TABLE "workflow_use" (
	"version_id" uuid NOT NULL,
	"hour" timestamp (3) with time zone NOT NULL,
	"bucket" smallint NOT NULL,
	"runs" bigint NOT NULL,
	"failures" bigint NOT NULL,
	"dry_runs" bigint NOT NULL,
	CONSTRAINT "workflow_use_version_id_hour_bucket_pk" PRIMARY KEY("version_id","hour","bucket")
);
--> statement-breakpoint
CREATE TABLE "workflow_version" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workflow_id" uuid NOT NULL,
	"version" integer NOT NULL,
	"definition" jsonb NOT NULL,
	"created_by" uuid,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "audit_entry" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"actor_id" uuid,
	"actor_kind" text NOT NULL,
	"action" text NOT NULL,
	"subject" text NOT NULL,
	"workspace_id" uuid,
	"before" jsonb,
	"after" jsonb,
	"request_id" text,
	CONSTRAINT "audit_entry_actor_kind" CHECK (actor_kind IN ('member', 'operator', 'service'))
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
ALTER TABLE "idempotent_answer" ADD CONSTRAINT "idempotent_answer_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invitation" ADD CONSTRAINT "invitation_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invitation" ADD CONSTRAINT "invitation_created_by_account_id_fk" FOREIGN KEY ("created_by") REFERENCES "public"."account"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invitation" ADD CONSTRAINT "invitation_used_by_account_id_fk" FOREIGN KEY ("used_by") REFERENCES "public"."account"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "membership" ADD CONSTRAINT "membership_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "membership" ADD CONSTRAINT "membership_account_id_account_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."account"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "node" ADD CONSTRAINT "node_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "node_code" ADD CONSTRAINT "node_code_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project" ADD CONSTRAINT "project_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "refresh_token" ADD CONSTRAINT "refresh_token_account_id_account_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."account"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "task" ADD CONSTRAINT "task_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "task" ADD CONSTRAINT "task_node_id_node_id_fk" FOREIGN KEY ("node_id") REFERENCES "public"."node"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "upload" ADD CONSTRAINT "upload_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "upload" ADD CONSTRAINT "upload_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "upload" ADD CONSTRAINT "upload_video_id_video_id_fk" FOREIGN KEY ("video_id") REFERENCES "public"."video"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "video" ADD CONSTRAINT "video_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "video" ADD CONSTRAINT "video_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workspace" ADD CONSTRAINT "workspace_made_by_account_id_fk" FOREIGN KEY ("made_by") REFERENCES "public"."account"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "annotation" ADD CONSTRAINT "annotation_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "annotation" ADD CONSTRAINT "annotation_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "annotation" ADD CONSTRAINT "annotation_of_class" FOREIGN KEY ("job_id","class_number") REFERENCES "public"."job_class"("job_id","number") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "annotation_count" ADD CONSTRAINT "annotation_count_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "area_count" ADD CONSTRAINT "area_count_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "change" ADD CONSTRAINT "change_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "change_item" ADD CONSTRAINT "change_item_change_id_change_id_fk" FOREIGN KEY ("change_id") REFERENCES "public"."change"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_export" ADD CONSTRAINT "dataset_export_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "dataset_export" ADD CONSTRAINT "dataset_export_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "frame_count" ADD CONSTRAINT "frame_count_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "frame_review" ADD CONSTRAINT "frame_review_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job" ADD CONSTRAINT "job_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job" ADD CONSTRAINT "job_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job_class" ADD CONSTRAINT "job_class_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job_video" ADD CONSTRAINT "job_video_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job_video" ADD CONSTRAINT "job_video_video_id_video_id_fk" FOREIGN KEY ("video_id") REFERENCES "public"."video"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model" ADD CONSTRAINT "model_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model" ADD CONSTRAINT "model_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model" ADD CONSTRAINT "model_run_id_training_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."training_run"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model_alias" ADD CONSTRAINT "model_alias_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model_alias" ADD CONSTRAINT "model_alias_model_id_model_id_fk" FOREIGN KEY ("model_id") REFERENCES "public"."model"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model_export" ADD CONSTRAINT "model_export_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model_export" ADD CONSTRAINT "model_export_model_id_model_id_fk" FOREIGN KEY ("model_id") REFERENCES "public"."model"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "model_move" ADD CONSTRAINT "model_move_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "training_epoch" ADD CONSTRAINT "training_epoch_run_id_training_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."training_run"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "training_run" ADD CONSTRAINT "training_run_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "training_run" ADD CONSTRAINT "training_run_project_id_project_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."project"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "training_run" ADD CONSTRAINT "training_run_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "weights_file" ADD CONSTRAINT "weights_file_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "endpoint" ADD CONSTRAINT "endpoint_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "endpoint_faults" ADD CONSTRAINT "endpoint_faults_endpoint_id_endpoint_id_fk" FOREIGN KEY ("endpoint_id") REFERENCES "public"."endpoint"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "endpoint_key" ADD CONSTRAINT "endpoint_key_endpoint_id_endpoint_id_fk" FOREIGN KEY ("endpoint_id") REFERENCES "public"."endpoint"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "endpoint_model" ADD CONSTRAINT "endpoint_model_endpoint_id_endpoint_id_fk" FOREIGN KEY ("endpoint_id") REFERENCES "public"."endpoint"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "endpoint_model" ADD CONSTRAINT "endpoint_model_model_id_model_id_fk" FOREIGN KEY ("model_id") REFERENCES "public"."model"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "endpoint_move" ADD CONSTRAINT "endpoint_move_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "comparison" ADD CONSTRAINT "comparison_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "comparison_session" ADD CONSTRAINT "comparison_session_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "experiment" ADD CONSTRAINT "experiment_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "experiment_frame" ADD CONSTRAINT "experiment_frame_experiment_id_experiment_id_fk" FOREIGN KEY ("experiment_id") REFERENCES "public"."experiment"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
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
ALTER TABLE "device_desired" ADD CONSTRAINT "device_desired_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device_desired" ADD CONSTRAINT "device_desired_rollout_id_rollout_id_fk" FOREIGN KEY ("rollout_id") REFERENCES "public"."rollout"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout" ADD CONSTRAINT "rollout_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_device" ADD CONSTRAINT "rollout_device_rollout_id_rollout_id_fk" FOREIGN KEY ("rollout_id") REFERENCES "public"."rollout"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_device" ADD CONSTRAINT "rollout_device_device_id_device_id_fk" FOREIGN KEY ("device_id") REFERENCES "public"."device"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_hold" ADD CONSTRAINT "rollout_hold_rollout_id_rollout_id_fk" FOREIGN KEY ("rollout_id") REFERENCES "public"."rollout"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_hold" ADD CONSTRAINT "rollout_hold_model_id_model_id_fk" FOREIGN KEY ("model_id") REFERENCES "public"."model"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_hold" ADD CONSTRAINT "rollout_hold_export_id_model_export_id_fk" FOREIGN KEY ("export_id") REFERENCES "public"."model_export"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "rollout_move" ADD CONSTRAINT "rollout_move_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workflow" ADD CONSTRAINT "workflow_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workflow_delivery" ADD CONSTRAINT "workflow_delivery_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workflow_deployment" ADD CONSTRAINT "workflow_deployment_workflow_id_workflow_id_fk" FOREIGN KEY ("workflow_id") REFERENCES "public"."workflow"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workflow_deployment" ADD CONSTRAINT "workflow_deployment_version_id_workflow_version_id_fk" FOREIGN KEY ("version_id") REFERENCES "public"."workflow_version"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workflow_move" ADD CONSTRAINT "workflow_move_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workflow_secret" ADD CONSTRAINT "workflow_secret_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workflow_stream" ADD CONSTRAINT "workflow_stream_version_id_workflow_version_id_fk" FOREIGN KEY ("version_id") REFERENCES "public"."workflow_version"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workflow_stream" ADD CONSTRAINT "workflow_stream_workflow_id_workflow_id_fk" FOREIGN KEY ("workflow_id") REFERENCES "public"."workflow"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workflow_use" ADD CONSTRAINT "workflow_use_version_id_workflow_version_id_fk" FOREIGN KEY ("version_id") REFERENCES "public"."workflow_version"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workflow_version" ADD CONSTRAINT "workflow_version_workflow_id_workflow_id_fk" FOREIGN KEY ("workflow_id") REFERENCES "public"."workflow"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "incident_notice" ADD CONSTRAINT "incident_notice_incident_id_incident_id_fk" FOREIGN KEY ("incident_id") REFERENCES "public"."incident"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "discarded_object_due" ON "discarded_object" USING btree ("discarded_at");--> statement-breakpoint
CREATE INDEX "invitation_workspace" ON "invitation" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "membership_account" ON "membership" USING btree ("account_id");--> statement-breakpoint
CREATE INDEX "project_workspace" ON "project" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "refresh_token_family" ON "refresh_token" USING btree ("family");--> statement-breakpoint
CREATE INDEX "task_claim" ON "task" USING btree ("priority" DESC NULLS LAST,"available_at","place") WHERE state = 'queued';--> statement-breakpoint
CREATE INDEX "task_claim_own" ON "task" USING btree ("workspace_id","priority" DESC NULLS LAST,"available_at","place") WHERE state = 'queued';--> statement-breakpoint
CREATE INDEX "task_lease" ON "task" USING btree ("lease_until") WHERE state = 'running';--> statement-breakpoint
CREATE INDEX "task_subject" ON "task" USING btree ("subject","kind");--> statement-breakpoint
CREATE INDEX "task_claimed" ON "task" USING btree ("kind","claimed_at") WHERE claimed_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "task_unsettled" ON "task" USING btree ("ended_at") WHERE ended_at IS NOT NULL AND settled_at IS NULL;--> statement-breakpoint
CREATE INDEX "video_project" ON "video" USING btree ("project_id","created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "workspace_default" ON "workspace" USING btree ("is_default") WHERE is_default;--> statement-breakpoint
CREATE INDEX "workspace_made_by" ON "workspace" USING btree ("made_by");--> statement-breakpoint
CREATE INDEX "annotation_place" ON "annotation" USING btree ("job_id","video_id","frame_index","id");--> statement-breakpoint
CREATE INDEX "annotation_class" ON "annotation" USING btree ("job_id","class_number","review","source");--> statement-breakpoint
CREATE INDEX "annotation_confidence" ON "annotation" USING btree ("job_id","confidence","id");--> statement-breakpoint
CREATE INDEX "annotation_track" ON "annotation" USING btree ("job_id","video_id","track_id","frame_index") WHERE track_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "annotation_better" ON "annotation" USING btree ("duplicate_of") WHERE duplicate_of IS NOT NULL;--> statement-breakpoint
CREATE INDEX "change_job" ON "change" USING btree ("job_id","at");--> statement-breakpoint
CREATE INDEX "dataset_export_job" ON "dataset_export" USING btree ("job_id","created_at");--> statement-breakpoint
CREATE INDEX "job_project" ON "job" USING btree ("project_id","created_at");--> statement-breakpoint
CREATE INDEX "job_workspace" ON "job" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "model_active" ON "model" USING btree ("workspace_id") WHERE active;--> statement-breakpoint
CREATE INDEX "model_workspace" ON "model" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "model_export_workspace" ON "model_export" USING btree ("workspace_id");--> statement-breakpoint
CREATE INDEX "model_export_queued" ON "model_export" USING btree ("created_at") WHERE state = 'queued';--> statement-breakpoint
CREATE INDEX "model_move_name" ON "model_move" USING btree ("workspace_id","name","id");--> statement-breakpoint
CREATE INDEX "training_run_workspace" ON "training_run" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "training_run_job" ON "training_run" USING btree ("job_id");--> statement-breakpoint
CREATE INDEX "weights_file_workspace" ON "weights_file" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "endpoint_slug" ON "endpoint" USING btree ("workspace_id","slug") WHERE deleted_at IS NULL;--> statement-breakpoint
CREATE INDEX "endpoint_former" ON "endpoint" USING btree ("workspace_id","slug","created_at");--> statement-breakpoint
CREATE INDEX "endpoint_key_endpoint" ON "endpoint_key" USING btree ("endpoint_id","created_at");--> statement-breakpoint
CREATE INDEX "endpoint_model_model" ON "endpoint_model" USING btree ("model_id");--> statement-breakpoint
CREATE INDEX "endpoint_move_endpoint" ON "endpoint_move" USING btree ("endpoint_id","id");--> statement-breakpoint
CREATE INDEX "endpoint_move_slug" ON "endpoint_move" USING btree ("workspace_id","slug","id");--> statement-breakpoint
CREATE INDEX "comparison_workspace" ON "comparison" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "comparison_session_workspace" ON "comparison_session" USING btree ("workspace_id");--> statement-breakpoint
CREATE INDEX "comparison_session_comparison" ON "comparison_session" USING btree ("comparison_id");--> statement-breakpoint
CREATE INDEX "comparison_session_queued" ON "comparison_session" USING btree ("created_at") WHERE state = 'queued';--> statement-breakpoint
CREATE INDEX "comparison_session_ended" ON "comparison_session" USING btree ("ended_at");--> statement-breakpoint
CREATE INDEX "experiment_workspace" ON "experiment" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "experiment_live" ON "experiment" USING btree ("looked_at") WHERE state IN ('running', 'paused');--> statement-breakpoint
CREATE INDEX "experiment_frame_scored" ON "experiment_frame" USING btree ("experiment_id","scored_at","number");--> statement-breakpoint
CREATE INDEX "device_workspace" ON "device" USING btree ("workspace_id","created_at","id");--> statement-breakpoint
CREATE INDEX "device_deleted" ON "device" USING btree ("deleted_at") WHERE deleted_at IS NOT NULL;--> statement-breakpoint
CREATE UNIQUE INDEX "device_alert_open" ON "device_alert" USING btree ("device_id","kind") WHERE recovered_at IS NULL;--> statement-breakpoint
CREATE INDEX "device_alert_workspace" ON "device_alert" USING btree ("workspace_id","raised_at");--> statement-breakpoint
CREATE INDEX "device_beat_at" ON "device_beat" USING btree ("at");--> statement-breakpoint
CREATE UNIQUE INDEX "device_boot_device" ON "device_boot" USING btree ("device_id","boot_id");--> statement-breakpoint
CREATE INDEX "device_boot_lines" ON "device_boot" USING btree ("device_id") WHERE lines > 0;--> statement-breakpoint
CREATE INDEX "device_boot_empty" ON "device_boot" USING btree ("seen_at") WHERE lines = 0;--> statement-breakpoint
CREATE INDEX "device_code_device" ON "device_code" USING btree ("device_id");--> statement-breakpoint
CREATE UNIQUE INDEX "device_image_line" ON "device_image" USING btree ("device_id","boot_id","seq");--> statement-breakpoint
CREATE INDEX "device_image_project" ON "device_image" USING btree ("project_id","created_at");--> statement-breakpoint
CREATE INDEX "device_image_device" ON "device_image" USING btree ("device_id","created_at");--> statement-breakpoint
CREATE INDEX "device_log_time" ON "device_log" USING btree ("device_id","time","boot","seq");--> statement-breakpoint
CREATE INDEX "device_log_received" ON "device_log" USING btree ("received_at");--> statement-breakpoint
CREATE INDEX "device_mean_at" ON "device_mean" USING btree ("at");--> statement-breakpoint
CREATE INDEX "device_notice_due" ON "device_notice" USING btree ("next_at") WHERE delivery = 'pending';--> statement-breakpoint
CREATE INDEX "device_notice_alert" ON "device_notice" USING btree ("alert_id");--> statement-breakpoint
CREATE INDEX "device_token_device" ON "device_token" USING btree ("device_id");--> statement-breakpoint
CREATE INDEX "target_workspace" ON "target" USING btree ("workspace_id","name");--> statement-breakpoint
CREATE INDEX "target_due" ON "target" USING btree ("next_check_at") WHERE enabled;--> statement-breakpoint
CREATE INDEX "target_check_at" ON "target_check" USING btree ("at");--> statement-breakpoint
CREATE INDEX "rollout_workspace" ON "rollout" USING btree ("workspace_id","created_at","id");--> statement-breakpoint
CREATE INDEX "rollout_live" ON "rollout" USING btree ("workspace_id","created_at") WHERE state IN ('rolling', 'paused', 'completed');--> statement-breakpoint
CREATE INDEX "rollout_device_device" ON "rollout_device" USING btree ("device_id");--> statement-breakpoint
CREATE INDEX "rollout_hold_model" ON "rollout_hold" USING btree ("model_id");--> statement-breakpoint
CREATE INDEX "rollout_hold_export" ON "rollout_hold" USING btree ("export_id");--> statement-breakpoint
CREATE INDEX "rollout_move_rollout" ON "rollout_move" USING btree ("rollout_id","id");--> statement-breakpoint
CREATE UNIQUE INDEX "workflow_slug" ON "workflow" USING btree ("workspace_id","slug") WHERE deleted_at IS NULL;--> statement-breakpoint
CREATE INDEX "workflow_former" ON "workflow" USING btree ("workspace_id","slug","created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "workflow_delivery_once" ON "workflow_delivery" USING btree ("run_id","step","element");--> statement-breakpoint
CREATE INDEX "workflow_delivery_due" ON "workflow_delivery" USING btree ("next_at") WHERE delivery = 'pending';--> statement-breakpoint
CREATE INDEX "workflow_delivery_workspace" ON "workflow_delivery" USING btree ("workspace_id","created_at");--> statement-breakpoint
CREATE INDEX "workflow_delivery_created" ON "workflow_delivery" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "workflow_deployment_workflow" ON "workflow_deployment" USING btree ("workflow_id");--> statement-breakpoint
CREATE INDEX "workflow_deployment_version" ON "workflow_deployment" USING btree ("version_id");--> statement-breakpoint
CREATE INDEX "workflow_move_workflow" ON "workflow_move" USING btree ("workflow_id","id");--> statement-breakpoint
CREATE INDEX "workflow_move_slug" ON "workflow_move" USING btree ("workspace_id","slug","id");--> statement-breakpoint
CREATE UNIQUE INDEX "workflow_secret_name" ON "workflow_secret" USING btree ("workspace_id","name");--> statement-breakpoint
CREATE INDEX "workflow_stream_workflow" ON "workflow_stream" USING btree ("workflow_id","used_at");--> statement-breakpoint
CREATE INDEX "workflow_stream_used" ON "workflow_stream" USING btree ("used_at");--> statement-breakpoint
CREATE INDEX "workflow_use_hour" ON "workflow_use" USING btree ("hour");--> statement-breakpoint
CREATE UNIQUE INDEX "workflow_version_number" ON "workflow_version" USING btree ("workflow_id","version");--> statement-breakpoint
CREATE INDEX "audit_entry_at" ON "audit_entry" USING btree ("at");--> statement-breakpoint
CREATE INDEX "audit_entry_workspace" ON "audit_entry" USING btree ("workspace_id","id");--> statement-breakpoint
CREATE INDEX "audit_entry_actor" ON "audit_entry" USING btree ("actor_id","id");--> statement-breakpoint
CREATE INDEX "audit_entry_action" ON "audit_entry" USING btree ("action","id");--> statement-breakpoint
CREATE INDEX "audit_entry_subject" ON "audit_entry" USING btree ("subject","id");--> statement-breakpoint
CREATE UNIQUE INDEX "incident_open" ON "incident" USING btree ("kind","subject") WHERE recovered_at IS NULL;--> statement-breakpoint
CREATE INDEX "incident_raised" ON "incident" USING btree ("raised_at");--> statement-breakpoint
CREATE INDEX "incident_recovered" ON "incident" USING btree ("recovered_at") WHERE recovered_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "incident_notice_due" ON "incident_notice" USING btree ("next_at") WHERE delivery = 'pending';--> statement-breakpoint
CREATE INDEX "incident_notice_incident" ON "incident_notice" USING btree ("incident_id");
--> statement-breakpoint
-- What was written down stays as it is, and for 30 days at least, whoever asks.
CREATE FUNCTION "keep_audit_entry"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND OLD.at < now() - interval '30 days' THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'the audit log is not changed' USING ERRCODE = 'restrict_violation';
END $$;
--> statement-breakpoint
CREATE TRIGGER "keep_audit_entry" BEFORE UPDATE OR DELETE ON "audit_entry" FOR EACH ROW EXECUTE FUNCTION "keep_audit_entry"();--> statement-breakpoint
CREATE TRIGGER "keep_audit_log" BEFORE TRUNCATE ON "audit_entry" FOR EACH STATEMENT EXECUTE FUNCTION "keep_audit_entry"();
--> statement-breakpoint
-- The service has no right to delete entries of the audit log: only this lets go of old ones, of as
-- many as it is told, and the log's own trigger of none that is younger than 30 days.
CREATE FUNCTION "forget_audit_entries"(until timestamptz, most integer) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
  DELETE FROM audit_entry WHERE id IN (
    SELECT id FROM audit_entry WHERE at < until ORDER BY at LIMIT most);
$$;
--> statement-breakpoint
REVOKE EXECUTE ON FUNCTION "forget_audit_entries" FROM PUBLIC;
--> statement-breakpoint
-- Every heartbeat writes its row over: room on the page lets it do so without touching the index.
ALTER TABLE "device_state" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
--> statement-breakpoint
-- What was saved or deployed is served as it was, whatever a later service would write.
CREATE FUNCTION "keep_workflow_version"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a version of a workflow is not changed' USING ERRCODE = 'restrict_violation';
END $$;
--> statement-breakpoint
CREATE TRIGGER "keep_workflow_version" BEFORE UPDATE ON "workflow_version" FOR EACH ROW EXECUTE FUNCTION "keep_workflow_version"();--> statement-breakpoint
CREATE TRIGGER "keep_workflow_deployment" BEFORE UPDATE ON "workflow_deployment" FOR EACH ROW EXECUTE FUNCTION "keep_workflow_version"();
--> statement-breakpoint
-- The bin of a confidence: hundredths, compared as they are stored.
CREATE FUNCTION "confidence_bin"(confidence real) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(width_bucket(confidence, '{
    .01,.02,.03,.04,.05,.06,.07,.08,.09,.10,.11,.12,.13,.14,.15,.16,.17,.18,.19,.20,
    .21,.22,.23,.24,.25,.26,.27,.28,.29,.30,.31,.32,.33,.34,.35,.36,.37,.38,.39,.40,
    .41,.42,.43,.44,.45,.46,.47,.48,.49,.50,.51,.52,.53,.54,.55,.56,.57,.58,.59,.60,
    .61,.62,.63,.64,.65,.66,.67,.68,.69,.70,.71,.72,.73,.74,.75,.76,.77,.78,.79,.80,
    .81,.82,.83,.84,.85,.86,.87,.88,.89,.90,.91,.92,.93,.94,.95,.96,.97,.98,.99}'::real[]), 100)::smallint
$$;
--> statement-breakpoint
-- The bin of a share of a frame's area: tenths of a decade from 10⁻⁵ to 1.
CREATE FUNCTION "area_bin"(share float8) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(0, least(49, floor(10 * (5 + log10(greatest(1e-9, share))))))::smallint
$$;
--> statement-breakpoint
-- Keeps `annotation_count`, `area_count` and `frame_count` in step with annotations and with the
-- threshold of their job, and `repeats_to` with the annotations that others repeat. Each statement
-- adds the difference between its rows after it and before.
CREATE FUNCTION "count_annotations"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  -- Annotations with their threshold, counted by `n`.
  source text;
  -- Those with what is counted of them.
  judged text;
  is_empty boolean;
  -- Ids of annotations that repeat others.
  repeats uuid[];
BEGIN
  IF TG_TABLE_NAME = 'job' THEN
    -- Only between the two thresholds does anything differ.
    source := format(
      'SELECT t.n, t.threshold, a.* FROM annotation a,
         (VALUES (1, %2$L::real), (-1, %3$L::real)) t(n, threshold)
        WHERE a.job_id = %1$L AND (a.confidence >= %4$L::real AND a.confidence < %5$L::real
           OR a.repeats_to >= %4$L::real AND a.repeats_to < %5$L::real)',
      NEW.id, NEW.threshold, OLD.threshold, least(NEW.threshold, OLD.threshold),
      greatest(NEW.threshold, OLD.threshold));
  ELSE
    source := CASE TG_OP
      WHEN 'INSERT' THEN 'SELECT 1 AS n, * FROM fresh'
      WHEN 'DELETE' THEN 'SELECT -1 AS n, * FROM gone'
      ELSE 'SELECT 1 AS n, * FROM fresh UNION ALL SELECT -1, * FROM gone' END;
    -- A statement that changes nothing that is counted locks nothing either.
    EXECUTE format('SELECT NOT EXISTS (%s)', CASE TG_OP
      WHEN 'UPDATE' THEN format('SELECT %1$s FROM fresh EXCEPT SELECT %1$s FROM gone',
        'id, class_number, review, source, confidence, duplicate_of, repeats_to, x1, y1, x2, y2')
      ELSE source END) INTO is_empty;
    IF is_empty THEN RETURN NULL; END IF;
    -- One after another counts in a job, as edits of it do: what others stored is seen then, and no
    -- threshold changes under it.
    EXECUTE format(
      'SELECT FROM job WHERE id IN (SELECT job_id FROM (%s) s) ORDER BY id FOR NO KEY UPDATE',
      source);
    -- Not those of a job that is being deleted.
    source := format('SELECT s.n, j.threshold, %s FROM (%s) s JOIN job j ON j.id = s.job_id',
      's.id, s.job_id, s.video_id, s.frame_index, s.class_number, s.review, s.source,
       s.confidence, s.repeats_to, s.x1, s.y1, s.x2, s.y2', source);
  END IF;
  judged := format(
    'SELECT a.*, shown, shown AND a.review = ''pending'' AND coalesce(a.repeats_to >= a.threshold, false) AS repeated
       FROM (%s) a,
       LATERAL (SELECT a.confidence IS NULL OR a.confidence >= a.threshold AS shown) s', source);

  EXECUTE format($sql$
    INSERT INTO annotation_count AS c
      (job_id, class_number, review, source, shown, repeated, bin, annotations)
    SELECT job_id, class_number, review, source, shown, repeated, confidence_bin(confidence), sum(n)
      FROM (%s) a GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING sum(n) <> 0
    ON CONFLICT (job_id, class_number, review, source, shown, repeated, bin)
    DO UPDATE SET annotations = c.annotations + excluded.annotations$sql$, judged);
  EXECUTE format($sql$
    INSERT INTO area_count AS c (job_id, review, repeated, bin, annotations)
    SELECT job_id, review, repeated,
      area_bin((x2 - x1)::float8 * (y2 - y1) / (v.width::float8 * v.height)), sum(n)
      FROM (%s) a LEFT JOIN video v ON v.id = a.video_id
     WHERE shown GROUP BY 1, 2, 3, 4 HAVING sum(n) <> 0
    ON CONFLICT (job_id, review, repeated, bin)
    DO UPDATE SET annotations = c.annotations + excluded.annotations$sql$, judged);
  EXECUTE format($sql$
    INSERT INTO frame_count AS c
      (job_id, video_id, frame_index, stored, pending, accepted, rejected, repeated, classes)
    SELECT f.*, ARRAY(
        SELECT DISTINCT a.class_number FROM annotation a JOIN job j ON j.id = a.job_id
         WHERE a.job_id = f.job_id AND a.video_id = f.video_id AND a.frame_index = f.frame_index
           AND (a.confidence IS NULL OR a.confidence >= j.threshold) AND a.review <> 'rejected'
           AND NOT (a.review = 'pending' AND coalesce(a.repeats_to >= j.threshold, false)) ORDER BY 1)
      FROM (
        SELECT job_id, video_id, frame_index, sum(n),
          coalesce(sum(n) FILTER (WHERE shown AND review = 'pending'), 0),
          coalesce(sum(n) FILTER (WHERE shown AND review = 'accepted'), 0),
          coalesce(sum(n) FILTER (WHERE shown AND review = 'rejected'), 0),
          coalesce(sum(n) FILTER (WHERE repeated), 0)
          FROM (
            SELECT job_id, video_id, frame_index, class_number, review, shown, repeated, sum(n) AS n
              FROM (%s) a GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING sum(n) <> 0) k
         GROUP BY 1, 2, 3) f
    ON CONFLICT (job_id, video_id, frame_index)
    DO UPDATE SET stored = c.stored + excluded.stored, pending = c.pending + excluded.pending,
      accepted = c.accepted + excluded.accepted, rejected = c.rejected + excluded.rejected,
      repeated = c.repeated + excluded.repeated, classes = excluded.classes$sql$, judged);

  IF TG_TABLE_NAME = 'job' THEN RETURN NULL; END IF;
  -- Whose better one came, went or changed. A statement that changes nothing of that ends here, and
  -- so does what this function changes itself. One look at the index for each, and no join: the
  -- table's statistics say nothing of rows that were just stored.
  source := CASE TG_OP
    WHEN 'INSERT' THEN 'SELECT id, duplicate_of FROM fresh'
    WHEN 'DELETE' THEN 'SELECT id, NULL::uuid AS duplicate_of FROM gone'
    ELSE 'SELECT id, duplicate_of, review = ''rejected'', confidence FROM fresh
      EXCEPT SELECT id, duplicate_of, review = ''rejected'', confidence FROM gone' END;
  EXECUTE format($sql$
    WITH changed AS MATERIALIZED (%s)
    SELECT array_agg(id) FROM (
      SELECT id FROM changed WHERE duplicate_of IS NOT NULL
      UNION SELECT repeat.id FROM changed CROSS JOIN LATERAL (
        SELECT a.id FROM annotation a WHERE a.duplicate_of = changed.id LIMIT 1000000) repeat) r
    $sql$, source) INTO repeats;
  IF repeats IS NULL THEN RETURN NULL; END IF;
  UPDATE annotation a SET repeats_to = (
      SELECT coalesce(better.confidence, 'Infinity') FROM annotation better
       WHERE better.id = a.duplicate_of AND better.job_id = a.job_id
         AND better.review <> 'rejected')
   WHERE a.id = ANY (repeats);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER "annotation_added" AFTER INSERT ON "annotation" REFERENCING NEW TABLE AS fresh
  FOR EACH STATEMENT EXECUTE FUNCTION "count_annotations"();
--> statement-breakpoint
CREATE TRIGGER "annotation_edited" AFTER UPDATE ON "annotation"
  REFERENCING NEW TABLE AS fresh OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION "count_annotations"();
--> statement-breakpoint
CREATE TRIGGER "annotation_deleted" AFTER DELETE ON "annotation" REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION "count_annotations"();
--> statement-breakpoint
CREATE TRIGGER "job_threshold" AFTER UPDATE OF "threshold" ON "job" FOR EACH ROW
  WHEN (OLD.threshold IS DISTINCT FROM NEW.threshold) EXECUTE FUNCTION "count_annotations"();
--> statement-breakpoint
-- Everybody who registers is a member of it.
INSERT INTO "workspace" ("id", "name", "is_default") VALUES (gen_random_uuid(), 'Default', true);
