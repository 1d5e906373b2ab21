-- A vintage is deleted only once an archived object holds it, whoever asks.
CREATE FUNCTION "keep_vintage"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.seq > (SELECT archived_seq FROM public.series WHERE id = OLD.series_id) THEN
    RAISE EXCEPTION 'vintage % of series % is not archived', OLD.seq, OLD.series_id
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
--> statement-breakpoint
CREATE TRIGGER "keep_vintage" BEFORE DELETE ON "vintage" FOR EACH ROW EXECUTE FUNCTION "keep_vintage"();
