CREATE SEQUENCE "public"."edit_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1;--> statement-breakpoint
CREATE TABLE "annotation_deletion" (
	"job_id" uuid NOT NULL,
	"seq" bigint NOT NULL,
	"annotation_id" uuid NOT NULL,
	CONSTRAINT "annotation_deletion_job_id_seq_pk" PRIMARY KEY("job_id","seq")
);
--> statement-breakpoint
CREATE TABLE "applied_edit" (
	"job_id" uuid NOT NULL,
	"edit_id" uuid NOT NULL,
	"annotation_id" uuid NOT NULL,
	"revision" integer NOT NULL,
	"change_id" uuid NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "applied_edit_job_id_edit_id_pk" PRIMARY KEY("job_id","edit_id")
);
--> statement-breakpoint
CREATE TABLE "crop_pack" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workspace_id" uuid NOT NULL,
	"job_id" uuid NOT NULL,
	"video_id" uuid NOT NULL,
	"key" text NOT NULL,
	"frames" integer[] NOT NULL,
	"entries" integer NOT NULL,
	"bytes" integer NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "crop_pack_key_unique" UNIQUE("key")
);
--> statement-breakpoint
ALTER TABLE "annotation" ADD COLUMN "seq" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "change" ADD COLUMN "seq" bigint DEFAULT nextval('edit_seq') NOT NULL;--> statement-breakpoint
ALTER TABLE "annotation_deletion" ADD CONSTRAINT "annotation_deletion_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "applied_edit" ADD CONSTRAINT "applied_edit_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "crop_pack" ADD CONSTRAINT "crop_pack_workspace_id_workspace_id_fk" FOREIGN KEY ("workspace_id") REFERENCES "public"."workspace"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "crop_pack" ADD CONSTRAINT "crop_pack_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "applied_edit_created" ON "applied_edit" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "crop_pack_video" ON "crop_pack" USING btree ("job_id","video_id");--> statement-breakpoint
CREATE INDEX "annotation_seq" ON "annotation" USING btree ("job_id","seq") WHERE seq > 0;--> statement-breakpoint
CREATE INDEX "change_seq" ON "change" USING btree ("job_id","seq");
--> statement-breakpoint
-- Written by hand
-- Whatever writes an annotation gives it a new number, also where it writes an old row back.
CREATE FUNCTION "number_annotation"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.seq := nextval('edit_seq');
  RETURN NEW;
END $$;
--> statement-breakpoint
CREATE TRIGGER "annotation_numbered" BEFORE INSERT OR UPDATE ON "annotation"
  FOR EACH ROW EXECUTE FUNCTION "number_annotation"();
--> statement-breakpoint
-- Notes which annotations of a job went. With the job itself its notes go too.
CREATE FUNCTION "note_deletions"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO annotation_deletion (job_id, seq, annotation_id)
  SELECT g.job_id, nextval('edit_seq'), g.id FROM gone g JOIN job j ON j.id = g.job_id;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER "annotation_deletion_noted" AFTER DELETE ON "annotation"
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION "note_deletions"();
