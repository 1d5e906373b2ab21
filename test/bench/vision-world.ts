// The vision service for a benchmark: in workerd, over a Postgres of its own.

import { openDatabase } from "../../edge/http/database.ts";
import { databaseUrls, prepareDatabases } from "../../edge/local/databases.ts";
import { startWorkers } from "../../edge/local/workers.ts";
import { Secret } from "../../shared/secret.ts";
import { callerWorker } from "../support/objects.ts";
import { startSharedPostgres } from "../support/postgres.ts";
import { farServer } from "./far-server.ts";

export const SECRET = "a secret of the bench, of 32 characters";

/**
 * Starts it, with inference at the edge where asked, and with a database that is some milliseconds
 * away; `stop` leaves nothing behind.
 */
export async function startVision(
  edge: { imageSize: number; onLog: (line: string) => void } | null = null,
  databaseMs = 0,
) {
  const { shared, state, stop } = await startSharedPostgres();
  await prepareDatabases(shared.port, shared.credentials);
  const { visionWriter } = databaseUrls(shared.endpointPort, shared.credentials);
  const far = databaseMs > 0 ? await farServer(shared.endpointPort, databaseMs) : null;
  const seen = databaseUrls(far?.port ?? shared.endpointPort, shared.credentials);
  const workers = await startWorkers({
    services: edge ? ["infer", "vision"] : ["vision"],
    host: "127.0.0.1",
    persistTo: state.workers,
    ports: { markets: 0, console: 0, vision: 0 },

    s3: { accessKeyId: "bench", secretAccessKey: "bench" },
    bindings: {
      markets: {},
      console: {},
      vision: {
        DATABASE_URL: seen.visionWriter,
        TOKEN_SECRET: SECRET,
        S3_ACCESS_KEY_ID: "bench",
        S3_SECRET_ACCESS_KEY: "bench",
        ...(edge && { EDGE_IMAGE_SIZE: String(edge.imageSize) }),
      },
    },
    onLog: edge?.onLog ?? (() => {}),
    further: [callerWorker],
  });
  return {
    shared,
    workers,
    database: openDatabase(new Secret(visionWriter)),
    stop: async () => {
      await workers.stop();
      far?.close();
      await stop();
    },
  };
}
