// Objects that a node says it wrote. Nothing of it is believed: what a run keeps lies in the run's
// own folder, is there whole, and is nothing that somebody else relies on.

import { sql } from "drizzle-orm";
import type { Checkpoint, RunArtifact } from "../../../../shared/tasks/train-task.ts";
import { pagesOf } from "../../../http/object-pages.ts";
import type { Parts } from "../../base/parts.ts";
import { folderOf, manifestKey, type RunRow } from "./runs.ts";

type Run = Pick<RunRow, "workspaceId" | "runId">;
type ObjectParts = Pick<Parts, "bucket" | "database">;

/** Models of the registry whose weights lie in a folder, whatever became of their run. */
export async function modelsIn({ database }: Pick<Parts, "database">, folder: string) {
  const { rows } = await database.execute<{ key: string; round: number }>(
    sql`SELECT storage_key AS key, round FROM model WHERE starts_with(storage_key, ${folder})`,
  );
  return rows;
}

/** Why an object that a node reported cannot be taken, or null. */
async function lackOf(
  { bucket }: Pick<Parts, "bucket">,
  run: Run,
  { key, bytes }: { key: string; bytes: number },
): Promise<string | null> {
  if (!key.startsWith(folderOf(run))) return "the node named weights that are not the run's";
  const object = await bucket.head(key);
  if (!object) return "the weights that the node reported are not in the store";
  if (object.size === bytes) return null;
  return `the weights are ${object.size} bytes in the store; the node reported ${bytes}`;
}

/** The SHA-256 of an object, in hex, read as a stream; null where it is not there. */
export async function sha256Of(
  { bucket }: Pick<Parts, "bucket">,
  key: string,
): Promise<string | null> {
  const object = await bucket.get(key);
  if (!object) return null;
  const digest = new crypto.DigestStream("SHA-256");
  await object.body.pipeTo(digest);
  return Array.from(new Uint8Array(await digest.digest), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}

/** Why weights cannot be registered as the model of this round, or null. */
export async function weightsLack(
  parts: ObjectParts,
  run: Run & Pick<RunRow, "round">,
  weights: { key: string; bytes: number; sha256: string },
): Promise<string | null> {
  const lack = await lackOf(parts, run, weights);
  if (lack) return lack;
  if ((await sha256Of(parts, weights.key)) !== weights.sha256) {
    return "the weights in the store are not those of the SHA-256 that the node reported";
  }
  const models = await modelsIn(parts, folderOf(run));
  const taken = models.some(({ key, round }) => key === weights.key && round !== run.round);
  return taken ? "the node named the weights of another model" : null;
}

/** The checkpoint, if a run may go on from it and may let it go one day; otherwise null. */
export async function takenCheckpoint(
  parts: ObjectParts,
  run: Run,
  checkpoint: Checkpoint,
): Promise<Checkpoint | null> {
  const { key } = checkpoint;
  if (key === manifestKey(run) || (await lackOf(parts, run, checkpoint))) return null;
  const models = await modelsIn(parts, folderOf(run));
  return models.some((one) => one.key === key) ? null : checkpoint;
}

/** The artifacts of a report that lie in the store as it says; the last one of each name. */
export async function takenArtifacts(
  { bucket }: Pick<Parts, "bucket">,
  run: Run,
  artifacts: readonly RunArtifact[],
): Promise<RunArtifact[]> {
  if (artifacts.length === 0) return [];
  const sizes = new Map<string, number>();
  for await (const page of pagesOf(bucket, folderOf(run))) {
    for (const { key, size } of page) sizes.set(key, size);
  }
  const there = artifacts.filter(({ key, bytes }) => sizes.get(key) === bytes);
  return [...new Map(there.map((one) => [one.name, one])).values()];
}
