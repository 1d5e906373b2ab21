// What a deployment looks at before it changes anything, each thing by itself. Goal: what is
// missing or different is named with what to do about it, and what a token lacks the right to.

import pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import {
  checkAccount,
  checkBucket,
  checkDomain,
  checkQueues,
  checkWorker,
} from "../../edge/local/deploy/checks.ts";
import { Cloudflare } from "../../edge/local/deploy/cloudflare.ts";
import { checkDatabase } from "../../edge/local/deploy/database-checks.ts";
import { type Check, isBlocking } from "../../edge/local/deploy/findings.ts";
import { keysOf, type WantedWorker, wantedWorker } from "../../edge/local/deploy/requirements.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { Secret } from "../../shared/secret.ts";
import {
  type Account,
  type SimulatedCloudflare,
  simulateCloudflare,
} from "../support/cloudflare.ts";
import { createDatabases } from "../support/world.ts";

const ORIGIN = "https://vision.example.com";
let simulated: SimulatedCloudflare;
let account: Account;
let cloudflare: Cloudflare;
beforeEach(async () => {
  simulated = await simulateCloudflare("hunter2");
  account = simulated.account;
  cloudflare = new Cloudflare({
    token: new Secret("hunter2"),
    accountId: simulated.accountId,
    apiUrl: simulated.url,
  });
  return () => simulated.close();
});

/** The one check about a subject. */
function about(checks: readonly Check[], subject: string): Check {
  const found = checks.filter((check) => check.subject.startsWith(subject));
  expect(found.map((check) => check.subject)).toHaveLength(1);
  return found[0] as Check;
}
const STOPS = [
  ["different", true],
  ["unknown", true],
  ["missing", false],
] as const;

describe("keys of the services", () => {
  it("are bindings, secrets and variables as their schemas take them", () => {
    expect(keysOf("markets", "secret")).toEqual([
      ...["DATABASE_URL", "GRAPH_DATABASE_URL", "SERVICE_READ_API_KEY"],
    ]);
    expect(keysOf("console", "secret")).toEqual(
      expect.arrayContaining(["OPERATOR_TOKEN", "OPERATOR_TOKENS", "ALERT_WEBHOOK_URL"]),
    );
    expect(keysOf("vision", "secret")).toEqual([
      ...["DATABASE_URL", "TOKEN_SECRET", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"],
      ...["DEVICE_SIGNING_KEY", "SEALING_KEY", "BOOTSTRAP_TOKEN", "METRICS_TOKEN"],
      ...["ALERT_WEBHOOK_URL", "ALERT_WEBHOOK_SECRET"],
    ]);
    expect(keysOf("vision", "variable")).toEqual(expect.arrayContaining(["S3_URL", "AUDIT_DAYS"]));
    expect(keysOf("infer", "binding")).toEqual(["MEDIA"]);
  });
});

describe("an account", () => {
  it("is named, where its token may be used", async () => {
    expect(await checkAccount(cloudflare)).toMatchObject({
      finding: "right",
      detail: "Northern Power",
    });
    account.tokenStatus = "expired";
    expect(await checkAccount(cloudflare)).toMatchObject({
      finding: "different",
      detail: "the token is expired",
    });
  });

  it("is unknown to a token that is not its own, which no error shows", async () => {
    account.token = "another";
    const check = await checkAccount(cloudflare);
    expect([check.finding, isBlocking(check)]).toEqual(["unknown", true]);
    expect(JSON.stringify(check)).not.toContain("hunter2");
  });

  it("is unknown where nothing answers", async () => {
    await simulated.close();
    expect(await checkAccount(cloudflare)).toMatchObject({
      finding: "unknown",
      detail: expect.stringContaining("cannot be reached"),
    });
  });
});

describe("a bucket", () => {
  const bucket = "vantage-vision";
  const check = () => checkBucket(cloudflare, bucket, [ORIGIN]);
  const rule = (methods: string[], exposeHeaders?: string[]) => ({
    allowed: { methods, origins: [ORIGIN], headers: ["Content-Type"] },
    exposeHeaders,
  });
  const lifecycle = (transition: string, maxAge: number) => ({
    id: "a rule",
    enabled: true,
    conditions: {},
    [transition]: { condition: { type: "Age", maxAge } },
  });

  it("is made with its CORS policy where it is missing, and has a lifecycle of Cloudflare's", async () => {
    const checks = await check();
    expect(checks.map(({ finding, change }) => [finding, change?.kind])).toEqual([
      ["missing", "bucket"],
      ["missing", "cors"],
    ]);
    expect(checks.filter(isBlocking)).toEqual([]);
  });

  it.each([
    ["right", [rule(["PUT", "GET", "HEAD"], ["etag"])]],
    [
      "right",
      [
        {
          allowed: { methods: ["GET", "HEAD", "PUT"], origins: ["*"], headers: ["*"] },
          exposeHeaders: ["ETag"],
        },
      ],
    ],
    ["missing", null],
    ["different", [rule(["PUT", "GET", "HEAD"])]],
    ["different", [rule(["GET", "HEAD"], ["ETag"])]],
    [
      "different",
      [
        {
          ...rule(["PUT", "GET", "HEAD"], ["ETag"]),
          allowed: { methods: ["PUT", "GET", "HEAD"], origins: [ORIGIN] },
        },
      ],
    ],
  ] as const)("has a CORS policy that is %s: %j", async (finding, cors) => {
    account.buckets[bucket] = { cors: cors && [...cors], lifecycle: [] };
    expect(about(await check(), "CORS")).toMatchObject({ finding });
  });

  it.each([
    ["right", lifecycle("abortMultipartUploadsTransition", 604_800)],
    ["different", lifecycle("abortMultipartUploadsTransition", 86_400)],
    ["different", lifecycle("deleteObjectsTransition", 8_640_000)],
    ["missing", { ...lifecycle("abortMultipartUploadsTransition", 604_800), enabled: false }],
  ] as const)("has a lifecycle that is %s: %j", async (finding, rule) => {
    account.buckets[bucket] = { cors: null, lifecycle: [rule] };
    const found = about(await check(), "lifecycle");
    expect(found.finding).toBe(finding);
    // What is there stays.
    if (found.change?.kind === "lifecycle") expect(found.change.rules).toContainEqual(rule);
  });

  it("is unknown to a token without the right, which is named", async () => {
    account.forbidden = ["r2/"];
    expect(await check()).toEqual([
      {
        subject: "bucket vantage-vision",
        finding: "unknown",
        detail: "Cloudflare, GET /r2/buckets/vantage-vision: 403 Authentication error [10000]",
        remedy: "give the token the right Workers R2 Storage: Edit to this account or zone",
      },
    ]);
  });
});

it("queues are looked for on every page, and the missing ones named", async () => {
  account.queues = ["a", "b", "c"];
  expect(await checkQueues(cloudflare, ["a", "c"])).toMatchObject([{ finding: "right" }]);
  expect(await checkQueues(cloudflare, ["a", "d"])).toMatchObject([
    { subject: "queue d", finding: "missing", change: { kind: "queue", name: "d" } },
  ]);
});

describe("a domain", () => {
  let worker: WantedWorker;
  beforeAll(async () => {
    worker = await wantedWorker("markets", { DOMAIN_MARKETS: "data.markets.example.com" });
  });

  it("is attached by the upload where a zone of the account holds it", async () => {
    const check = await checkDomain(cloudflare, worker);
    expect([check.finding, check.change]).toEqual(["missing", { kind: "upload" }]);
    account.domains = { "data.markets.example.com": "vantage-markets" };
    expect(await checkDomain(cloudflare, worker)).toMatchObject({ finding: "right" });
  });

  it.each<[string, (given: Account) => void]>([
    ["no zone of this account", (given) => given.zones.pop()],
    [
      "the zone example.com is pending",
      ({ zones: [zone] }) => Object.assign(zone ?? {}, { status: "pending" }),
    ],
    [
      "belongs to the Worker another",
      (given) => Object.assign(given.domains, { "data.markets.example.com": "another" }),
    ],
    ["has a DNS record already", (given) => given.records.push("data.markets.example.com")],
    ["GET /zones/zone1/dns_records: 403", (given) => given.forbidden.push("/zones/")],
  ])("stops a deployment: %s", async (detail, change) => {
    change(account);
    const check = await checkDomain(cloudflare, worker);
    expect([check.detail, isBlocking(check)]).toEqual([expect.stringContaining(detail), true]);
    expect(check.remedy).toBeDefined();
  });

  it("is none: then it is said that the edge cache keeps nothing", async () => {
    const check = await checkDomain(cloudflare, await wantedWorker("markets", {}));
    expect(check).toMatchObject({
      finding: "right",
      detail: "on workers.dev, where the edge cache keeps nothing",
      remedy: "set DOMAIN_MARKETS to a host of a zone in this account",
    });
  });

  it("that is no host name is refused, as is a placement of another form", async () => {
    const url = { DOMAIN_MARKETS: "https://markets.example.com" };
    await expect(wantedWorker("markets", url)).rejects.toThrow("DOMAIN_MARKETS: must be a host");
    const placement = wantedWorker("markets", { PLACEMENT: "virginia" });
    await expect(placement).rejects.toThrow("PLACEMENT: must be off or");
  });
});

describe("a Worker", () => {
  const environment = {
    CLOUDFLARE_ACCOUNT_ID: "0",
    VISION_DATABASE_URL: "postgresql://w:p@host/vision",
    S3_ACCESS_KEY_ID: "key",
    S3_SECRET_ACCESS_KEY: "secret",
    VISION_MIGRATE_URL: "postgresql://o:p@ep-x-1.c-2.us-east-2.aws.neon.tech/vision",
  };
  const check = async (given: Record<string, string | undefined> = environment) =>
    checkWorker(cloudflare, await wantedWorker("vision", given), {
      environment: given,
      replaced: [],
      hasAdmin: true,
    });

  it("is told each secret that only an operator has, and makes the others", async () => {
    const { checks, upload } = await check({ ...environment, S3_ACCESS_KEY_ID: undefined });
    expect(checks.filter(isBlocking)).toEqual([
      {
        subject: "secret S3_ACCESS_KEY_ID of vision",
        finding: "missing",
        detail: "required",
        remedy: "in deploy.env: S3_ACCESS_KEY_ID=…",
      },
    ]);
    expect(upload.random).toEqual([
      ...["TOKEN_SECRET", "DEVICE_SIGNING_KEY", "SEALING_KEY", "METRICS_TOKEN"],
    ]);
  });

  it("is configured as its service will accept, before anything is uploaded", async () => {
    const { checks } = await check({
      ...environment,
      AUDIT_DAYS: "1",
      VISION_DATABASE_URL: "mysql://host",
    });
    const wrong = checks.filter(isBlocking).map(({ subject, finding }) => [subject, finding]);
    expect(wrong).toEqual([
      ["secret DATABASE_URL of vision", "different"],
      ["variable AUDIT_DAYS of vision", "different"],
    ]);
    expect(JSON.stringify(checks)).not.toContain("mysql");
  });

  it("runs beside its database, and a variable never replaces a secret of its name", async () => {
    const secrets = Object.fromEntries(
      [...keysOf("vision", "secret"), "S3_URL"].map((key) => [key, "x"]),
    );
    const variables = { BEHIND_CLOUDFLARE: "true", REGISTRATION: "invited" };
    account.workers["vantage-vision"] = { secrets, variables, region: undefined };
    const { checks, upload } = await check();
    expect(about(checks, "placement")).toMatchObject({
      finding: "missing",
      detail: "to be beside aws:us-east-2",
    });
    expect(about(checks, "variables")).toMatchObject({ finding: "right" });
    expect(Object.keys(upload.worker.variables)).toEqual(["REGISTRATION"]);
    expect(upload.secrets).toEqual({});
  });
});

describe("a database", () => {
  let client: pg.Client;
  let url: string;
  const roles: string[] = [];
  beforeAll(async () => {
    const { port, credentials } = inject("postgres");
    const name = new URL((await createDatabases()).visionWriter).pathname.slice(1);
    const owner = superuser(port, credentials.superuser, name);
    client = new pg.Client(owner);
    await client.connect();
    url = `postgresql://${owner.user}:${owner.password}@127.0.0.1:${port}/${name}`;
  });
  afterAll(async () => {
    for (const role of roles) await client.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    await client.end();
  });

  /** A new role that may log in, with what else a statement gives it. */
  async function role(statement = ""): Promise<string> {
    const name = `deploy_${crypto.randomUUID().slice(0, 8)}`;
    await client.query(`CREATE ROLE ${name} LOGIN`);
    roles.push(name);
    await client.query(statement.replaceAll("$role", name));
    return name;
  }
  const check = async (given: Record<string, string>) =>
    (await checkDatabase("vision", { VISION_MIGRATE_URL: url, ...given })).checks;

  it("is right where it is migrated and its role owns nothing", async () => {
    const checks = await check({ VISION_WRITER_ROLE: "vision_writer" });
    expect(checks.map(({ finding }) => finding)).toEqual(["right", "right"]);
    const later = await check({ VISION_WRITER_ROLE: await role() });
    expect(about(later, "role")).toMatchObject({
      finding: "missing",
      change: { kind: "database", database: "vision" },
    });
  });

  it("is refused over a pooled address, which migrations cannot use", async () => {
    const pooled = "postgresql://o:hunter2@ep-x-1-pooler.us-east-2.aws.neon.tech/vision";
    const checks = await check({ VISION_MIGRATE_URL: pooled });
    expect(checks).toEqual([
      {
        subject: "database vision",
        finding: "different",
        detail: "VISION_MIGRATE_URL is a pooled address, over which migrations cannot run",
        remedy: "name the direct one: ep-x-1.us-east-2.aws.neon.tech",
      },
    ]);
  });

  it("is unknown where it does not answer", async () => {
    const [found] = await check({
      VISION_MIGRATE_URL: "postgresql://o:hunter2@127.0.0.1:1/vision",
    });
    expect(found).toMatchObject({
      finding: "unknown",
      detail: expect.stringContaining("ECONNREFUSED"),
    });
  });

  it("must be the one that the service's address leads to", async () => {
    const other = "postgresql://vision_writer:hunter2@127.0.0.1/elsewhere";
    const checks = await check({ VISION_DATABASE_URL: other });
    expect(about(checks, "VISION_DATABASE_URL")).toMatchObject({ finding: "different" });
    expect(JSON.stringify(checks)).not.toContain("hunter2");
  });

  it.each([
    [
      "it owns the database, or tables in it",
      "CREATE TABLE mine_$role (); ALTER TABLE mine_$role OWNER TO $role",
    ],
    ["it is a superuser", "ALTER ROLE $role SUPERUSER"],
    ["it may not log in", "ALTER ROLE $role NOLOGIN"],
  ])("has a role that stops a deployment: %s", async (detail, statement) => {
    const checks = await check({ VISION_WRITER_ROLE: await role(statement) });
    expect(about(checks, "role")).toMatchObject({ finding: "different", detail });
  });

  it("has a role that joined neon_superuser, as those of Neon's console do", async () => {
    await client.query("CREATE ROLE neon_superuser NOLOGIN");
    try {
      const name = await role("GRANT neon_superuser TO $role");
      const found = about(await check({ VISION_WRITER_ROLE: name }), "role");
      expect(found.detail).toContain("member of neon_superuser");
    } finally {
      await client.query("DROP ROLE neon_superuser");
    }
  });

  it("says by which statement a role is made that is not there", async () => {
    const found = about(await check({ VISION_WRITER_ROLE: 'no"body' }), "role");
    expect([found.finding, found.remedy, isBlocking(found)]).toEqual([
      "missing",
      `CREATE ROLE "no""body" LOGIN PASSWORD '…';`,
      true,
    ]);
  });
});

it.each(STOPS)("a finding that is %s stops a deployment: %s", (finding, stops) => {
  const change = { kind: "upload" } as const;
  expect(isBlocking({ subject: "x", detail: "", finding, change })).toBe(stops);
});
