-- The service has no right to delete entries of the audit log: only this lets go of old ones, of as
-- many as it is told, and the log's own trigger of none that is younger than 30 days.
CREATE FUNCTION "forget_audit_entries"(until timestamptz, most integer) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
  DELETE FROM audit_entry WHERE id IN (
    SELECT id FROM audit_entry WHERE at < until ORDER BY at LIMIT most);
$$;
--> statement-breakpoint
REVOKE EXECUTE ON FUNCTION "forget_audit_entries" FROM PUBLIC;
