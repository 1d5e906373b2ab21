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
DROP INDEX "annotation_class";--> statement-breakpoint
ALTER TABLE "annotation" ADD COLUMN "repeats_to" real;--> statement-breakpoint
ALTER TABLE "change" ADD COLUMN "undoing_at" timestamp (3) with time zone;--> statement-breakpoint
ALTER TABLE "annotation_count" ADD CONSTRAINT "annotation_count_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "area_count" ADD CONSTRAINT "area_count_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "frame_count" ADD CONSTRAINT "frame_count_job_id_job_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."job"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "annotation_better" ON "annotation" USING btree ("duplicate_of") WHERE duplicate_of IS NOT NULL;--> statement-breakpoint
CREATE INDEX "annotation_class" ON "annotation" USING btree ("job_id","class_number","review","source");
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
UPDATE "annotation" a SET "repeats_to" = coalesce(better.confidence, 'Infinity')
  FROM "annotation" better
 WHERE better.id = a.duplicate_of AND better.job_id = a.job_id AND better.review <> 'rejected';
--> statement-breakpoint
INSERT INTO "annotation_count"
SELECT a.job_id, a.class_number, a.review, a.source, shown,
    shown AND a.review = 'pending' AND coalesce(a.repeats_to >= j.threshold, false),
    confidence_bin(a.confidence),
    count(*)
  FROM "annotation" a JOIN "job" j ON j.id = a.job_id,
  LATERAL (SELECT a.confidence IS NULL OR a.confidence >= j.threshold AS shown) s
 GROUP BY 1, 2, 3, 4, 5, 6, 7;
--> statement-breakpoint
INSERT INTO "area_count"
SELECT a.job_id, a.review, a.review = 'pending' AND coalesce(a.repeats_to >= j.threshold, false),
    area_bin((a.x2 - a.x1)::float8 * (a.y2 - a.y1) / (v.width::float8 * v.height)), count(*)
  FROM "annotation" a JOIN "job" j ON j.id = a.job_id LEFT JOIN "video" v ON v.id = a.video_id
 WHERE a.confidence IS NULL OR a.confidence >= j.threshold GROUP BY 1, 2, 3, 4;
--> statement-breakpoint
INSERT INTO "frame_count"
SELECT a.job_id, a.video_id, a.frame_index, count(*),
    count(*) FILTER (WHERE shown AND a.review = 'pending'),
    count(*) FILTER (WHERE shown AND a.review = 'accepted'),
    count(*) FILTER (WHERE shown AND a.review = 'rejected'),
    count(*) FILTER (WHERE shown AND a.review = 'pending' AND a.repeats_to >= j.threshold),
    coalesce(array_agg(DISTINCT a.class_number) FILTER (WHERE shown AND a.review <> 'rejected'
      AND NOT (a.review = 'pending' AND coalesce(a.repeats_to >= j.threshold, false))), '{}')
  FROM "annotation" a JOIN "job" j ON j.id = a.job_id,
  LATERAL (SELECT a.confidence IS NULL OR a.confidence >= j.threshold AS shown) s
 GROUP BY 1, 2, 3;
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
