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
-- What was saved or deployed is served as it was, whatever a later service would write.
CREATE FUNCTION "keep_workflow_version"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a version of a workflow is not changed' USING ERRCODE = 'restrict_violation';
END $$;
--> statement-breakpoint
CREATE TRIGGER "keep_workflow_version" BEFORE UPDATE ON "workflow_version" FOR EACH ROW EXECUTE FUNCTION "keep_workflow_version"();--> statement-breakpoint
CREATE TRIGGER "keep_workflow_deployment" BEFORE UPDATE ON "workflow_deployment" FOR EACH ROW EXECUTE FUNCTION "keep_workflow_version"();
