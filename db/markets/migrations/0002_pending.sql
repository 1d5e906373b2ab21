-- Series written before compaction existed: everything they hold is pending.
UPDATE "series" SET
  "pending_vintages" = (SELECT count(*) FROM "vintage" WHERE "series_id" = "id"),
  "pending_rows" = (SELECT coalesce(sum("inserted" + "revised" + "retracted"), 0)
                      FROM "vintage" WHERE "series_id" = "id"),
  "pending_objects" = (SELECT count(*) FROM "segment" WHERE "series_id" = "id");
