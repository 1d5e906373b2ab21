// The services as the reference tools meet them: in workerd on free ports, over a Postgres of their
// own, with the sandbox for an upstream. Nothing is left behind when they stop.

import { join } from "node:path";
import { type Database, openDatabase } from "../../edge/http/database.ts";
import { databaseUrls, prepareDatabases } from "../../edge/local/databases.ts";
import { type GpuNode, startGpuNode } from "../../edge/local/gpu-node.ts";
import { startSandbox } from "../../edge/local/sandbox/server.ts";
import { SERVICES, startWorkers, type Workers } from "../../edge/local/workers.ts";
import type { WriterParts } from "../../edge/markets/store/objects.ts";
import { Secret } from "../../shared/secret.ts";
import { startSharedPostgres } from "../support/postgres.ts";
import type { Person } from "../support/vision.ts";
import type { World } from "../support/world.ts";

export interface Services {
  urls: Workers["urls"];
  /** Of the read API, in `X-API-Key`. */
  apiKey: string;
  /** Of the console, as a bearer token. */
  operatorToken: string;
  /** Of `/metrics` of the console and of vision, as a bearer token. */
  metricsToken: string;
  /** Commits to the markets' store. */
  writer: WriterParts;
  visionDatabase: Database;
  /** The vision service's bucket. */
  media: World["media"];
  /** A folder of the run, for the node, the tools and their files. */
  folder: string;
  stop(): Promise<void>;
}

/** The node's program with the tests' quick segmenter, for groups that label nothing. */
export const QUICK_NODE = join(import.meta.dirname, "../support/node-main.ts");

/** Starts a node for the vision service, in the run's folder; `admin` gives its code. */
export function startNode(
  { urls, folder }: Services,
  admin: Person,
  more: Partial<Pick<Parameters<typeof startGpuNode>[0], "entry" | "environment">> = {},
): GpuNode {
  return startGpuNode({
    url: urls.vision,
    dir: join(folder, "node"),
    modelsDir: join(folder, "models"),
    environment: process.env,
    onLine: () => {},
    code: async () => {
      const { status, body } = await admin.ask("POST", "/admin/nodes/codes");
      if (status >= 300) throw new Error(`no code for a node: ${JSON.stringify(body)}`);
      return String(body.code);
    },
    ...more,
  });
}

const pause = (milliseconds: number) =>
  new Promise<void>((resolve) => setTimeout(resolve, milliseconds));

/** Starts all three services; a setting of the read API may be given. */
export async function startServices(
  markets: Readonly<Record<string, string>> = {},
): Promise<Services> {
  const { shared, state, stop: stopPostgres } = await startSharedPostgres();
  await prepareDatabases(shared.port, shared.credentials);
  const urls = databaseUrls(shared.endpointPort, shared.credentials);
  const sandbox = await startSandbox();
  const apiKey = crypto.randomUUID();
  const operatorToken = crypto.randomUUID();
  const metricsToken = crypto.randomUUID();
  const workers = await startWorkers({
    services: SERVICES,
    host: "127.0.0.1",
    ports: { markets: 0, console: 0, vision: 0 },
    persistTo: state.workers,
    s3: { accessKeyId: "peers", secretAccessKey: "peers" },
    bindings: {
      markets: {
        DATABASE_URL: urls.marketsReader,
        GRAPH_DATABASE_URL: urls.graphReader,
        SERVICE_READ_API_KEY: apiKey,
        ...markets,
      },
      console: {
        DATABASE_URL: urls.marketsWriter,
        GRAPH_DATABASE_URL: urls.graphWriter,
        OPERATOR_TOKEN: operatorToken,
        METRICS_TOKEN: metricsToken,
        SANDBOX_URL: sandbox.url,
      },
      vision: {
        DATABASE_URL: urls.visionWriter,
        TOKEN_SECRET: "a secret of the peers, of 32 characters",
        SEALING_KEY: "a sealing key of the peers that has 40 letters",
        METRICS_TOKEN: metricsToken,
        S3_ACCESS_KEY_ID: "peers",
        S3_SECRET_ACCESS_KEY: "peers",
      },
    },
    onLog: () => {},
  });
  const database = openDatabase(new Secret(urls.marketsWriter));
  return {
    urls: workers.urls,
    apiKey,
    operatorToken,
    metricsToken,
    writer: { database, bucket: await workers.bucket(), pause },
    visionDatabase: openDatabase(new Secret(urls.visionWriter)),
    media: (await workers.media()) as World["media"],
    folder: state.dir,
    stop: async () => {
      await workers.stop();
      await sandbox.close();
      await stopPostgres();
    },
  };
}
