// An archive that comes in a form, put into the store while it is read, and taken away again.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { type Caller, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { formParts } from "../../media/uploads/form.ts";
import { type ObjectSummary, tooLarge, writeObject } from "../../media/uploads/object-writer.ts";
import { ARCHIVE_FORMATS } from "./archive-labels.ts";
import { ImportTarget } from "./imports.ts";

/**
 * Bytes of an archive, where the installation takes uploads as large: room for images in it, which
 * are not read; labels alone are far smaller.
 */
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
});

const notZip = () => new Failure("invalid_request", "file: is no zip");

/** The content type of a zip by its first bytes. */
function zipType(head: Uint8Array): string {
  const [p, k, third, fourth] = head;
  const known = (third === 3 && fourth === 4) || (third === 5 && fourth === 6);
  if (p !== 0x50 || k !== 0x4b || !known) throw notZip();
  return "application/zip";
}

/** What a form said, and the object that holds its file. */
export interface ArchiveForm {
  fields: z.output<typeof ArchiveFields>;
  archive: ObjectSummary;
}

/**
 * Lets `use` work with the form's fields and its archive, which is gone when that ends. Fails with
 * `bad_body`, `invalid_request`, `file_too_large`, and with `forbidden` for whoever is no engineer
 * anywhere.
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
  const key = `${FOLDER}${crypto.randomUUID()}.zip`;
  try {
    return await use(await received(parts, request, key));
  } finally {
    await parts.bucket.delete(key);
  }
}

const bytesMax = ({ limits }: Parts) => Math.min(ARCHIVE_BYTES_MAX, limits.uploadBytesMax);

async function received(parts: Parts, request: Request, key: string): Promise<ArchiveForm> {
  const given: Record<string, string> = {};
  let archive: ObjectSummary | null = null;
  const contentType = request.headers.get("Content-Type") ?? undefined;
  for await (const part of formParts(request.body, contentType)) {
    if (part.kind === "field") {
      if (Object.hasOwn(given, part.name)) throw invalid(`${part.name}: given twice`);
      given[part.name] = part.value;
    } else if (part.name !== "file") part.skip();
    else if (archive) throw invalid("file: only one is taken");
    else {
      archive = await writeObject(parts.bucket, part.chunks, {
        key,
        bytesMax: bytesMax(parts),
        headBytes: 4,
        typeOf: zipType,
      });
    }
  }
  const fields = z.strictObject(ArchiveFields.shape).safeParse(given);
  if (!fields.success) {
    const [issue] = fields.error.issues;
    throw invalid(`${issue?.path.join(".") || "form"}: ${issue?.message}`);
  }
  if (!archive) throw invalid("file: required");
  return { fields: fields.data, archive };
}

const invalid = (detail: string) => new Failure("invalid_request", detail);

/** Once an hour, deletes archives that a crash left in the store. */
export async function forgetArchives({ bucket, clock }: Parts): Promise<void> {
  const now = clock();
  if (Math.floor(now / MINUTE_MS) % ROUND_MINUTES !== 0) return;
  const { objects } = await bucket.list({ prefix: FOLDER, limit: 1_000 });
  const orphans = objects.filter(({ uploaded }) => uploaded.getTime() < now - ORPHAN_MS);
  if (orphans.length > 0) await bucket.delete(orphans.map(({ key }) => key));
}
