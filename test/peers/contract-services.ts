// The services with something in them: a series, a snapshot, and one of everything that a tenant of
// the vision service may have, so that the tools' requests get past the first lookup.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { zipSync } from "fflate";
import type { Description } from "../../edge/http/example-request.ts";
import { commit } from "../../edge/markets/store/commit.ts";
import { EXAMPLES } from "../../edge/vision/description.ts";
import { NODE_PROTOCOL, RegisteredNode } from "../../shared/tasks/node-protocol.ts";
import { EnrolledDevice } from "../../shared/wire/fleet.ts";
import { User } from "../../shared/wire/vision.ts";
import { everything, type Ids } from "../support/everything.ts";
import { mp4, png } from "../support/media.ts";
import { ask, freshAddress, type Person, register } from "../support/vision.ts";
import { type Call, callsOf, type OwnCall } from "./contract-calls.ts";
import type { Services } from "./services.ts";

/** One service as the tools are told of it. */
export interface ServiceDescription {
  name: "markets" | "console" | "vision";
  url: string;
  /** A file with the document that the service serves. */
  document: string;
  /** Credentials by security scheme, as schemathesis names their keys. */
  auth: Record<string, { bearer: string } | { api_key: string }>;
  /** Headers of operations that need other credentials than the rest. */
  operations: { name: string; headers: Record<string, string> }[];
  /** Operations that wait for what does not come here, such as a task for a node. */
  waiting: string[];
  /** Parameters whose value must exist, by name. */
  parameters: Record<string, string>;
  files: typeof FILES;
  /** A call of each operation, for each client. */
  calls: Record<"python" | "heyApi", Call[]>;
}

type EndingOperations = ServiceDescription["operations"];

const HOUR = 3_600_000;
const FROM = Date.UTC(2026, 0, 1);

/** Files of the kinds that are taken, as base64: their first bytes are real. */
export const FILES = {
  video: Buffer.from(mp4()).toString("base64"),
  image: Buffer.from(png()).toString("base64"),
  archive: Buffer.from(
    zipSync({
      "data.yaml": new TextEncoder().encode("names: [person]\n"),
      "labels/crossing_000000.txt": new TextEncoder().encode("0 0.5 0.5 0.2 0.2\n"),
    }),
  ).toString("base64"),
};

/** Fills the services and asks each for its document. */
export async function describeServices(services: Services): Promise<ServiceDescription[]> {
  const parameters = await fillMarkets(services);
  const admin = await register(services.urls.vision);
  const ids = await fillVision(services, admin);
  const nodeToken = await registerNode(services.urls.vision, admin);
  return Promise.all([
    described(services, "markets", {
      auth: { apiKey: { api_key: services.apiKey } },
      parameters,
    }),
    described(services, "console", { auth: { operatorToken: { bearer: services.operatorToken } } }),
    described(services, "vision", {
      auth: {
        accessToken: { bearer: admin.tokens.access_token },
        nodeToken: { bearer: nodeToken },
      },
      ending: () => endingOperations(services.urls.vision),
      devices: () => devicesOperations(services, admin, ids),
      waiting: [
        "POST /api/v1/node/claim",
        "POST /api/v1/jobs/{job_id}/export",
        // By the example of a heartbeat the node predicts, and it is there for a minute after each
        // of its requests: an image waits in the queue for it, which never asks for work. That is
        // right, and by hand, where no heartbeat was sent, each body is answered at once.
        "POST /api/v1/endpoints/{slug}/predict",
        "GET /api/v1/videos/{video_id}/frames/{image}",
      ],
      parameters: ids,
    }),
  ]);
}

/** Whoever does this once is out: somebody else's account, not the one of all the others. */
const endingOperations = (url: string): Promise<EndingOperations> =>
  Promise.all(
    ["POST /api/v1/auth/logout", "POST /api/v1/auth/password"].map(async (name) => {
      const { tokens } = await register(url);
      return { name, headers: { Authorization: `Bearer ${tokens.access_token}` } };
    }),
  );

/** What a device asks for with its own token. */
const DEVICES_OWN = [
  "GET /api/v1/devices/{device_id}/manifest",
  "GET /api/v1/devices/{device_id}/artifact",
  "POST /api/v1/devices/{device_id}/heartbeat",
  "POST /api/v1/devices/{device_id}/token",
  "POST /api/v1/devices/{device_id}/sync-logs",
  "POST /api/v1/devices/{device_id}/images",
];

/** What a device says of itself as it enrols. */
const ABOUT_DEVICE = { agent_version: "1.0.0", platform: "linux-x64", runtime: "peers" };

/** A device that enrolled for each of them: a call ends its token, and others revoke a device. */
const devicesOperations = (services: Services, admin: Person, { project_id }: Ids) =>
  Promise.all(
    DEVICES_OWN.map(async (name) => {
      const { body } = await admin.ask("POST", "/devices", { name: "peers", project_id });
      const answer = await ask(services.urls.vision, "POST", "/devices/enrol", {
        body: { ...ABOUT_DEVICE, code: body.enrolment_code },
        headers: { "CF-Connecting-IP": freshAddress() },
      });
      const { device_id, token } = EnrolledDevice.parse(answer.body);
      return { name, headers: { Authorization: `Bearer ${token}` }, path: { device_id } };
    }),
  );

interface ServiceFacts
  extends Partial<Pick<ServiceDescription, "auth" | "waiting" | "parameters">> {
  /** Makes the devices that a client's calls are made as. */
  devices?: () => Promise<OwnCall[]>;
  /** Makes the credentials of operations that end them. */
  ending?: () => Promise<EndingOperations>;
}

async function described(
  { urls, folder }: Services,
  name: ServiceDescription["name"],
  facts: ServiceFacts,
): Promise<ServiceDescription> {
  const { auth = {}, waiting = [], parameters = {} } = facts;
  const { ending = async () => [], devices = async () => [] } = facts;
  const url = urls[name];
  const document = join(folder, `openapi.${name}.json`);
  const text = await (await fetch(`${url}/openapi.json`)).text();
  writeFileSync(document, text);
  const credentials = Object.fromEntries(
    Object.entries(auth).map(([scheme, credential]) => [scheme, headerOf(credential)]),
  );
  const examples = name === "vision" ? EXAMPLES : {};
  const replaced = Object.fromEntries(
    Object.entries(parameters)
      .filter(([parameter]) => parameter in examples)
      .map(([parameter, value]) => [String(examples[parameter]), value]),
  );
  const calls = async () => {
    const own = [...(await ending()), ...(await devices())];
    const options = { replaced, credentials, operations: own, waiting };
    return callsOf(JSON.parse(text) as Description, options);
  };
  const clients = { python: await calls(), heyApi: await calls() };
  const operations = await ending();
  return {
    name,
    url,
    document,
    auth,
    operations,
    waiting,
    parameters,
    files: FILES,
    calls: clients,
  };
}

/** The header that a credential travels in. */
export const headerOf = (credential: ServiceDescription["auth"][string]): Record<string, string> =>
  "api_key" in credential
    ? { "X-API-Key": credential.api_key }
    : { Authorization: `Bearer ${credential.bearer}` };

/** Two days of hours of one series; returns the parameters that name it. */
async function fillMarkets({ writer }: Services) {
  const named = { library: "power.demand", symbol: "erco" };
  await commit(writer, {
    ...named,
    valueColumns: ["value"],
    rows: Array.from({ length: 48 }, (_, index) => ({
      datetime: FROM + index * HOUR,
      instrumentId: "power.demand.erco",
      values: [index === 7 ? Number.NaN : 40_000 + index],
    })),
    covered: { from: FROM, to: FROM + 48 * HOUR },
    reconstructed: false,
    sandbox: true,
    runId: crypto.randomUUID(),
    partition: "2026-01-01",
    sourceUrl: "https://api.eia.gov/v2/",
  });
  return named;
}

/** One of everything in the admin's own workspace; returns ids by the parameter that takes each. */
async function fillVision({ visionDatabase, media }: Services, admin: Person) {
  const { workspaces } = User.parse((await admin.ask("GET", "/auth/me")).body);
  const workspaceId = workspaces[0]?.workspace_id ?? "";
  const ids = await everything({ visionDatabase, media }, { workspaceId, member: admin });
  // What the examples of the description name: points and boxes of a frame, a file in the store.
  await visionDatabase.execute(sql`UPDATE video SET width = 640, height = 360`);
  await media.put(`ws/${workspaceId}/in/crossing.mp4`, mp4());
  // A run needs a frame to learn from, and one to measure on.
  const line = "0 0.5 0.5 0.2 0.2";
  const yolo = { names: ["person"], labels: { film_000000: line, film_000001: line } };
  const { body } = await admin.ask("POST", "/import", { project_id: ids.project_id, yolo });
  return { ...ids, job_id: String((body.job as { job_id: string }).job_id) };
}

/** A node that never asks for work; returns its token. */
async function registerNode(url: string, admin: Person): Promise<string> {
  const { body: made } = await admin.ask("POST", "/admin/nodes/codes");
  const capabilities = {
    version: "0.1.0",
    protocol: NODE_PROTOCOL,
    kinds: ["export"],
    device: { kind: "cpu", name: "peers", count: 1 },
    memory_bytes: 1,
    models_bytes_max: 1,
    cores: 1,
    ffmpeg: null,
    segmenters: [],
    weights: [],
    slots: 1,
    missing: [],
  };
  const { body } = await ask(url, "POST", "/node/register", {
    body: { code: made.code, name: "peers", capabilities },
  });
  return RegisteredNode.parse(body).node_token;
}
