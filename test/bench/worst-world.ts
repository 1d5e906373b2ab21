// The services as `worst-bodies` asks them: all three in one workerd over a Postgres of their own,
// with one of everything that an address or a body can name, and whoever is heard on each route.

import { createHash } from "node:crypto";
import { sql } from "drizzle-orm";
import { adoptBucket } from "../../edge/http/bucket-identity.ts";
import { openDatabase } from "../../edge/http/database.ts";
import {
  type Description,
  type Endpoint,
  endpointsOf,
  exampleRequest,
} from "../../edge/http/example-request.ts";
import { databaseUrls, prepareDatabases } from "../../edge/local/databases.ts";
import { startWorkers } from "../../edge/local/workers.ts";
import { commit } from "../../edge/markets/store/commit.ts";
import { API } from "../../edge/vision/base/api.ts";
import { newDeviceToken } from "../../edge/vision/fleet/devices/access.ts";
import { Secret } from "../../shared/secret.ts";
import { NODE_PROTOCOL } from "../../shared/tasks/node-protocol.ts";
import {
  BODIES,
  BY_BODY,
  everything,
  filled,
  type Ids,
  isDevicesOwn,
} from "../support/everything.ts";
import { type Schema, sampleOf } from "../support/hostile.ts";
import { callerWorker } from "../support/objects.ts";
import { startSharedPostgres } from "../support/postgres.ts";
import type { MediaBucket } from "../support/world.ts";
import { documentTargets, pageTargets } from "./worst-pages.ts";
import type { Target } from "./worst-target.ts";

const HOUR = 3_600_000;
const FROM = Date.UTC(2026, 0, 31);
const OPERATOR_TOKEN = "an operator's token of the bench";
/** Routes that end the session that asks, or count what is wrong against its account. */
const ENDING = /^\/auth\/(logout|password)$/;
const LEAVING = { email: "leaving@example.com", password: "a password of the bench" };
const ACCOUNT = { email: "bench@example.com", password: "a password of the bench" };

/** The answer of a service, its body parsed. */
interface Answer {
  status: number;
  headers: Headers;
  body: Record<string, unknown>;
}

/** Starts it; `stop` leaves nothing behind. */
export async function startWorstWorld() {
  const { shared, state, stop } = await startSharedPostgres();
  await prepareDatabases(shared.port, shared.credentials);
  const urls = databaseUrls(shared.endpointPort, shared.credentials);
  const workers = await startWorkers({
    services: ["markets", "console", "vision"],
    host: "127.0.0.1",
    ports: { markets: 0, console: 0, vision: 0 },
    persistTo: state.workers,

    s3: { accessKeyId: "bench", secretAccessKey: "bench" },
    bindings: {
      markets: { DATABASE_URL: urls.marketsReader, GRAPH_DATABASE_URL: urls.graphReader },
      console: {
        DATABASE_URL: urls.marketsWriter,
        GRAPH_DATABASE_URL: urls.graphWriter,
        OPERATOR_TOKEN,
        BEHIND_CLOUDFLARE: "true",
      },
      vision: {
        DATABASE_URL: urls.visionWriter,
        TOKEN_SECRET: "a secret of the bench, of 32 characters",
        DEVICE_SIGNING_KEY: "a signing key of the bench that has no comma",
        SEALING_KEY: "a sealing key of the bench with 40 letters",
        // Every request of the bench has an address of its own, so that none is throttled.
        BEHIND_CLOUDFLARE: "true",
        OUTBOUND_HOSTS: "127.0.0.1",
        S3_ACCESS_KEY_ID: "bench",
        S3_SECRET_ACCESS_KEY: "bench",
      },
    },
    onLog: () => {},
    further: [callerWorker],
  });
  const database = openDatabase(new Secret(urls.marketsWriter));
  const bucket = await workers.bucket();
  const visionDatabase = openDatabase(new Secret(urls.visionWriter));
  const media = (await workers.media()) as MediaBucket;
  await adoptBucket({ database, bucket });
  await adoptBucket({ database: visionDatabase, bucket: media });
  const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));
  await commit(
    { database, bucket, pause },
    {
      library: "power.demand",
      symbol: "erco",
      valueColumns: ["value"],
      rows: [{ datetime: FROM, instrumentId: "power.demand.erco", values: [41_234] }],
      covered: { from: FROM, to: FROM + HOUR },
      reconstructed: false,
      sandbox: false,
      runId: crypto.randomUUID(),
      partition: "2026-01-31",
      sourceUrl: "https://api.eia.gov/v2/",
    },
  );
  const vision = await visionTargets(workers.urls.vision, { visionDatabase, media });
  const targets = [
    ...vision,
    ...(await marketsTargets("console", workers.urls.console)),
    ...(await marketsTargets("markets", workers.urls.markets)),
    ...(["vision", "console", "markets"] as const).flatMap((service) =>
      documentTargets(service, workers.urls[service]),
    ),
    ...(await pageTargets(workers.urls.console, OPERATOR_TOKEN)),
  ];
  return {
    shared,
    targets,
    stop: async () => {
      await workers.stop();
      await stop();
    },
  };
}

let addresses = 0;
/** The header of an address that nobody has asked from. */
export const freshAddress = () => ({
  "CF-Connecting-IP": `198.${18 + (addresses >> 16)}.${(addresses >> 8) & 255}.${addresses++ & 255}`,
});

const describe = async (url: string) =>
  (await (await fetch(`${url}/openapi.json`)).json()) as Description;

/** What a route's description says of its JSON body. */
function jsonBodyOf({ operation }: Endpoint): Pick<Target, "schema" | "bytesMax"> {
  const requestBody = operation.requestBody as Record<string, unknown> | undefined;
  const schema = operation.requestBody?.content?.["application/json"]?.schema as Schema | undefined;
  return { schema, bytesMax: schema ? Number(requestBody?.["x-bytes-max"] ?? 2 ** 20) : null };
}

async function marketsTargets(service: "markets" | "console", url: string): Promise<Target[]> {
  const document = await describe(url);
  const headers = service === "console" ? { Authorization: `Bearer ${OPERATOR_TOKEN}` } : {};
  const ids: Ids = {
    job: "grid_region",
    schedule: "grid_region",
    instrument_id: "power.demand.erco",
  };
  return endpointsOf(document).map((endpoint) => {
    const { method, path } = endpoint;
    const [, search = ""] = exampleRequest(endpoint, document).path.split("?");
    const address = path.replace(
      /\{(\w+)\}/g,
      (_, name: string) => ids[name] ?? crypto.randomUUID(),
    );
    const body = jsonBodyOf(endpoint);
    return {
      service,
      route: `${method} ${path}`,
      endpoint,
      document,
      url: `${url}${address}${search && `?${search}`}`,
      ...body,
      body: body.schema && sampleOf(body.schema, document),
      credential: async () => headers,
    };
  });
}

async function visionTargets(
  url: string,
  world: Parameters<typeof everything>[0],
): Promise<Target[]> {
  const ask = async (
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer> => {
    const isForm = body instanceof FormData;
    const sent = isForm ? body : JSON.stringify(body);
    const answer = await fetch(url + API + path, {
      method,
      headers: {
        ...(isForm || body === undefined ? {} : { "Content-Type": "application/json" }),
        ...freshAddress(),
        ...headers,
      },
      ...(body === undefined ? {} : { body: sent as string }),
    });
    const text = await answer.text();
    const isJson = answer.headers.get("Content-Type")?.includes("json");
    return {
      status: answer.status,
      headers: answer.headers,
      body: (isJson ? JSON.parse(text) : { text }) as Record<string, unknown>,
    };
  };
  for (const one of [ACCOUNT, LEAVING])
    await ask("POST", "/auth/register", { ...one, display_name: "bench" });
  /** Of a new session, of somebody else. */
  const leaving = async () => {
    const { body } = await ask("POST", "/auth/login", LEAVING);
    return { Authorization: `Bearer ${body.access_token}` };
  };
  let token = "";
  let tokenEnds = 0;
  /** Of a session that has time left. */
  const bearer = async () => {
    if (performance.now() > tokenEnds) {
      const { body } = await ask("POST", "/auth/login", ACCOUNT);
      token = String(body.access_token);
      tokenEnds = performance.now() + (Number(body.expires_in ?? 600) * 1_000) / 2;
    }
    return { Authorization: `Bearer ${token}` };
  };
  const asMember: typeof ask = async (method, path, body, headers = {}) =>
    ask(method, path, body, { ...(await bearer()), ...headers });
  const me = await asMember("GET", "/auth/me");
  const [{ workspace_id }] = me.body.workspaces as [{ workspace_id: string }];
  const member = { id: String(me.body.user_id), ask: asMember };
  // What is made needs of a tenant no more than its id and somebody who asks.
  const tenant = { workspaceId: workspace_id, member } as Parameters<typeof everything>[1];
  const { body: code } = await asMember("POST", "/admin/nodes/codes", {});
  const capabilities = {
    version: "0.1.0",
    protocol: NODE_PROTOCOL,
    kinds: ["probe"],
    device: { kind: "cpu", name: "bench", count: 1 },
    memory_bytes: 1,
    models_bytes_max: 1,
    cores: 1,
    ffmpeg: null,
    segmenters: [],
    weights: [],
    slots: 1,
    missing: [],
  };
  const introduced = { code: code.code, name: "bench", capabilities };
  const node = await ask("POST", "/node/register", introduced);
  const byNode = { Authorization: `Bearer ${node.body.node_token}` };
  const ids: Ids = { ...(await everything(world, tenant)) };
  const claimed = await ask("POST", "/node/claim", { kinds: ["probe"] }, byNode);
  ids.task_id = String(claimed.body.task_id);
  const deviceToken = newDeviceToken();
  const hash = createHash("sha256").update(deviceToken).digest("hex");
  await world.visionDatabase.execute(sql`
    WITH enrolled AS (UPDATE device SET enrolled_at = now() WHERE id = ${ids.device_id}::uuid)
    INSERT INTO device_token (hash, device_id, used_at)
    VALUES (decode(${hash}, 'hex'), ${ids.device_id}::uuid, now())`);
  const byDevice = { Authorization: `Bearer ${deviceToken}` };
  const credentialOf = (path: string): Target["credential"] => {
    if (path.startsWith("/node")) return async () => byNode;
    if (isDevicesOwn(path)) return async () => byDevice;
    return ENDING.test(path) ? leaving : bearer;
  };
  const document = await describe(url);
  return endpointsOf(document).map((endpoint) => {
    const { method, path } = endpoint;
    const own = path.replace(API, "");
    const route = `${method} ${own}`;
    const body = jsonBodyOf(endpoint);
    const made = (BODIES[route] ?? BY_BODY[route])?.(ids);
    const sample = body.schema && sampleOf(body.schema, document);
    const valid = made === undefined || made instanceof FormData ? sample : made;
    const isTask = own.startsWith("/node/tasks/");
    const known = filled(own, ids) ?? own.replace(/\{\w+\}/g, () => crypto.randomUUID());
    return {
      service: "vision" as const,
      route,
      endpoint,
      document,
      url: url + (path.startsWith(API) ? API : "") + known,
      ...body,
      body: isTask ? { ...(valid as object), fence: claimed.body.fence } : valid,
      credential: credentialOf(own),
    };
  });
}
