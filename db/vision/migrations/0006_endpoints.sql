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
ALTER TABLE "endpoint" ADD CONSTRAINT "endpoint_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "endpoint_key" ADD CONSTRAINT "endpoint_key_endpoint_id_endpoint_id_fk" FOREIGN KEY ("endpoint_id") REFERENCES "public"."endpoint"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "endpoint_model" ADD CONSTRAINT "endpoint_model_endpoint_id_endpoint_id_fk" FOREIGN KEY ("endpoint_id") REFERENCES "public"."endpoint"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "endpoint_model" ADD CONSTRAINT "endpoint_model_model_id_model_id_fk" FOREIGN KEY ("model_id") REFERENCES "public"."model"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "endpoint_move" ADD CONSTRAINT "endpoint_move_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "endpoint_slug" ON "endpoint" USING btree ("workspace_id","slug") WHERE deleted_at IS NULL;--> statement-breakpoint
CREATE INDEX "endpoint_former" ON "endpoint" USING btree ("workspace_id","slug","created_at");--> statement-breakpoint
CREATE INDEX "endpoint_key_endpoint" ON "endpoint_key" USING btree ("endpoint_id","created_at");--> statement-breakpoint
CREATE INDEX "endpoint_model_model" ON "endpoint_model" USING btree ("model_id");--> statement-breakpoint
CREATE INDEX "endpoint_move_endpoint" ON "endpoint_move" USING btree ("endpoint_id","id");--> statement-breakpoint
CREATE INDEX "endpoint_move_slug" ON "endpoint_move" USING btree ("workspace_id","slug","id");