-- Run as owner on a markets catalog that was restored into another Postgres cluster, before any
-- service opens it. The change feed goes by transaction numbers, which are a cluster's own: here
-- what its archive has lies before the archive's end, and everything else before any transaction
-- to come. Followers of the feed then begin anew from a datetime.
BEGIN;
UPDATE vintage SET xact = CASE WHEN (xact, series_id, seq) <=
    (SELECT xact, series_id, seq FROM feed_archive ORDER BY id DESC LIMIT 1)
  THEN '1'::xid8 ELSE '3'::xid8 END;
UPDATE feed_archive SET xact = '2', series_id = 0, seq = 0;
COMMIT;
