// What the room of devices asks of who decides which model they should run. It is handed to the
// routes at the right end, so that a heartbeat stays one statement whoever decides.

import { type SQL, sql } from "drizzle-orm";
import type { ManifestKey, ReportedModel } from "../../../../shared/wire/fleet.ts";
import type { Parts } from "../../base/parts.ts";

/** What a device said of its model, where that is news. */
export interface ModelReport {
  deviceId: string;
  workspaceId: string;
  model: ReportedModel | null;
}

/** Who decides which model devices run. */
export interface FleetHooks {
  /**
   * The wire's `DesiredModel` of the device `d` (a row of `device`) as an expression of jsonb; NULL
   * where nothing is wanted of it. It becomes a part of each heartbeat's statement, so it finds one
   * row by a key.
   */
  desired: SQL;
  /** Keys that manifests are signed with, the newest first; handed out as a device enrols. */
  manifestKeys(parts: Parts): Promise<ManifestKey[]>;
  /**
   * Hears of what a device says of its model: at once when the model moved, of new figures alone
   * once a minute at most.
   */
  reported(parts: Parts, report: ModelReport): Promise<void>;
}

/** Where nobody decides: devices keep what they have. */
export const NO_ROLLOUTS: FleetHooks = {
  desired: sql`NULL::jsonb`,
  manifestKeys: () => Promise.resolve([]),
  reported: () => Promise.resolve(),
};
