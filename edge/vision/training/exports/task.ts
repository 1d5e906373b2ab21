// The task of an export: what a node is given, and its enqueueing, which a crash may delay by a
// minute.

import { sql } from "drizzle-orm";
import { EXPORT_FORMATS_TABLE } from "../../../../shared/detector/export-formats.ts";
import { CALIBRATION_IMAGES } from "../../../../shared/wire/exports.ts";
import { rowsOf } from "../../../http/selection.ts";
import type { Parts } from "../../base/parts.ts";
import { listModels, type ModelRow, modelSource } from "../../models/registry.ts";
import { target } from "../../tasks/objects.ts";
import { submit } from "../../tasks/queue/wait.ts";
import { knownOf, rangesFor } from "./dataset.ts";
import { type ExportOptions, kindOf } from "./options.ts";
import { EXPORT, type ExportRow, keysOf, subjectOf } from "./rows.ts";

/** The key under which the task of an export's round was enqueued. */
export const TASK_KEY = sql`${subjectOf("")} || e.id || ':' || e.round`;
const taskKeyOf = ({ exportId, round }: Pick<ExportRow, "exportId" | "round">) =>
  `${subjectOf(exportId)}:${round}`;

/** The options that an export was asked for with. */
export const optionsOfRow = (row: ExportRow): ExportOptions => ({
  format: row.format,
  artifact: row.artifact,
  precision: row.precision,
  output: row.output,
  size: [row.height, row.width],
  batch: row.batch,
  calibrationImages: row.calibrationImages,
});

/** Enqueues an export's task; what a fault keeps from it, the next minute does. */
export const enqueueOrLog = (parts: Parts, row: ExportRow, model: ModelRow): Promise<void> =>
  enqueueExport(parts, row, model).catch((error: unknown) =>
    parts.log.warning("export_not_enqueued", { export_id: row.exportId, error }),
  );

async function enqueueExport(parts: Parts, row: ExportRow, model: ModelRow): Promise<void> {
  const { images, metadata, dataset } = await knownOf(parts, model);
  const options = optionsOfRow(row);
  const calibration = options.precision === "int8" ? await rangesFor(parts, model, options) : null;
  const { extension } = EXPORT_FORMATS_TABLE[row.format];
  const { folder } = keysOf(model, row.exportId);
  await submit(parts, [
    {
      kind: kindOf(options),
      workspaceId: model.workspaceId,
      subject: subjectOf(row.exportId),
      idempotencyKey: taskKeyOf(row),
      payload: {
        export_id: row.exportId,
        round: row.round,
        model: modelSource(model),
        format: row.format,
        artifact: row.artifact,
        precision: row.precision,
        output: row.output,
        size: [row.height, row.width],
        batch: row.batch,
        metadata,
        images,
        dataset,
        calibration_images: row.calibrationImages ?? CALIBRATION_IMAGES.default,
        calibration,
        file: target(`${folder}model.${extension}`, "application/octet-stream"),
      },
    },
  ]);
}

/** Enqueues the exports that a crash kept from it. The minute cron calls it. */
export async function enqueueMissingExports(parts: Parts): Promise<number> {
  const rows = await rowsOf(parts.database, EXPORT)`
    SELECT ${EXPORT} FROM model_export e WHERE e.state = 'queued'
       AND e.created_at < now() - interval '1 minute'
       AND NOT EXISTS (SELECT FROM task WHERE idempotency_key = ${TASK_KEY}) LIMIT 100`;
  for (const row of rows) {
    const [model] = await listModels(parts.database, [row.workspaceId], { modelId: row.modelId });
    if (model) await enqueueOrLog(parts, row, model);
  }
  return rows.length;
}
