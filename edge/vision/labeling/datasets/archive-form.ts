// An archive that comes in a form, put into the store while it is read, and taken away again; or an
// uploaded archive that the form names.

import { z } from "@hono/zod-openapi";
import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import { unknownFieldProblem } from "../../../http/unknown-fields.ts";
import { type Caller, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { formParts } from "../../media/uploads/form.ts";
import { ZIP_HEAD_BYTES, zipType } from "../../media/uploads/media-types.ts";
import { type ObjectSummary, tooLarge, writeObject } from "../../media/uploads/object-writer.ts";
import { findUpload } from "../../media/uploads/uploads.ts";
import type { StoredArchive } from "./archive.ts";
import { ARCHIVE_FORMATS } from "./archive-labels.ts";
import { type ImportArchive, importOf } from "./image-imports.ts";
import { ImportTarget } from "./imports.ts";

/** Bytes of an archive in a form, where the installation takes uploads as large. */
const ARCHIVE_BYTES_MAX = 512 * 1024 * 1024;
/** Bytes of a form beyond its file. */
const ENVELOPE_BYTES = 1024 * 1024;
const FOLDER = "imports/";
/** An archive that is as old was left by a service that died. */
const ORPHAN_MS = 3_600_000;
const MINUTE_MS = 60_000;
const ROUND_MINUTES = 60;

/** The fields of the form beside its file. */
export const ArchiveFields = ImportTarget.extend({
  format: z.enum(ARCHIVE_FORMATS).optional(),
  images: z
    .enum(["true", "false"])
    .default("false")
    .transform((value) => value === "true"),
  upload_id: z.uuid().optional(),
});

/** The content type of a zip by its first bytes. */
function typeOfZip(head: Uint8Array): string {
  const type = zipType(head);
  if (!type) throw new Failure("invalid_request", "file: is no zip");
  return type;
}

/** What a form said, and the archive that it sent or named. */
export interface ArchiveForm {
  fields: z.output<typeof ArchiveFields>;
  archive: ImportArchive;
  /** Has the archive stay in the store. */
  keep: () => void;
}

/**
 * Lets `use` work with the form's fields and its archive, which is gone when that ends, unless it
 * was kept or is an upload. Fails with `bad_body`, `invalid_request`, `file_too_large`, with
 * `not_found` for another's upload, with `state_conflict` for one that is not complete, and with
 * `forbidden` for whoever is no engineer anywhere.
 */
export async function withArchive<Result>(
  parts: Parts,
  caller: Caller,
  request: Request,
  use: (form: ArchiveForm) => Promise<Result>,
): Promise<Result> {
  if (workspacesOf(caller, "engineer").length === 0) {
    throw new Failure("forbidden", "importing needs the role engineer");
  }
  const bytes = Number(request.headers.get("Content-Length") ?? 0);
  if (bytes > bytesMax(parts) + ENVELOPE_BYTES) throw tooLarge(bytesMax(parts));
  const id = crypto.randomUUID();
  const key = `${FOLDER}${id}.zip`;
  let isKept = false;
  try {
    const { fields, file } = await received(parts, request, key);
    const archive = await archiveOf(parts, caller, { fields, file: file && { ...file, id } });
    return await use({ fields, archive, keep: () => (isKept = true) });
  } finally {
    if (!isKept) await parts.bucket.delete(key);
  }
}

interface SentForm {
  fields: ArchiveForm["fields"];
  file: StoredArchive | null;
}

async function archiveOf(
  parts: Parts,
  caller: Caller,
  { fields, file }: { fields: SentForm["fields"]; file: (StoredArchive & { id: string }) | null },
): Promise<ImportArchive> {
  const { upload_id: uploadId, project_id: projectId } = fields;
  if (file && uploadId) throw invalid("file or upload_id: only one is taken");
  if (file) return { ...file, isUpload: false };
  if (!uploadId) throw invalid("file or upload_id: required");
  const begun = await importOf(parts.database, workspacesOf(caller), uploadId);
  if (begun) {
    if (begun.projectId !== projectId) throw invalid("upload_id: is of another project");
    return { id: begun.id, key: begun.storageKey, bytes: begun.bytes, isUpload: true, begun };
  }
  const upload = await findUpload(parts, workspacesOf(caller), uploadId);
  if (upload.kind !== "archive") throw invalid("upload_id: is a video's, not an archive's");
  if (upload.projectId !== projectId) throw invalid("upload_id: is of another project");
  if (!upload.completed || upload.aborted) {
    throw new Failure("state_conflict", "the upload is not complete, or was dropped");
  }
  return { id: upload.uploadId, key: upload.storageKey, bytes: upload.bytes, isUpload: true };
}

const bytesMax = ({ limits }: Parts) => Math.min(ARCHIVE_BYTES_MAX, limits.uploadBytesMax);

async function received(parts: Parts, request: Request, key: string): Promise<SentForm> {
  const given: Record<string, string> = {};
  let file: ObjectSummary | null = null;
  const contentType = request.headers.get("Content-Type") ?? undefined;
  for await (const part of formParts(request.body, contentType)) {
    if (part.kind === "field") {
      if (Object.hasOwn(given, part.name)) throw invalid(`${part.name}: given twice`);
      given[part.name] = part.value;
    } else if (part.name !== "file") throw unknown(part.name);
    else if (file) throw invalid("file: only one is taken");
    else {
      file = await writeObject(parts.bucket, part.chunks, {
        key,
        bytesMax: bytesMax(parts),
        headBytes: ZIP_HEAD_BYTES,
        typeOf: typeOfZip,
      });
    }
  }
  const stranger = Object.keys(given).find((name) => !Object.hasOwn(ArchiveFields.shape, name));
  if (stranger !== undefined) throw unknown(stranger);
  const fields = ArchiveFields.safeParse(given);
  if (!fields.success) {
    const [issue] = fields.error.issues;
    throw invalid(`${issue?.path.join(".") || "form"}: ${issue?.message}`);
  }
  return { fields: fields.data, file };
}

const unknown = (name: string) =>
  invalid(`${name}: ${unknownFieldProblem(name, [...Object.keys(ArchiveFields.shape), "file"])}`);
const invalid = (detail: string) => new Failure("invalid_request", detail);

/** Once an hour, deletes archives that a crash left in the store; those of imports stay. */
export async function forgetArchives({ bucket, clock, database }: Parts): Promise<void> {
  const now = clock();
  if (Math.floor(now / MINUTE_MS) % ROUND_MINUTES !== 0) return;
  const { objects } = await bucket.list({ prefix: FOLDER, limit: 1_000 });
  const old = objects.filter(({ uploaded }) => uploaded.getTime() < now - ORPHAN_MS);
  if (old.length === 0) return;
  const { rows } = await database.execute<{ key: string }>(sql`
    SELECT storage_key AS key FROM dataset_import WHERE state = 'running'`);
  const kept = new Set(rows.map(({ key }) => key));
  const orphans = old.filter(({ key }) => !kept.has(key));
  if (orphans.length > 0) await bucket.delete(orphans.map(({ key }) => key));
}
