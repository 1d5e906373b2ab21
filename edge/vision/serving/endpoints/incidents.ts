// The incident of an endpoint whose requests fail by a fault of the service.

import { sql } from "drizzle-orm";
import { HOUR, MINUTE } from "../../../../shared/time.ts";
import { type IncidentParts, noteIncidents } from "../../auth/incidents/incidents.ts";
import { instant } from "../../base/sql.ts";
import { BAD_SHARE, FAULT_REQUESTS_MIN, FAULT_WINDOW_MS, WELL_SHARE } from "./faults.ts";

/** An endpoint without requests for so long has no errors either. */
const NO_REQUESTS_MS = HOUR;

/** Endpoints of which too many requests failed by a fault of the service. */
export async function noticeEndpointErrors(parts: IncidentParts): Promise<void> {
  const now = parts.clock();
  const figures = sql`endpoint_faults f JOIN endpoint e ON e.id = f.endpoint_id
     WHERE e.deleted_at IS NULL`;
  await noteIncidents(parts, {
    kind: "endpoint_errors",
    wrong: sql`
      SELECT e.id::text AS subject, f.faults || ' of ' || f.requests || ' requests of the endpoint '
          || e.slug || ' failed by a fault of the service within '
          || '${sql.raw(String(FAULT_WINDOW_MS / MINUTE))} minutes' AS detail
        FROM ${figures} AND f.at > ${instant(now - FAULT_WINDOW_MS)}
         AND f.requests >= ${FAULT_REQUESTS_MIN}::int
         AND f.faults > f.requests * ${BAD_SHARE}::float8`,
    isOver: sql`NOT EXISTS (
      SELECT FROM ${figures} AND e.id::text = i.subject
         AND f.at > ${instant(now - NO_REQUESTS_MS)}
         AND f.faults > 0 AND f.faults >= f.requests * ${WELL_SHARE}::float8)`,
  });
}
