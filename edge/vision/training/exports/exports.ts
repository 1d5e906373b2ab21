// Models as files that leave: one row and one file for each format and options of a model, however
// often they are asked for. A node makes the file; it is offered once its task's end was taken.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { ModelExportRequest } from "../../../../shared/wire/exports.ts";
import { batch, type Database } from "../../../http/database.ts";
import { discardObjects } from "../../base/discard.ts";
import type { Parts } from "../../base/parts.ts";
import { breaksReference } from "../../base/sql.ts";
import { checkQuota, hasRoom, lockRoom } from "../../media/videos/videos.ts";
import type { ModelRow } from "../../models/registry.ts";
import { offeringNodes } from "../../tasks/nodes/nodes.ts";
import { requestCancel } from "../../tasks/queue/interventions.ts";
import { datasetOf, rangesFor } from "./dataset.ts";
import { type ExportOptions, expectedBytes, fingerprintOf, kindOf, optionsOf } from "./options.ts";
import { EXPORT, type ExportRow, folderOf, keysOf, type ModelOwner, subjectOf } from "./rows.ts";
import { enqueueOrLog } from "./task.ts";

/** How often it is tried to make a row or find it, while others delete and make the same. */
const TRIES_MAX = 3;
const NO_TRTEXEC =
  "artifact: an engine is built where it will run, and no node that is there reports trtexec; ask " +
  "for the bundle, which holds the recipe";
const NO_DATASET =
  "precision: int8 is made by images of the model's own training set, and there is none any more; " +
  "ask for fp16";

/** Who asks, and for which files. */
interface FileRequest {
  wanted: readonly ExportOptions[];
  createdBy: string | null;
}

/**
 * Asks for a model as a file; returns the export's id. The same again is the same export; one that
 * failed is tried anew. Fails with `quota_exceeded`, with `invalid_request` for what cannot be made
 * now, with `state_conflict` for a model without classes, and with `not_found` where the model was
 * deleted meanwhile.
 */
export async function startExport(
  parts: Parts,
  model: ModelRow,
  { options, createdBy }: { options: ExportOptions; createdBy: string | null },
): Promise<string> {
  const [id] = await startAll(parts, model, { wanted: [options], createdBy });
  if (!id) throw new Error("what is asked for is there by now");
  return id;
}

/**
 * Asks for several files of a model, all of them or none; returns their ids. Fails as `startExport`
 * does, and then no file of them was begun.
 */
export async function startExports(
  parts: Parts,
  model: ModelRow,
  { requests, createdBy }: { requests: readonly ModelExportRequest[]; createdBy: string },
): Promise<string[]> {
  const wanted = requests.map((request) => optionsOf(request, model));
  return wanted.length > 0 ? startAll(parts, model, { wanted, createdBy }) : [];
}

async function startAll(parts: Parts, model: ModelRow, asked: FileRequest): Promise<string[]> {
  if (model.classes.length === 0) {
    throw new Failure("state_conflict", "the model has no classes: there is nothing to export");
  }
  const wanted = new Map(asked.wanted.map((options) => [fingerprintOf(options), options]));
  for (let tries = 0; tries <= TRIES_MAX; tries++) {
    const there = await sameExports(parts.database, model, [...wanted.keys()]);
    const lacking = [...wanted].filter(([name]) => !there.has(name)).map(([, options]) => options);
    if (lacking.length === 0) return [...wanted.keys()].map((name) => there.get(name) ?? "");
    const bytes = lacking.reduce((sum, options) => sum + expectedBytes(model, options), 0);
    if (tries === 0) for (const one of lacking) await requireWherewithal(parts, model, one);
    else await checkQuota(parts, model.workspaceId, bytes);
    const begun = await insertExports(parts, model, { ...asked, wanted: lacking });
    for (const row of begun) await enqueueOrLog(parts, row, model);
  }
  throw new Failure("state_conflict", "the same export is being deleted; ask for it again");
}

/** Fails with `invalid_request` where what a file is made by is not there. */
async function requireWherewithal(
  parts: Parts,
  model: ModelRow,
  options: ExportOptions,
): Promise<void> {
  const { workspaceId } = model;
  const kind = kindOf(options);
  if (kind === "engine_export") {
    const nodes = await offeringNodes(parts.database, { kind, workspaceId });
    if (nodes === 0) throw new Failure("invalid_request", NO_TRTEXEC);
  }
  if (options.precision !== "int8") return;
  const there = (await rangesFor(parts, model, options)) ?? (await datasetOf(parts, model));
  if (!there) throw new Failure("invalid_request", NO_DATASET);
}

/**
 * Makes the rows, or begins failed ones anew, all in one statement: none of them where not all have
 * room. What others made meanwhile is left as it is.
 */
async function insertExports(
  parts: Parts,
  model: ModelRow,
  { wanted, createdBy }: FileRequest,
): Promise<ExportRow[]> {
  const { workspaceId, modelId } = model;
  const bytes = wanted.map((options) => expectedBytes(model, options));
  const rows = wanted.map((options, at) => {
    const { format, artifact, precision, output, size, batch: images } = options;
    return sql`(${crypto.randomUUID()}::uuid, ${fingerprintOf(options)}, ${format}, ${artifact},
      ${precision}, ${output}, ${size[0]}::int, ${size[1]}::int, ${images}::int,
      ${options.calibrationImages}::int, ${bytes[at]}::bigint)`;
  });
  const sum = bytes.reduce((total, one) => total + one, 0);
  const insert = sql`
    WITH e AS (
      INSERT INTO model_export (workspace_id, model_id, created_by, id, fingerprint, format,
        artifact, precision, output, height, width, batch, calibration_images, bytes_expected)
      SELECT ${workspaceId}::uuid, ${modelId}::uuid, ${createdBy}::uuid, wanted.*
        FROM (VALUES ${sql.join(rows, sql`, `)}) wanted
       WHERE ${hasRoom(parts, workspaceId, sum)}
      ON CONFLICT (model_id, fingerprint) DO UPDATE SET state = 'queued', failure = NULL,
        ended_at = NULL, round = model_export.round + 1, created_at = now(),
        created_by = excluded.created_by, bytes_expected = excluded.bytes_expected
       WHERE model_export.state = 'failed'
      RETURNING *)
    SELECT ${EXPORT} FROM e`;
  const lock = lockRoom(workspaceId);
  const [, begun] = await batch<[unknown, ExportRow]>(parts.database, [lock, insert]).catch(
    (thrown: unknown) => {
      if (!breaksReference(thrown)) throw thrown;
      throw new Failure("not_found", "no such model in your workspaces", { cause: thrown });
    },
  );
  return begun;
}

/** Ids of the model's exports by their fingerprints, without those that failed. */
async function sameExports(
  database: Database,
  { modelId }: ModelOwner,
  fingerprints: readonly string[],
): Promise<Map<string, string>> {
  const { rows } = await database.execute<{ fingerprint: string; id: string }>(sql`
    SELECT fingerprint, id::text FROM model_export WHERE model_id = ${modelId}::uuid
       AND state <> 'failed' AND fingerprint IN (
         SELECT jsonb_array_elements_text(${JSON.stringify(fingerprints)}::jsonb))`);
  return new Map(rows.map(({ fingerprint, id }) => [fingerprint, id]));
}

/** A file of a model, as another room serves it. */
export interface OfferedFile extends Record<string, unknown> {
  key: string;
  bytes: number;
  sha256: string;
}

/**
 * The file of these options that is offered of a model, or null. One below single precision stands
 * in for the model only where the average precision of both was measured.
 */
export async function offeredFile(
  { database }: Pick<Parts, "database">,
  { modelId, workspaceId }: ModelOwner,
  options: Omit<ExportOptions, "calibrationImages">,
): Promise<OfferedFile | null> {
  const { format, artifact, precision, output, size, batch: images } = options;
  const sameBatch: SQL = sql`e.batch IS NOT DISTINCT FROM ${images}::int`;
  const isMeasured: SQL = sql`(e.precision = 'fp32'
    OR coalesce(jsonb_typeof(e.verification->'accuracy') = 'object', false))`;
  const { rows } = await database.execute<OfferedFile>(sql`
    SELECT e.storage_key AS key, e.bytes::float8 AS bytes, e.sha256 FROM model_export e
     WHERE e.model_id = ${modelId}::uuid AND e.workspace_id = ${workspaceId}::uuid
       AND e.state = 'completed' AND e.format = ${format} AND e.artifact = ${artifact}
       AND e.precision = ${precision} AND e.output = ${output} AND e.height = ${size[0]}::int
       AND e.width = ${size[1]}::int AND ${sameBatch} AND ${isMeasured} ORDER BY e.ended_at DESC LIMIT 1`);
  return rows[0] ?? null;
}

/** Deletes an export and its file, whatever its node still does. */
export async function deleteExport(parts: Parts, model: ModelRow, exportId: string): Promise<void> {
  const { rows } = await parts.database
    .execute(sql`
    DELETE FROM model_export WHERE id = ${exportId}::uuid AND model_id = ${model.modelId}::uuid
       AND workspace_id = ${model.workspaceId}::uuid RETURNING id`)
    .catch((thrown: unknown) => {
      if (!breaksReference(thrown)) throw thrown;
      const detail = "a rollout brings this export to devices; abort it first";
      throw new Failure("state_conflict", detail, { cause: thrown });
    });
  if (rows.length === 0) throw new Failure("not_found", "the model has no such export");
  await requestCancel(parts.database, { subject: subjectOf(exportId) });
  await discardObjects(parts, [keysOf(model, exportId).folder]);
}

/** The exports of a model that is about to be deleted; what is returned deletes their files. */
export async function releaseExports(parts: Parts, model: ModelRow): Promise<() => Promise<void>> {
  const { rows } = await parts.database.execute<{ id: string }>(
    sql`SELECT id::text FROM model_export WHERE model_id = ${model.modelId}::uuid`,
  );
  return async () => {
    for (const { id } of rows) await requestCancel(parts.database, { subject: subjectOf(id) });
    await discardObjects(parts, [folderOf(model)]);
  };
}
