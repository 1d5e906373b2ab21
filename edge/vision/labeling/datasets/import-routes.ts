// Annotations made elsewhere over HTTP: in a JSON body, or as a zip in a form.

import { z } from "@hono/zod-openapi";
import { type ErrorCode, Failure } from "../../../../shared/errors.ts";
import { ArchiveImport, ImportRecord } from "../../../../shared/wire/labeling.ts";
import { isSilent } from "../../../http/database.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { type Caller, callerOf, workspacesOf } from "../../auth/scope.ts";
import { toItsEnd } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { findProjectFor } from "../../media/projects/projects.ts";
import { jobRecord } from "../jobs/jobs.ts";
import { readArchive } from "./archive.ts";
import { type ArchiveForm, withArchive } from "./archive-form.ts";
import { ARCHIVE_CONTENTS, ARCHIVE_FORMATS, archiveLabels } from "./archive-labels.ts";
import { beginImport, importOf, importRecord, resultOf } from "./image-imports.ts";
import { advanceImport } from "./import-steps.ts";
import { bodyLabels, Import, type ImportRequest, importJob } from "./imports.ts";

const tag = "Datasets";
/** Bytes of labels in JSON; larger ones come as a zip. */
const IMPORT_BYTES_MAX = 32 * 1024 * 1024;
/** How long a request works on an import with images before the minute cron goes on with it. */
const IMPORT_WAIT_MS = 15_000;

const importResponses = {
  201: json("the job, and what was not stored", ImportRecord),
};

async function imported(
  parts: Parts,
  caller: Caller,
  request: ImportRequest,
): Promise<ImportRecord> {
  const { jobId: id, ...found } = await importJob(parts, caller, request);
  return resultOf(await jobRecord(parts.database, workspacesOf(caller), id), found);
}

/** Imports the labels of an archive, and its images where the form asks for them. */
async function importedArchive(
  parts: Parts,
  caller: Caller,
  form: ArchiveForm,
): Promise<ImportRecord | ArchiveImport> {
  const { fields, archive } = form;
  if (fields.images) {
    const { format, name } = fields;
    const project = await findProjectFor(parts, caller, fields.project_id, "engineer");
    const order = { project, name, format, createdBy: caller.accountId };
    const isBegun =
      archive.begun ??
      (await beginImport(parts, order, archive).catch((thrown: unknown) => {
        // An import that may have been recorded keeps its archive.
        if (isSilent(thrown)) form.keep();
        throw thrown;
      }));
    if (isBegun) {
      form.keep();
      return importedImages(parts, caller, archive.id);
    }
  }
  if (archive.begun) {
    throw new Failure("state_conflict", "upload_id: the archive was imported; upload it again");
  }
  return imported(parts, caller, {
    target: fields,
    read: async (isKnown) =>
      archiveLabels(await readArchive(parts.bucket, archive), { format: fields.format, isKnown }),
  });
}

/** Works on an import for some seconds: its result, or how far it is. Fails where it failed. */
async function importedImages(
  parts: Parts,
  caller: Caller,
  id: string,
): Promise<ImportRecord | ArchiveImport> {
  await advanceImport(parts, id, parts.clock() + IMPORT_WAIT_MS, { waits: true }).catch(
    // The minute cron goes on with it.
    (error: unknown) => parts.log.error("import_not_advanced", { import_id: id, error }),
  );
  const row = await importOf(parts.database, workspacesOf(caller), id);
  if (!row) throw new Failure("not_found", "the project was deleted meanwhile");
  if (row.state === "failed") {
    // Only codes of the table are stored.
    const code = row.failureCode as ErrorCode;
    throw new Failure(code, row.failure ?? "", { data: { import_id: id, images: row.images } });
  }
  const record = await importRecord(parts.database, row);
  return record.result ?? record;
}

/**
 * The form is read by hand. Described without a zod schema: one would have the chassis take the
 * whole body into memory to validate it.
 */
const archiveForm = {
  required: true,
  content: {
    "multipart/form-data": {
      schema: {
        type: "object" as const,
        properties: {
          project_id: { type: "string" as const, format: "uuid" },
          name: { type: "string" as const, minLength: 1, maxLength: 200, default: "Import" },
          format: { type: "string" as const, enum: [...ARCHIVE_FORMATS] },
          images: {
            type: "string" as const,
            enum: ["true", "false"],
            default: "false",
            description: "whether images of the archive that the project lacks are stored, too",
          },
          upload_id: { type: "string" as const, format: "uuid" },
          file: { type: "string" as const, format: "binary" },
        },
        required: ["project_id"],
      },
    },
  },
};

/** Routes of imports. */
export const importRoutes: readonly Route[] = [
  route(
    {
      call: "POST /import",
      operationId: "importAnnotations",
      tag,
      summary: "Import COCO or YOLO annotations as a finished job",
      description:
        "Beyond the contract; for engineers. An image is a still of the project by its path or file " +
        "name, or `<video name>_<six digits>`, as exports name the frames of videos; without an " +
        "extension it must be the only one of its name. What may be several images, is numbered by " +
        "no class, or is of an image of another shape is refused. Shapes are cut at the frame.",
      who: user,
      body: jsonBody(Import, { bytesMax: IMPORT_BYTES_MAX }),
      open: ["body.coco"],
      answers: importResponses,
      errors: ["not_found"],
    },
    async (context) => {
      const body = context.req.valid("json");
      const request = { target: body, read: () => bodyLabels(body) };
      return context.json(await imported(context.var.service, callerOf(context), request), 201);
    },
  ),
  route(
    {
      call: "POST /import/archive",
      operationId: "importArchive",
      tag,
      summary: "Import a zip of annotations as a finished job",
      description:
        `Beyond the contract; for engineers. A zip of ${Object.values(ARCHIVE_CONTENTS).join(", or ")}: ` +
        "boxes or masks, such as our exports. The format is told by the content; `format` names one " +
        "of several. Images are found as by `POST /import`, or without the eight digits that Label " +
        "Studio puts before a name. With `images=true`, images of the zip become stills of the project, " +
        "unless it has the same image under the same path; those that are not taken are named, and the " +
        "others imported. Where that takes longer than some seconds, 202 names the import, of which " +
        "`GET /imports/{import_id}` tells; of a failed one, stored images stay. Of a Label Studio task " +
        "the ground truth is taken, else the newest annotation; predictions only where no task has an " +
        "annotation. Refused are zips of over 100,000 files, 50,000 or 32 MiB of texts (256 MiB of JSON " +
        "with LabelMe's embedded images), texts that shrank over 200 times, encrypted files, links, " +
        "paths that lead elsewhere, and names that come twice. Where a body may be no larger than about " +
        "100 MB, upload the zip with `POST /uploads` as `archive` and give its `upload_id` in the place " +
        "of `file`; the same `upload_id` again is the same import. Sides of the split that the zip " +
        "tells (lists, data.yaml, document names, CVAT's subsets, folders) are kept with the job: its " +
        "trainings, exports and datasets use them.",
      who: user,
      body: archiveForm,
      answers: {
        201: importResponses[201],
        202: json("the import with images, which goes on", ArchiveImport),
      },
      errors: ["bad_body", "not_found", "file_too_large", "quota_exceeded", "state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const work = withArchive(parts, caller, context.req.raw, (form) =>
        importedArchive(parts, caller, form),
      );
      const found = await toItsEnd(context, work);
      return "job" in found ? context.json(found, 201) : context.json(found, 202);
    },
  ),
  route(
    {
      call: "GET /imports/{import_id}",
      operationId: "readImport",
      tag,
      summary: "How far an import with images is, and what came of it",
      description: "Beyond the contract. Its job is there, whole, once it is `completed`.",
      who: user,
      params: z.object({ import_id: z.uuid() }),
      answers: { 200: json("the import", ArchiveImport) },
    },
    async (context) => {
      const { database } = context.var.service;
      const id = context.req.valid("param").import_id;
      const row = await importOf(database, workspacesOf(callerOf(context)), id);
      if (!row) throw new Failure("not_found", "no such import in your workspaces");
      return context.json(await importRecord(database, row), 200);
    },
  ),
];
