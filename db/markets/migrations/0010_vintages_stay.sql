-- A vintage is deleted only once an archived object holds it, whoever asks.
CREATE FUNCTION "keep_vintage"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM public.vintage_archive
     WHERE series_id = OLD.series_id AND seq_max >= OLD.seq AND seq_min <= OLD.seq
  ) THEN
    RAISE EXCEPTION 'vintage % of series % is not archived', OLD.seq, OLD.series_id
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
--> statement-breakpoint
CREATE TRIGGER "keep_vintage" BEFORE DELETE ON "vintage" FOR EACH ROW EXECUTE FUNCTION "keep_vintage"();
