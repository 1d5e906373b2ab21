// Annotations made elsewhere over HTTP: in a JSON body, or as a zip in a form.

import { ImportRecord } from "../../../../shared/wire/labeling.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { type Caller, callerOf, workspacesOf } from "../../auth/scope.ts";
import { toItsEnd } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { jobRecord } from "../jobs/jobs.ts";
import { readArchive } from "./archive.ts";
import { withArchive } from "./archive-form.ts";
import { ARCHIVE_CONTENTS, ARCHIVE_FORMATS, archiveLabels } from "./archive-labels.ts";
import { bodyLabels, Import, type ImportRequest, importJob } from "./imports.ts";

const tag = "Datasets";
/** Bytes of labels in JSON; larger ones come as a zip. */
const IMPORT_BYTES_MAX = 32 * 1024 * 1024;

const importResponses = {
  201: json("the job, and what was not stored", ImportRecord),
};

async function imported(parts: Parts, caller: Caller, request: ImportRequest) {
  const { jobId: id, ...found } = await importJob(parts, caller, request);
  return {
    job: await jobRecord(parts.database, workspacesOf(caller), id),
    stored_annotations: found.annotations,
    unmatched: found.unmatched,
    unmatched_annotations: found.unmatchedAnnotations,
    left_out: found.leftOut,
    notes: found.notes,
  };
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
          file: { type: "string" as const, format: "binary" },
        },
        required: ["project_id", "file"],
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
        "Studio puts before a name; " +
        "those in the zip are not taken. Of a Label Studio task the ground truth is taken, else the " +
        "newest annotation; predictions only where no task has an annotation. " +
        "Refused are zips of over 100,000 files, 50,000 or 32 MiB of texts (256 MiB of JSON with " +
        "LabelMe's embedded images), texts that shrank over 200 times, encrypted files, links, paths " +
        "that lead elsewhere, and names that come twice. Where a body may be no larger than about " +
        "100 MB, leave out the images.",
      who: user,
      body: archiveForm,
      answers: importResponses,
      errors: ["bad_body", "not_found", "file_too_large"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const work = withArchive(parts, caller, context.req.raw, ({ fields, archive }) =>
        imported(parts, caller, {
          target: fields,
          read: async (isKnown) =>
            archiveLabels(await readArchive(parts.bucket, archive), {
              format: fields.format,
              isKnown,
            }),
        }),
      );
      return context.json(await toItsEnd(context, work), 201);
    },
  ),
];
