// Weights that people bring along, to start runs from. Nothing here opens them: a node does, and
// refuses what is not what it says. Never a pickle.

import { type SQL, sql } from "drizzle-orm";
import { weightsFile } from "../../../db/vision/training.ts";
import { headerBytes } from "../../../shared/detector/safetensors.ts";
import { Failure } from "../../../shared/errors.ts";
import type { TaskPayload } from "../../../shared/tasks/tasks.ts";
import type { TrainSettings, WeightsFile } from "../../../shared/wire/training.ts";
import { batch, type Database, isSilent } from "../../http/database.ts";
import { columnsOf, extended, type RowOf, rowsOf, selection } from "../../http/selection.ts";
import { discardObjects } from "../base/discard.ts";
import type { Parts } from "../base/parts.ts";
import { idList } from "../base/sql.ts";
import { formParts, plainName } from "../media/uploads/form.ts";
import { type ObjectSummary, tooLarge, writeObject } from "../media/uploads/object-writer.ts";
import {
  checkQuota,
  hasRoom,
  lockRoom,
  refuseFull,
  workspacePrefix,
} from "../media/videos/videos.ts";
import { knownWeights } from "../tasks/nodes/nodes.ts";
import { source } from "../tasks/objects.ts";
import { findModel } from "./registry.ts";

const HEAD_BYTES = 64;
/** Versions of ONNX's format that exist or soon may. */
const IR_VERSION_MAX = 30;
/** Characters of what a form says of weights. */
export const NAME_MAX = 200;
export const DATASET_MAX = 1_000;
/** Sets that a refusal names. */
const NAMED_MAX = 20;
/** Bytes of a form beyond its file. */
const ENVELOPE_BYTES = 1024 * 1024;

export type WeightsFormat = WeightsFile["format"];

/**
 * What weights are, by their first bytes; fails with `unsupported_media`. A safetensors file begins
 * with the length of its JSON header, an ONNX model with its format's version and another field.
 */
export function weightsFormat(head: Uint8Array): WeightsFormat {
  if (head.length >= 10 && head[8] === 0x7b && (headerBytes(head) ?? 0) >= 2) return "safetensors";
  const [tag, version = 0, next = 0] = head;
  const field = next >> 3;
  const fits = [1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25].includes(field) && [0, 2].includes(next & 7);
  if (tag === 0x08 && version >= 1 && version <= IR_VERSION_MAX && fits) return "onnx";
  const pickled = head[0] === 0x80 || (head[0] === 0x50 && head[1] === 0x4b);
  const instead = pickled ? "; pickles run code and are never opened, save it as safetensors" : "";
  throw new Failure("unsupported_media", `the file is no safetensors or ONNX${instead}`);
}

const w = columnsOf(weightsFile, "w");
const WEIGHTS: SQL<WeightsFile> = selection({
  weights_id: w.id,
  name: w.name,
  dataset: w.dataset,
  format: w.format,
  bytes: w.bytes,
  created_at: w.createdAt,
});
const KEPT_WEIGHTS = extended(WEIGHTS, { workspaceId: w.workspaceId, storageKey: w.storageKey });
/** Weights with where they lie. */
export type WeightsRow = RowOf<typeof KEPT_WEIGHTS>;

/** Weights files of the workspaces, newest first. */
export async function listWeights(
  database: Database,
  workspaces: readonly string[],
): Promise<WeightsFile[]> {
  const rows = await rowsOf(database, WEIGHTS)`
    SELECT ${WEIGHTS} FROM weights_file w WHERE w.workspace_id IN ${idList(workspaces)}
     ORDER BY w.created_at DESC, w.id`;
  return rows;
}

/** The weights of this id, if they are of these workspaces; fails with `not_found`. */
export async function findWeights(
  database: Database,
  workspaces: readonly string[],
  weightsId: string,
): Promise<WeightsRow> {
  const rows = await rowsOf(database, KEPT_WEIGHTS)`
    SELECT ${KEPT_WEIGHTS}
      FROM weights_file w
     WHERE w.id = ${weightsId}::uuid AND w.workspace_id IN ${idList(workspaces)}`;
  if (!rows[0]) throw new Failure("not_found", "no such weights in your workspaces");
  return rows[0];
}

/** Weights as they go over the wire. */
export const weightsRecord = ({ workspaceId, storageKey, ...record }: WeightsRow): WeightsFile =>
  record;

/** Takes weights out of a form. Whatever fails, no object is left behind. */
export async function receiveWeights(
  parts: Parts,
  request: Request,
  { workspaceId, createdBy }: { workspaceId: string; createdBy: string },
): Promise<WeightsFile> {
  const { bucket, limits } = parts;
  const id = crypto.randomUUID();
  const key = `${workspacePrefix(workspaceId)}weights/${id}`;
  const fields: Record<string, string> = {};
  let written: ObjectSummary | null = null;
  let format: WeightsFormat = "safetensors";
  let filename = "";
  try {
    const announced = Number(request.headers.get("Content-Length") ?? 0);
    if (announced > limits.uploadBytesMax + ENVELOPE_BYTES) throw tooLarge(limits.uploadBytesMax);
    const contentType = request.headers.get("Content-Type") ?? undefined;
    for await (const part of formParts(request.body, contentType)) {
      if (part.kind === "field") fields[part.name] = part.value;
      else if (part.name !== "file") part.skip();
      else if (written) throw new Failure("invalid_request", "file: only one is taken");
      else {
        await checkQuota(parts, workspaceId, 1);
        written = await writeObject(bucket, part.chunks, {
          key,
          bytesMax: limits.uploadBytesMax,
          headBytes: HEAD_BYTES,
          typeOf: (head) => {
            format = weightsFormat(head);
            return "application/octet-stream";
          },
        });
        filename = plainName(part.filename);
      }
    }
    if (!written) throw new Failure("invalid_request", "file: required");
    const name = plain("name", fields.name ?? filename, NAME_MAX) || filename;
    const dataset = plain("dataset", fields.dataset ?? "", DATASET_MAX);
    return await insertWeights(parts, {
      id,
      workspaceId,
      name,
      dataset,
      format,
      key,
      bytes: written.bytes,
      createdBy,
    });
  } catch (thrown) {
    // Weights that may have been recorded keep their bytes.
    if (!isSilent(thrown)) await bucket.delete(key);
    throw thrown;
  }
}

function plain(field: string, value: string, charactersMax: number): string {
  const text = value.trim();
  if (text.length <= charactersMax && !text.includes("\0") && text.isWellFormed()) return text;
  throw new Failure(
    "invalid_request",
    `${field}: must be text of at most ${charactersMax} characters`,
  );
}

interface NewWeights {
  id: string;
  workspaceId: string;
  name: string;
  dataset: string;
  format: WeightsFormat;
  key: string;
  bytes: number;
  createdBy: string;
}

async function insertWeights(parts: Parts, one: NewWeights): Promise<WeightsFile> {
  const { database } = parts;
  const insert = sql`
    WITH w AS (
      INSERT INTO weights_file (id, workspace_id, name, dataset, format, storage_key, bytes,
        created_by)
      SELECT ${one.id}::uuid, ${one.workspaceId}::uuid, ${one.name}, ${one.dataset}, ${one.format},
        ${one.key}, ${one.bytes}::bigint, ${one.createdBy}::uuid
       WHERE ${hasRoom(parts, one.workspaceId, one.bytes)} RETURNING *)
    SELECT ${WEIGHTS} FROM w`;
  const lock = lockRoom(one.workspaceId);
  const [, rows] = await batch<[unknown, WeightsFile]>(database, [lock, insert]);
  return rows[0] ?? refuseFull(parts, one.workspaceId, one.bytes);
}

/** Deletes weights, unless a run that has not ended starts from them. */
export async function deleteWeights(parts: Parts, row: WeightsRow): Promise<void> {
  const { rows } = await parts.database.execute(sql`
    DELETE FROM weights_file WHERE id = ${row.weights_id}::uuid
      AND NOT EXISTS (SELECT FROM training_run WHERE state IN ('queued', 'running')
        AND settings->'pretrained'->>'weights_id' = ${row.weights_id}) RETURNING id`);
  if (rows.length === 0) {
    throw new Failure("state_conflict", "a run that has not ended starts from these weights");
  }
  await discardObjects(parts, [row.storageKey]);
}

/** Fails with `invalid_request` where no node has the set of weights that a run asks for. */
export async function checkInstalled(
  database: Database,
  workspaceId: string,
  { pretrained, variant }: Pick<TrainSettings, "pretrained" | "variant">,
): Promise<void> {
  if (pretrained === null || !("dataset" in pretrained)) return;
  const known = await knownWeights(database, [workspaceId]);
  const { dataset } = pretrained;
  if (known.some((one) => one.dataset === dataset && one.variant === variant)) return;
  const names = known.map((one) => `${JSON.stringify(one.dataset)} for ${one.variant}`);
  throw new Failure(
    "invalid_request",
    `pretrained.dataset: no GPU node has weights ${JSON.stringify(dataset)} for ${variant}` +
      `${names.length > 0 ? `; there are ${names.slice(0, NAMED_MAX).join(", ")}` : ""}. An ` +
      "operator installs them on a node, which then tells of them: npm run models -- " +
      "install",
  );
}

/** The weights that a run starts from, for its task; fails with `not_found`. */
export async function startingWeights(
  database: Database,
  workspaceId: string,
  pretrained: TrainSettings["pretrained"],
): Promise<TaskPayload<"train">["pretrained"]> {
  if (pretrained === null) return null;
  if ("dataset" in pretrained) return { dataset: pretrained.dataset };
  if ("model_id" in pretrained) {
    const { storageKey, bytes } = await findModel(database, [workspaceId], pretrained.model_id);
    return { weights: source(storageKey, bytes), format: "safetensors" };
  }
  const found = await findWeights(database, [workspaceId], pretrained.weights_id);
  return { weights: source(found.storageKey, found.bytes), format: found.format };
}
