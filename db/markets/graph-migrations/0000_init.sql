CREATE TABLE "entity" (
	"label" text NOT NULL,
	"key" text NOT NULL,
	"properties" jsonb NOT NULL,
	"first_seen" timestamp(3) with time zone NOT NULL,
	"last_seen" timestamp(3) with time zone NOT NULL,
	CONSTRAINT "entity_label_key_pk" PRIMARY KEY("label","key")
);
--> statement-breakpoint
CREATE TABLE "relation" (
	"from_label" text NOT NULL,
	"from_key" text NOT NULL,
	"type" text NOT NULL,
	"to_label" text NOT NULL,
	"to_key" text NOT NULL,
	"first_seen" timestamp(3) with time zone NOT NULL,
	"last_seen" timestamp(3) with time zone NOT NULL,
	CONSTRAINT "relation_from_label_from_key_type_to_label_to_key_pk" PRIMARY KEY("from_label","from_key","type","to_label","to_key")
);
--> statement-breakpoint
CREATE INDEX "relation_reverse" ON "relation" USING btree ("to_label","to_key");