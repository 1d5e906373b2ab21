// The services with something in them: a series, a snapshot, and one of everything that a tenant of
// the vision service may have, so that the tools' requests get past the first lookup.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { commit } from "../../edge/markets/store/commit.ts";
import { RegisteredNode } from "../../shared/node-protocol.ts";
import { User } from "../../shared/vision.ts";
import { everything } from "../support/everything.ts";
import { ask, type Person, register } from "../support/vision.ts";
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
}

const HOUR = 3_600_000;
const FROM = Date.UTC(2026, 0, 1);

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
      // Whoever does this once is out: somebody else's account, not the one of all the others.
      operations: await Promise.all(
        ["POST /api/v1/auth/logout", "POST /api/v1/auth/password"].map(async (name) => {
          const { tokens } = await register(services.urls.vision);
          return { name, headers: { Authorization: `Bearer ${tokens.access_token}` } };
        }),
      ),
      waiting: [
        "POST /api/v1/node/claim",
        "POST /api/v1/jobs/{job_id}/export",
        "GET /api/v1/videos/{video_id}/frames/{image}",
      ],
      parameters: ids,
    }),
  ]);
}

async function described(
  { urls, folder }: Services,
  name: ServiceDescription["name"],
  more: Partial<ServiceDescription>,
): Promise<ServiceDescription> {
  const url = urls[name];
  const document = join(folder, `openapi.${name}.json`);
  writeFileSync(document, await (await fetch(`${url}/openapi.json`)).text());
  return { name, url, document, auth: {}, operations: [], waiting: [], parameters: {}, ...more };
}

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
  const tenant = { workspaceId: workspaces[0]?.workspace_id ?? "", member: admin };
  return everything({ visionDatabase, media }, tenant);
}

/** A node that never asks for work; returns its token. */
async function registerNode(url: string, admin: Person): Promise<string> {
  const { body: made } = await admin.ask("POST", "/admin/nodes/codes");
  const capabilities = {
    version: "0.1.0",
    kinds: ["export"],
    device: { kind: "cpu", name: "peers", count: 1 },
    memory_bytes: 1,
    cores: 1,
    ffmpeg: null,
    segmenters: [],
    slots: 1,
    missing: [],
  };
  const { body } = await ask(url, "POST", "/node/register", {
    body: { code: made.code, name: "peers", capabilities },
  });
  return RegisteredNode.parse(body).node_token;
}
