// What a deployment looks at in an account of Cloudflare, before it changes anything: the token,
// the buckets with their CORS policy and lifecycle, the queues, and each Worker's secrets,
// variables, placement and domain.

import {
  type Cloudflare,
  CloudflareError,
  type CorsRule,
  type LifecycleRule,
  type WorkerSettings,
} from "./cloudflare.ts";
import type { Change, Check } from "./findings.ts";
import {
  configurationFaults,
  type DeployEnvironment,
  givenValue,
  RANDOM_SECRETS,
  variableOf,
  type WantedWorker,
} from "./requirements.ts";

/** What a token needs; the names are those of Cloudflare's page for tokens. */
const RIGHTS = {
  account: "Account Settings: Read",
  bucket: "Workers R2 Storage: Edit",
  queue: "Queues: Edit",
  worker: "Workers Scripts: Edit",
  zone: "Zone: Read, and Workers Routes: Edit,",
  dns: "DNS: Read",
};
type Right = keyof typeof RIGHTS;

/** Runs a look; where Cloudflare refuses it, or does not answer, the finding says what to do. */
async function look(
  { subject, right }: { subject: string; right: Right },
  check: () => Promise<Omit<Check, "subject">>,
): Promise<Check> {
  try {
    return { subject, ...(await check()) };
  } catch (thrown) {
    if (!(thrown instanceof CloudflareError)) throw thrown;
    const remedy = thrown.isForbidden
      ? `give the token the right ${RIGHTS[right]} to this account or zone`
      : "try again; https://www.cloudflarestatus.com";
    return { subject, finding: "unknown", detail: thrown.message, remedy };
  }
}

/** Whether the token may be used on the account at all. */
export const checkAccount = (cloudflare: Cloudflare): Promise<Check> =>
  look({ subject: "account", right: "account" }, async () => {
    const status = await cloudflare.tokenStatus();
    if (status !== "active") {
      const remedy = "make another at https://dash.cloudflare.com/profile/api-tokens";
      return { finding: "different", detail: `the token is ${status}`, remedy };
    }
    return { finding: "right", detail: await cloudflare.accountName() };
  });

/** Seconds that parts of an unfinished upload are kept: as long as the service keeps its record. */
const PARTS_SECONDS_MIN = 7 * 86_400;
const PARTS_RULE: LifecycleRule = {
  id: "Abort multipart uploads after 7 days",
  enabled: true,
  conditions: { prefix: "" },
  abortMultipartUploadsTransition: { condition: { type: "Age", maxAge: PARTS_SECONDS_MIN } },
};

function judgeLifecycle(bucket: string, rules: LifecycleRule[]): Omit<Check, "subject"> {
  const remedy = (id: string) =>
    `npx wrangler r2 bucket lifecycle remove ${bucket} --name ${JSON.stringify(id)}`;
  const active = rules.filter(({ enabled }) => enabled);
  const deleting = active.find((rule) => rule.deleteObjectsTransition);
  if (deleting) {
    const detail = `the rule "${deleting.id}" deletes objects that the database names`;
    return { finding: "different", detail, remedy: remedy(deleting.id) };
  }
  const aborting = active.filter((rule) => rule.abortMultipartUploadsTransition);
  const hasty = aborting.find(({ abortMultipartUploadsTransition: transition }) => {
    const { maxAge } = transition?.condition ?? {};
    return maxAge !== undefined && maxAge < PARTS_SECONDS_MIN;
  });
  if (hasty) {
    const detail = `the rule "${hasty.id}" drops parts before an upload's seven days end`;
    return { finding: "different", detail, remedy: remedy(hasty.id) };
  }
  if (aborting.length > 0) {
    return { finding: "right", detail: "unfinished uploads go, objects stay" };
  }
  const change: Change = { kind: "lifecycle", bucket, rules: [...rules, PARTS_RULE] };
  return { finding: "missing", detail: "parts of unfinished uploads stay for ever", change };
}

/** Methods, headers and answers that a browser needs for parts of an upload and for downloads. */
const CORS = { methods: ["GET", "HEAD", "PUT"], headers: ["content-type"], exposed: ["ETag"] };

/** Origins whose pages may reach the bucket by presigned addresses. */
export const uploadOrigins = (environment: DeployEnvironment, own: string | undefined): string[] =>
  (environment.UPLOAD_ORIGINS || own || "")
    .split(",")
    .map((origin) => origin.trim())
    .filter(Boolean);

async function checkCors(
  bucket: string,
  origins: string[],
  readRules: () => Promise<CorsRule[]>,
): Promise<Omit<Check, "subject">> {
  if (origins.length === 0) {
    const remedy = "set UPLOAD_ORIGINS or DOMAIN_VISION where browsers upload in parts";
    return { finding: "right", detail: "no page of another origin reaches it", remedy };
  }
  const rules = await readRules();
  const covers = (given: readonly string[] | undefined, wanted: readonly string[]) => {
    const known = (given ?? []).map((one) => one.toLowerCase());
    return known.includes("*") || wanted.every((one) => known.includes(one.toLowerCase()));
  };
  const uncovered = origins.filter(
    (origin) =>
      !rules.some(
        ({ allowed, exposeHeaders }) =>
          covers(allowed.origins, [origin]) &&
          covers(allowed.methods, CORS.methods) &&
          covers(allowed.headers, CORS.headers) &&
          covers(exposeHeaders, CORS.exposed),
      ),
  );
  if (uncovered.length === 0) {
    return { finding: "right", detail: `PUT from ${origins.join(", ")}, ETag exposed` };
  }
  const rule = {
    id: "vantage",
    allowed: { origins, methods: CORS.methods, headers: CORS.headers },
    exposeHeaders: CORS.exposed,
    maxAgeSeconds: 3_600,
  };
  if (rules.length === 0) {
    const detail = `no rule lets ${uncovered.join(", ")} upload`;
    return { finding: "missing", detail, change: { kind: "cors", bucket, rules: [rule] } };
  }
  return {
    finding: "different",
    detail: `its rules do not let ${uncovered.join(", ")} PUT and read the ETag`,
    remedy: `add to the bucket's CORS policy in the dashboard: ${JSON.stringify(rule)}`,
  };
}

/** A bucket, its lifecycle and, where browsers use it, its CORS policy. */
export async function checkBucket(
  cloudflare: Cloudflare,
  bucket: string,
  /** Null: no browser uses the bucket. */
  origins: string[] | null,
): Promise<Check[]> {
  const subject = `bucket ${bucket}`;
  let isThere = false;
  const itself = await look({ subject, right: "bucket" }, async () => {
    isThere = await cloudflare.hasBucket(bucket);
    if (isThere) return { finding: "right", detail: "is there" };
    const change = { kind: "bucket", name: bucket } as const;
    return { finding: "missing", detail: "is not there", change };
  });
  if (itself.finding === "unknown") return [itself];
  // A new bucket has a rule of Cloudflare's own for unfinished uploads, and no other.
  const lifecycle =
    isThere &&
    (await look({ subject: `lifecycle of ${bucket}`, right: "bucket" }, async () =>
      judgeLifecycle(bucket, await cloudflare.lifecycleRules(bucket)),
    ));
  const cors =
    origins &&
    (await look({ subject: `CORS of ${bucket}`, right: "bucket" }, () =>
      checkCors(bucket, origins, isThere ? () => cloudflare.corsRules(bucket) : async () => []),
    ));
  return [itself, ...(lifecycle ? [lifecycle] : []), ...(cors ? [cors] : [])];
}

/** The queues, each by its name. */
export async function checkQueues(
  cloudflare: Cloudflare,
  wanted: readonly string[],
): Promise<Check[]> {
  if (wanted.length === 0) return [];
  let there: string[] = [];
  const all = await look({ subject: "queues", right: "queue" }, async () => {
    there = await cloudflare.queues();
    return { finding: "right", detail: wanted.join(", ") };
  });
  const missing = wanted.filter((name) => !there.includes(name));
  if (all.finding !== "right" || missing.length === 0) return [all];
  return missing.map((name) => ({
    subject: `queue ${name}`,
    finding: "missing",
    detail: "is not there",
    change: { kind: "queue", name },
  }));
}

/** What a Worker's upload brings beside its code. */
export interface Upload {
  worker: WantedWorker;
  /** Secrets that are given, and are to be put. */
  secrets: Record<string, string>;
  /** Names of those that are to be made at random. */
  random: string[];
}

interface WorkerFindings {
  checks: Check[];
  upload: Upload;
}

/** Secrets of a Worker that a deployment puts: those that it lacks, or that are to be put anew. */
function secretsToPut(
  worker: WantedWorker,
  held: readonly string[],
  options: WorkerOptions,
): Pick<Upload, "secrets" | "random"> {
  const { environment, replaced, hasAdmin } = options;
  const bootstraps = !hasAdmin && worker.secrets.includes("BOOTSTRAP_TOKEN");
  const secrets: Record<string, string> = {};
  const random: string[] = [];
  for (const key of worker.secrets) {
    const value = givenValue(environment, worker.service, key);
    const isBootstrap = key === "BOOTSTRAP_TOKEN";
    // Its value must be known to who is to register; afterwards it is of no use.
    const isHeld = held.includes(key) && !(isBootstrap && bootstraps && value === undefined);
    if (isBootstrap && !bootstraps) continue;
    if (value !== undefined && (!isHeld || replaced.includes(key))) secrets[key] = value;
    else if (!isHeld && (isBootstrap || RANDOM_SECRETS.includes(key))) random.push(key);
  }
  return { secrets, random };
}

function checkSecrets(
  upload: Upload,
  held: readonly string[],
  faults: readonly { key: string; problem: string }[],
): Check[] {
  const { worker, secrets, random } = upload;
  const subject = `secrets of ${worker.service}`;
  const put = [...Object.keys(secrets), ...random];
  const rest = worker.secrets.filter((key) => !held.includes(key) && !put.includes(key));
  const lacking = faults.filter(({ key }) => worker.secrets.includes(key));
  const checks: Check[] = lacking.map(({ key, problem }) => ({
    subject: `secret ${key} of ${worker.service}`,
    finding: problem === "required" ? "missing" : "different",
    detail: problem,
    remedy: `in deploy.env: ${variableOf(worker.service, key)}=…`,
  }));
  if (put.length > 0) {
    const made = random.length > 0 ? `; made at random: ${random.join(", ")}` : "";
    const detail = `${Object.keys(secrets).join(", ") || "none given"}${made}`;
    checks.push({ subject, finding: "missing", detail, change: { kind: "upload" } });
  } else if (worker.secrets.length > 0) {
    const optional = rest.filter((key) => !lacking.some((fault) => fault.key === key));
    const without = optional.length > 0 ? `; without ${optional.join(", ")}` : "";
    const there = worker.secrets.filter((key) => held.includes(key));
    checks.push({ subject, finding: "right", detail: `${there.join(", ") || "none"}${without}` });
  }
  return checks;
}

interface WorkerOptions {
  environment: DeployEnvironment;
  /** Names of secrets that are put although they are there. */
  replaced: readonly string[];
  hasAdmin: boolean;
}

/** A Worker's secrets, variables and placement. */
export async function checkWorker(
  cloudflare: Cloudflare,
  wanted: WantedWorker,
  options: WorkerOptions,
): Promise<WorkerFindings> {
  const { script, service } = wanted;
  const subject = `Worker ${script}`;
  let held: string[] = [];
  let settings: WorkerSettings | null = null;
  const itself = await look({ subject, right: "worker" }, async () => {
    settings = await cloudflare.workerSettings(script);
    if (settings) held = await cloudflare.secretNames(script);
    if (settings) return { finding: "right", detail: "is deployed" };
    return { finding: "missing", detail: "is not deployed", change: { kind: "upload" } };
  });
  // A variable never takes the place of a secret that an earlier release asked for.
  const variables = Object.fromEntries(
    Object.entries(wanted.variables).filter(([key]) => !held.includes(key)),
  );
  const worker = { ...wanted, variables };
  const upload: Upload = { worker, ...secretsToPut(worker, held, options) };
  if (itself.finding === "unknown") return { checks: [itself], upload };
  const placeholders = upload.random.map((key) => [key, `${key} `.padEnd(40, "x")]);
  const given = { ...upload.secrets, ...Object.fromEntries(placeholders) };
  const faults = configurationFaults(worker, { given, held });
  const checks = [itself, ...checkSecrets(upload, held, faults)];
  for (const { key, problem } of faults) {
    if (worker.secrets.includes(key)) continue;
    const remedy = `in deploy.env: ${variableOf(service, key)}=…`;
    const about = { subject: `variable ${key} of ${service}`, detail: problem, remedy };
    checks.push({ ...about, finding: problem === "required" ? "missing" : "different" });
  }
  if (settings)
    checks.push(...checkVariables(worker, settings), ...checkPlacement(worker, settings));
  return { checks, upload };
}

function checkVariables(worker: WantedWorker, { bindings }: WorkerSettings): Check[] {
  const subject = `variables of ${worker.service}`;
  const wanted = { ...worker.declared, ...worker.variables };
  const there = bindings.filter(({ type }) => type === "plain_text");
  const changed = Object.entries(wanted).filter(
    ([key, value]) => there.find(({ name }) => name === key)?.text !== value,
  );
  if (changed.length > 0) {
    const detail = `to be set: ${changed.map(([key]) => key).join(", ")}`;
    return [{ subject, finding: "missing", detail, change: { kind: "upload" } }];
  }
  const names = Object.keys(wanted);
  const others = there.map(({ name }) => name).filter((name) => !names.includes(name));
  if (names.length + others.length === 0) return [];
  const kept = others.length > 0 ? `; kept, though not in deploy.env: ${others.join(", ")}` : "";
  return [{ subject, finding: "right", detail: `${names.join(", ") || "none"}${kept}` }];
}

function checkPlacement({ service, region }: WantedWorker, { placement }: WorkerSettings): Check[] {
  if (service === "infer") return [];
  const subject = `placement of ${service}`;
  const there = placement?.region;
  if (region === there) {
    const detail = region ? `beside ${region}` : "where requests arrive";
    return [{ subject, finding: "right", detail }];
  }
  const detail = `to be ${region ? `beside ${region}` : "where requests arrive"}`;
  return [{ subject, finding: "missing", detail, change: { kind: "upload" } }];
}

/** A service's custom domain and its zone. */
export async function checkDomain(cloudflare: Cloudflare, worker: WantedWorker): Promise<Check> {
  const { service, domain, script } = worker;
  const variable = `DOMAIN_${service.toUpperCase()}`;
  const subject = `domain of ${service}`;
  if (domain === undefined) {
    const cache = service === "markets" ? ", where the edge cache keeps nothing" : "";
    const remedy = `set ${variable} to a host of a zone in this account`;
    return { subject, finding: "right", detail: `on workers.dev${cache}`, remedy };
  }
  const owner = await look({ subject, right: "worker" }, async () => {
    const held = await cloudflare.domainOwner(domain);
    if (held === script) return { finding: "right", detail: domain };
    if (held === null) return { finding: "missing", detail: domain, change: { kind: "upload" } };
    const remedy = `take it from that Worker in the dashboard, or choose another ${variable}`;
    return { finding: "different", detail: `${domain} belongs to the Worker ${held}`, remedy };
  });
  if (owner.finding !== "missing") return owner;
  let zoneId: string | undefined;
  const zone = await look({ subject, right: "zone" }, async () => {
    const found = await cloudflare.zoneOf(domain);
    if (!found) {
      const remedy = "add its zone to this account in the dashboard, or choose another domain";
      return { finding: "missing", detail: `no zone of this account holds ${domain}`, remedy };
    }
    if (found.status !== "active") {
      const remedy = "name Cloudflare's name servers at its registrar, then wait for the zone";
      return { finding: "different", detail: `the zone ${found.name} is ${found.status}`, remedy };
    }
    zoneId = found.id;
    return { ...owner, detail: `${domain}, of the zone ${found.name}` };
  });
  if (zoneId === undefined) return zone;
  const id = zoneId;
  // Wrangler would take the name from what has it, without asking where no terminal is there.
  return look({ subject, right: "dns" }, async () => {
    if (!(await cloudflare.hasDnsRecord(id, domain))) return zone;
    const remedy = `delete that record in the dashboard, or choose another ${variable}`;
    return { finding: "different", detail: `${domain} has a DNS record already`, remedy };
  });
}
