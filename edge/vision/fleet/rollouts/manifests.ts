// The manifest of a device: what it is to run now, made of the rollout that is wanted of it, and
// where the file of it lies.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import {
  type Confirmation,
  MANIFEST_LAYOUT,
  Manifest,
  type RolloutFile,
  type SignedManifest,
} from "../../../../shared/wire/rollouts.ts";
import { type Database, wireTime } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import { presignGet } from "../../tasks/objects.ts";
import { manifestKeys, signManifest } from "./manifest-keys.ts";

interface DesiredRow extends Record<string, unknown> {
  rolloutId: string;
  modelId: string;
  exportId: string;
  version: string;
  file: RolloutFile;
  storageKey: string;
  confidence: number;
  confirm: Confirmation;
  minAgent: string;
  issuedAt: string;
}

/** Fails with `not_found` where nothing is wanted of the device. */
async function desiredOf(database: Database, deviceId: string): Promise<DesiredRow> {
  const { rows } = await database.execute<DesiredRow>(sql`
    SELECT r.id::text AS "rolloutId", r.model_id::text AS "modelId", r.export_id::text AS "exportId",
      n.version::text AS version, r.file, r.storage_key AS "storageKey", r.confidence, r.confirm,
      r.min_agent AS "minAgent", ${wireTime(sql`n.set_at`)} AS "issuedAt"
      FROM device_desired n JOIN rollout r ON r.id = n.rollout_id
     WHERE n.device_id = ${deviceId}::uuid`);
  const [row] = rows;
  if (!row) throw new Failure("not_found", "nothing is wanted of this device");
  return row;
}

/** The signed manifest of what is wanted of a device. The same version has the same bytes. */
export async function manifestOf(parts: Parts, deviceId: string): Promise<SignedManifest> {
  const row = await desiredOf(parts.database, deviceId);
  const manifest = Manifest.parse({
    layout: MANIFEST_LAYOUT,
    device_id: deviceId,
    version: row.version,
    rollout_id: row.rolloutId,
    model_id: row.modelId,
    export_id: row.exportId,
    file: row.file,
    confidence: row.confidence,
    confirm: row.confirm,
    min_agent: row.minAgent,
    keys: await manifestKeys(parts),
    issued_at: row.issuedAt,
  } satisfies Manifest);
  return signManifest(parts, manifest);
}

/**
 * An address of the file of a manifest's version, for 15 minutes. Fails with `state_conflict` where
 * another version is wanted of the device by now.
 */
export async function artifactOf(parts: Parts, deviceId: string, version: string): Promise<string> {
  const row = await desiredOf(parts.database, deviceId);
  if (row.version === version) return presignGet(parts, row.storageKey);
  throw new Failure("state_conflict", `version ${row.version} is wanted of this device by now`, {
    data: { version: row.version },
  });
}
