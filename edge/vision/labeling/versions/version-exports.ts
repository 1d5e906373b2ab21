// Exports of a dataset's versions: the same archives as those of a job, of a manifest that is
// written down already.

import { Failure } from "../../../../shared/errors.ts";
import type { Parts } from "../../base/parts.ts";
import { breaksReference } from "../../base/sql.ts";
import { source } from "../../tasks/objects.ts";
import { enqueueExport, keysOf, type LayoutOptions } from "../datasets/exports.ts";
import type { DatasetRow } from "./dataset-rows.ts";
import { presentObjects, type VersionRow } from "./versions.ts";

/**
 * Enqueues the making of a version's archive; returns the export's id. The export has the manifest
 * as an object of its own. Fails with `state_conflict` when videos of the version were deleted.
 */
export async function startVersionExport(
  parts: Parts,
  { workspaceId }: Pick<DatasetRow, "workspaceId">,
  {
    version,
    options,
    createdBy,
  }: { version: VersionRow; options: LayoutOptions; createdBy: string },
): Promise<string> {
  const id = crypto.randomUUID();
  const { sources } = await presentObjects(parts.database, version);
  const held = await parts.bucket.get(version.storageKey);
  if (!held) throw new Failure("state_conflict", "the dataset was deleted meanwhile");
  const { manifest: key } = keysOf(workspaceId, id);
  await parts.bucket.put(key, held.body, { httpMetadata: { contentType: "application/json" } });
  const { train, val, test, left_out_frames, left_out_annotated_frames } = version.counts;
  const sum = (count: "frames" | "annotated_frames") => train[count] + val[count] + test[count];
  await enqueueExport(parts, {
    id,
    workspaceId,
    versionId: version.id,
    options,
    manifest: source(key, version.bytes),
    videos: sources.map((one) => source(one.key, one.bytes)),
    summary: {
      total_frames: sum("frames") + left_out_frames,
      annotated_frames: sum("annotated_frames") + left_out_annotated_frames,
      left_out_frames,
      left_out_annotated_frames,
    },
    createdBy,
  }).catch(async (thrown: unknown) => {
    if (!breaksReference(thrown)) throw thrown;
    await parts.bucket.delete(key);
    const detail = "the dataset was deleted meanwhile";
    throw new Failure("state_conflict", detail, { cause: thrown });
  });
  return id;
}
