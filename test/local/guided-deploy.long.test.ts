// A deployment against a simulated account, with a stand-in for wrangler and real databases. Goal:
// one command leads from nothing to green, may run again, and names what only an operator can do
// before it changes anything.

import { spawn } from "node:child_process";
import { chmodSync, existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { databaseUrls } from "../../edge/local/databases.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { ROOT } from "../../edge/local/state.ts";
import { type SimulatedCloudflare, simulateCloudflare } from "../support/cloudflare.ts";
import { temporaryFolder } from "../support/postgres.ts";
import { register } from "../support/vision.ts";
import { createWorld } from "../support/world.ts";

const TOKEN = "hunter2-cloudflare-token";
const S3_SECRET = "hunter2-s3-secret-access-key";
const folder = temporaryFolder();
const envFile = join(folder, "deploy.env");
const wrangler = join(folder, "wrangler");

let cloudflare: SimulatedCloudflare;
let owner: pg.Client;
let names: { markets: string; vision: string };
let services: Server;
/** What each service's `/healthz` answers. */
let health: object;
let environment: Record<string, string>;

/** The command, as an operator types it; `given` sets further variables, and empty ones unset. */
async function deploy(args: string[] = [], given: Record<string, string> = {}) {
  const child = spawn(
    process.execPath,
    [join(ROOT, "edge/local/deploy.ts"), "--settings", envFile, "--health-seconds", "0", ...args],
    {
      env: { PATH: process.env.PATH, HOME: process.env.HOME, ...environment, ...given },
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk) => {
      output += chunk;
    });
  }
  const status = await new Promise<number | null>((ended) => child.on("close", ended));
  for (const secret of secretsOf()) expect(output).not.toContain(secret);
  return { status, output };
}

/** Every secret that is given, or that a deployment has made. */
function secretsOf(): string[] {
  const passwords = Object.values(environment).flatMap((text) => URL.parse(text)?.password || []);
  const made = existsSync(envFile) ? readFileSync(envFile, "utf8") : "";
  const random = [...made.matchAll(/^\w+(?:TOKEN|SECRET|KEY)=(.+)$/gm)].map((match) => match[1]);
  return [TOKEN, S3_SECRET, ...passwords, ...random.flatMap((one) => one ?? [])];
}

/** Columns of what was found: finding and subject of each line. */
const findingsOf = (output: string) =>
  [...output.matchAll(/^(right|missing|different|unknown) +(.+?): /gm)].map(
    ([, finding, subject]) => `${finding} ${subject}`,
  );
const openOf = (output: string) => findingsOf(output).filter((line) => !line.startsWith("right"));

beforeAll(async () => {
  const { port, credentials } = inject("postgres");
  owner = new pg.Client(superuser(port, credentials.superuser));
  await owner.connect();
  services = createServer((_, response) => response.end(JSON.stringify(health)));
  await new Promise<void>((listening) => services.listen(0, "127.0.0.1", listening));
  const standIn = join(ROOT, "test/support/wrangler.ts");
  writeFileSync(wrangler, `#!/bin/sh\nexec "${process.execPath}" "${standIn}" "$@"\n`);
  chmodSync(wrangler, 0o755);
});
afterAll(async () => {
  await owner.end();
  await new Promise((closed) => services.close(closed));
  rmSync(folder, { recursive: true, force: true });
});

/** An account without anything, empty databases, and no file of settings. */
beforeEach(async () => {
  const id = crypto.randomUUID().slice(0, 8);
  names = { markets: `deploy_markets_${id}`, vision: `deploy_vision_${id}` };
  for (const name of Object.values(names)) await owner.query(`CREATE DATABASE ${name}`);
  rmSync(envFile, { force: true });
  cloudflare = await simulateCloudflare(TOKEN);
  health = { status: "ok" };
  const { port, credentials } = inject("postgres");
  const url = (user: string, password: string, name: string) =>
    `postgresql://${user}:${password}@127.0.0.1:${port}/${name}`;
  // A server that listens on TCP has such an address.
  const address = `http://127.0.0.1:${(services.address() as AddressInfo).port}`;
  environment = {
    CLOUDFLARE_API_TOKEN: TOKEN,
    CLOUDFLARE_ACCOUNT_ID: cloudflare.accountId,
    CLOUDFLARE_API_BASE_URL: cloudflare.url,
    VANTAGE_WRANGLER: wrangler,
    MARKETS_MIGRATE_URL: url("vantage", credentials.superuser, names.markets),
    VISION_MIGRATE_URL: url("vantage", credentials.superuser, names.vision),
    MARKETS_DATABASE_URL: url("markets_reader", credentials.marketsReader, names.markets),
    CONSOLE_DATABASE_URL: url("markets_writer", credentials.marketsWriter, names.markets),
    VISION_DATABASE_URL: url("vision_writer", credentials.visionWriter, names.vision),
    S3_ACCESS_KEY_ID: "an access key",
    S3_SECRET_ACCESS_KEY: S3_SECRET,
    DOMAIN_MARKETS: "markets.example.com",
    DOMAIN_CONSOLE: "console.example.com",
    DOMAIN_VISION: "vision.example.com",
    PLACEMENT: "aws:us-east-2",
    ADDRESS_MARKETS: address,
    ADDRESS_CONSOLE: address,
    ADDRESS_VISION: address,
  };
  return () => cloudflare.close();
});

describe("npm run deploy", () => {
  it("leads from nothing to green, and changes nothing when it runs again", async () => {
    const before = await deploy(["--check"]);
    expect([before.status, before.output]).toEqual([
      1,
      expect.stringContaining("0 to be done by you, 19 by npm run deploy"),
    ]);
    const pieces = "bucket vantage-vision, CORS of vantage-vision, queue vantage-ingest-eia";
    const rest = "database markets, Worker vantage-infer, secrets of vision, domain of markets";
    expect(openOf(before.output)).toEqual(
      expect.arrayContaining([...`${pieces}, ${rest}`.split(", ").map((one) => `missing ${one}`)]),
    );
    expect(cloudflare.changes).toEqual([]);
    expect(existsSync(envFile)).toBe(false);

    const first = await deploy();
    expect([first.status, first.output]).toEqual([0, expect.stringContaining("All is deployed")]);
    const { account } = cloudflare;
    expect(Object.keys(account.buckets)).toEqual(["vantage-markets", "vantage-vision"]);
    expect(account.buckets["vantage-vision"]?.cors).toEqual([
      {
        id: "vantage",
        allowed: {
          origins: ["https://vision.example.com"],
          methods: ["GET", "HEAD", "PUT"],
          headers: ["content-type"],
        },
        exposeHeaders: ["ETag"],
        maxAgeSeconds: 3_600,
      },
    ]);
    expect(account.queues).toHaveLength(4);
    expect(account.domains).toEqual({
      "markets.example.com": "vantage-markets",
      "console.example.com": "vantage-console",
      "vision.example.com": "vantage-vision",
    });
    const { workers } = account;
    expect(Object.keys(workers)).toEqual([
      ...["vantage-markets", "vantage-console", "vantage-infer", "vantage-vision"],
    ]);
    expect(workers["vantage-markets"]).toMatchObject({
      secrets: { DATABASE_URL: environment.MARKETS_DATABASE_URL },
      variables: { CACHE_HOST: "markets.example.com" },
      region: "aws:us-east-2",
    });
    expect(workers["vantage-console"]).toMatchObject({
      variables: { SERVICE_API_URL: "https://markets.example.com", BEHIND_CLOUDFLARE: "true" },
      region: "aws:us-east-2",
    });
    expect(workers["vantage-infer"]).toEqual({ secrets: {}, variables: {} });
    const kept = readFileSync(envFile, "utf8");
    expect(statSync(envFile).mode & 0o777).toBe(0o600);
    const value = (name: string) => new RegExp(`^${name}=(.+)$`, "m").exec(kept)?.[1];
    expect(workers["vantage-vision"]).toMatchObject({
      secrets: {
        S3_SECRET_ACCESS_KEY: S3_SECRET,
        TOKEN_SECRET: value("TOKEN_SECRET"),
        BOOTSTRAP_TOKEN: value("BOOTSTRAP_TOKEN"),
        SEALING_KEY: value("SEALING_KEY"),
        METRICS_TOKEN: value("METRICS_TOKEN"),
      },
      variables: {
        REGISTRATION: "invited",
        TEAM_WORKSPACE: "Team",
        DEFAULT_WORKSPACE_PROJECTS: "false",
        S3_URL: `https://${cloudflare.accountId}.r2.cloudflarestorage.com/vantage-vision`,
      },
    });
    expect(workers["vantage-console"]?.secrets.METRICS_TOKEN).toBe(value("METRICS_TOKEN"));
    // A Worker's arguments are seen by everybody on the machine.
    const words = cloudflare.runs.flatMap(({ args }) => args).join(" ");
    for (const secret of secretsOf()) expect(words).not.toContain(secret);

    const state = structuredClone(account);
    const calls = cloudflare.changes.length;
    const second = await deploy();
    expect([second.status, openOf(second.output)]).toEqual([0, []]);
    expect(account).toEqual(state);
    expect(readFileSync(envFile, "utf8")).toBe(kept);
    expect(cloudflare.changes.slice(calls)).toEqual([
      ...["vantage-markets", "vantage-console", "vantage-infer", "vantage-vision"].map(
        (script) => `wrangler ${script}`,
      ),
    ]);
    const after = await deploy(["--check"]);
    expect([after.status, openOf(after.output)]).toEqual([0, []]);
    expect(findingsOf(after.output)).toContain("right health of vision");
  });

  it("changes nothing where something is different, or only an operator can make it", async () => {
    cloudflare.account.domains["vision.example.com"] = "another";
    const { status, output } = await deploy([], { S3_ACCESS_KEY_ID: "" });
    expect([status, openOf(output), cloudflare.changes]).toEqual([
      1,
      ["missing secret S3_ACCESS_KEY_ID of vision", "different domain of vision"],
      [],
    ]);
    expect(existsSync(envFile)).toBe(false);
  });

  it("takes a deployment up again that broke off, with the secrets that it had made", async () => {
    cloudflare.failOnce("POST queues");
    const broken = await deploy();
    expect([broken.status, broken.output]).toEqual([
      1,
      expect.stringContaining("Cloudflare, POST /queues: 500"),
    ]);
    expect(cloudflare.runs).toEqual([]);
    const kept = readFileSync(envFile, "utf8");
    const again = await deploy();
    expect(again.status).toBe(0);
    expect(readFileSync(envFile, "utf8")).toBe(kept);
    expect(cloudflare.account.queues).toHaveLength(4);
  });

  it("puts a secret anew that is named, and no other; keeps variables of the dashboard", async () => {
    await deploy(["vision"]);
    const vision = cloudflare.account.workers["vantage-vision"];
    Object.assign(vision?.variables ?? {}, { AUDIT_DAYS: "90" });
    const before = { ...vision?.secrets };
    const given = {
      TOKEN_SECRET: "another secret of 32 letters or more",
      SEALING_KEY: "x".repeat(40),
    };
    const checked = await deploy(["vision", "--check"], given);
    expect(checked.status).toBe(0);
    expect(checked.output).toContain("kept, though not in deploy.env: AUDIT_DAYS");
    const { status } = await deploy(["vision", "--put", "TOKEN_SECRET"], given);
    const after = cloudflare.account.workers["vantage-vision"];
    expect([status, after?.secrets]).toEqual([0, { ...before, TOKEN_SECRET: given.TOKEN_SECRET }]);
    expect(after?.variables.AUDIT_DAYS).toBe("90");
    const unknown = await deploy(["--put", "TOKEN_SECRETS"]);
    expect([unknown.status, unknown.output]).toEqual([
      2,
      expect.stringContaining("did you mean TOKEN_SECRET?"),
    ]);
  });

  it("says which service is not well once it is deployed", async () => {
    health = { status: "degraded", detail: "the database does not answer" };
    const { status, output } = await deploy(["markets"]);
    expect([status, output]).toEqual([
      1,
      expect.stringContaining("degraded, the database does not"),
    ]);
    expect(openOf(output)).toContain("different health of markets");
    expect(cloudflare.runs).toHaveLength(1);
  });

  it("makes no token for a first administrator where there is one", async () => {
    await deploy(["vision"], {});
    const token = /^BOOTSTRAP_TOKEN=(.+)$/m.exec(readFileSync(envFile, "utf8"))?.[1] ?? "";
    const { endpointPort, credentials } = inject("postgres");
    const database = { graph: "", ...names };
    const world = await createWorld({
      services: ["vision"],
      databases: databaseUrls(endpointPort, credentials, database),
      environment: { vision: { BOOTSTRAP_TOKEN: token } },
    });
    await register(world.urls.vision, "first@example.com", token);
    cloudflare.account.workers = {};
    const { status, output } = await deploy(["vision"]);
    expect([status, output.includes("no administrator")]).toEqual([0, false]);
    const vision = cloudflare.account.workers["vantage-vision"];
    expect(Object.keys(vision?.secrets ?? {})).not.toContain("BOOTSTRAP_TOKEN");
  });
});
