// Models in the registry of a vision world, with weights that tests generate.

import { sql } from "drizzle-orm";
import type { ModelSource } from "../../shared/tasks/tasks.ts";
import { generatedModel } from "./weights.ts";
import type { World } from "./world.ts";

/** Where its weights go. */
interface ModelStore {
  put(key: string, file: Buffer<ArrayBuffer>): Promise<unknown>;
}

export interface RegisteredModel extends ModelSource {
  name: string;
}

/** How a model is registered. */
type Registration = Parameters<typeof generatedModel>[1] & {
  name?: string;
  /**
   * A model of the same shape, whose weights it shares: to store ten million bytes takes longer
   * than most tests.
   */
  weightsOf?: RegisteredModel | undefined;
};

/** A model as a training would have registered it; nothing names it yet. */
export async function registerModel(
  world: Pick<World, "visionDatabase"> & { media: ModelStore },
  workspaceId: string,
  more: Registration = {},
): Promise<RegisteredModel> {
  const { name = `model ${crypto.randomUUID().slice(0, 8)}`, weightsOf, ...given } = more;
  const id = crypto.randomUUID();
  const key = weightsOf?.weights.key ?? `ws/${workspaceId}/models/${id}/weights.safetensors`;
  let file: Buffer<ArrayBuffer> = Buffer.alloc(0);
  const made = generatedModel(
    (_, bytes) => {
      file = bytes as Buffer<ArrayBuffer>;
      return { url: "", key, bytes: bytes.length };
    },
    { model_id: id, ...given },
  );
  if (!weightsOf) await world.media.put(key, file);
  await world.visionDatabase.execute(sql`
    INSERT INTO model (id, workspace_id, name, version, variant, task, classes, image_size,
      parameters, storage_key, bytes, sha256)
    SELECT ${made.model_id}::uuid, ${workspaceId}::uuid, ${name}, 1, ${made.variant}, ${made.task},
      (SELECT array_agg(value) FROM jsonb_array_elements_text(${JSON.stringify(made.classes)}::jsonb)),
      ${made.image_size}::int, 1, ${key}, ${file.length}::bigint, ${made.sha256}`);
  return { ...made, name };
}

/** The same, and the workspace's active model. */
export async function activeModel(
  world: Parameters<typeof registerModel>[0],
  workspaceId: string,
  more: Parameters<typeof registerModel>[2] = {},
): Promise<RegisteredModel> {
  const model = await registerModel(world, workspaceId, more);
  const own = sql`workspace_id = ${workspaceId}::uuid`;
  // Two statements: at no moment are two of them active.
  await world.visionDatabase.execute(sql`UPDATE model SET active = false WHERE ${own} AND active`);
  await world.visionDatabase.execute(
    sql`UPDATE model SET active = true WHERE id = ${model.model_id}::uuid`,
  );
  return model;
}
