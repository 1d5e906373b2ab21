// What benchmarks of predictions begin with: somebody who may ask, an active model, images, and a
// node that answers.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { API } from "../../edge/vision/base/api.ts";
import { createCode } from "../../edge/vision/tasks/nodes/nodes.ts";
import { IMAGE_ARGUMENTS } from "../../gpu-node/node/slot.ts";
import type { ModelSource } from "../../shared/tasks/tasks.ts";
import { systemClock } from "../../shared/time.ts";
import { noiseImage } from "../support/noise.ts";
import { type RegisteredModel, registerModel } from "../support/registered-model.ts";
import type { MediaBucket } from "../support/world.ts";
import { type Answer, postImage } from "./image-client.ts";
import { startVision } from "./vision-world.ts";

export interface ServingWorld {
  /** The active model, and another one that looks like it. */
  model: RegisteredModel;
  other: RegisteredModel;
  /** The active model's file in the registry. */
  weights: Uint8Array;
  /** Asks for what is on an image, of the active model or of the endpoint of a slug. */
  predict(image: Uint8Array, slug?: string): Promise<Answer>;
  /** Calls a route with a body of JSON; fails unless it succeeds. */
  call(method: string, path: string, body?: unknown): Promise<unknown>;
  /** Has the node tell the service of no line, until its next heartbeat. */
  hideLine(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts the service and a node, and waits until the node has answered. The service's database is
 * `databaseMs` milliseconds away.
 */
export async function startServing(
  variant: ModelSource["variant"],
  imageSize: number,
  { databaseMs = 0 } = {},
): Promise<ServingWorld> {
  const vision = await startVision(null, databaseMs);
  const { workers, database } = vision;
  const { base, token, model, media, workspaceId } = await beginServing(vision, {
    variant,
    imageSize,
  });
  const authorization = { Authorization: `Bearer ${token}` };
  const other = await registerModel({ visionDatabase: database, media }, workspaceId, {
    variant,
    image_size: imageSize,
    seed: 2,
  });
  const stored = (await media.get(model.weights.key)) as { arrayBuffer(): Promise<ArrayBuffer> };
  const dir = mkdtempSync(join(tmpdir(), "vantage-bench-node-"));
  const { code } = await createCode(
    { database, clock: systemClock },
    { createdBy: null, workspaceId: null },
  );
  const node = spawn(
    process.execPath,
    ["--disable-warning=ExperimentalWarning", ...IMAGE_ARGUMENTS, "gpu-node/main.ts"],
    {
      env: {
        PATH: process.env.PATH,
        HOME: dir,
        VANTAGE_NODE_DIR: dir,
        VANTAGE_URL: workers.urls.vision,
        VANTAGE_NODE_CODE: code,
      },
      stdio: "ignore",
    },
  );
  const predict = (image: Uint8Array, slug?: string) =>
    postImage(
      `${base}${slug ? `/endpoints/${slug}/predict` : "/predict/image"}`,
      image,
      authorization,
    );
  const world: ServingWorld = {
    model,
    other,
    weights: new Uint8Array(await stored.arrayBuffer()),
    predict,
    call: async (method, path, body) => {
      const answer = await fetch(base + path, {
        method,
        headers: { ...authorization, "Content-Type": "application/json" },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      if (!answer.ok) throw new Error(`${method} ${path}: ${await answer.text()}`);
      return answer.json();
    },
    hideLine: async () => {
      await database.execute(sql`UPDATE node SET capabilities = capabilities || '{"line": false}'`);
    },
    stop: async () => {
      node.kill("SIGKILL");
      if (node.exitCode === null) await once(node, "exit");
      await vision.stop();
      rmSync(dir, { recursive: true, force: true });
    },
  };
  // The node opens the model with the first request.
  const image = await photograph(1_280, 720, { quality: 92 });
  while ((await predict(image)).status !== 200) {
    await new Promise((done) => setTimeout(done, 500));
  }
  await new Promise((done) => setTimeout(done, 2_000));
  return world;
}

/** Registers an admin and a model of generated weights, which is the active one. */
export async function beginServing(
  { workers, database }: Pick<Awaited<ReturnType<typeof startVision>>, "workers" | "database">,
  { variant, imageSize }: { variant: string; imageSize: number },
) {
  const base = workers.urls.vision + API;
  const person = { email: "b@example.com", password: "of the bench, long", display_name: "B" };
  const registered = await fetch(`${base}/auth/register`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(person),
  });
  const { access_token: token } = (await registered.json()) as { access_token: string };
  await database.execute(sql`UPDATE membership SET role = 'admin'`);
  const { rows } = await database.execute<{ id: string }>(sql`SELECT id::text FROM workspace`);
  // The types of a bucket as Miniflare gives it and as tests take it differ in what may be put.
  const media = (await workers.media()) as never as MediaBucket;
  const workspaceId = rows[0]?.id ?? "";
  const model = await registerModel({ visionDatabase: database, media }, workspaceId, {
    variant: variant as ModelSource["variant"],
    image_size: imageSize,
  });
  await database.execute(sql`UPDATE model SET active = true WHERE id = ${model.model_id}::uuid`);
  return { base, token, model, media, workspaceId };
}

/** A photograph's worth of detail: noise that was made smooth, as a JPEG. */
export const photograph = (
  width: number,
  height: number,
  options: { quality: number; progressive?: boolean },
) => noiseImage(width, height).blur(2).jpeg(options).toBuffer();
