// What a deployment consists of, derived from wrangler.toml and from the services' configuration
// schemas, so that a new binding or key is named in one place. Values come from the environment.

import { join } from "node:path";
import type { z } from "zod";
import { Secret } from "../../../shared/secret.ts";
import { Environment as ConsoleEnvironment } from "../../console/config.ts";
import { Environment as InferEnvironment } from "../../infer/config.ts";
import { Environment as MarketsEnvironment } from "../../markets/config.ts";
import { Environment as VisionEnvironment } from "../../vision/config.ts";
import { ROOT } from "../state.ts";
import { SERVICES, type ServiceName, type WorkerName } from "../workers.ts";

/** The variables that a deployment is configured by. */
export type DeployEnvironment = Readonly<Record<string, string | undefined>>;

const SCHEMAS: Readonly<Record<WorkerName, z.ZodObject>> = {
  markets: MarketsEnvironment,
  console: ConsoleEnvironment,
  infer: InferEnvironment,
  vision: VisionEnvironment,
};

/** Secrets that are made at random where there are none; nobody else has to know them before. */
export const RANDOM_SECRETS = [
  "OPERATOR_TOKEN",
  "METRICS_TOKEN",
  "TOKEN_SECRET",
  "SEALING_KEY",
  "DEVICE_SIGNING_KEY",
];
/** Keys whose value is a service's own: unprefixed, one role would serve all. */
const OWN_KEYS = ["DATABASE_URL", "GRAPH_DATABASE_URL"];
/** Keys that the embedded stack alone sets. */
const LOCAL_KEYS = ["SANDBOX_URL"];

type KeyKind = "binding" | "secret" | "variable";

/** Values of which a key of text takes one. */
const PROBES = [
  "x".repeat(40),
  "postgresql://user:password@host/database",
  `name:${"x".repeat(20)}`,
];

function holdsSecret(value: unknown): boolean {
  if (value instanceof Secret) return true;
  return typeof value === "object" && value !== null && Object.values(value).some(holdsSecret);
}

/** A key is a binding where it takes an object, a secret where its service wraps the text. */
function kindOf(field: z.ZodType): KeyKind {
  if (field.safeParse({}).success) return "binding";
  const parsed = PROBES.map((text) => field.safeParse(text));
  return parsed.some(({ success, data }) => success && holdsSecret(data)) ? "secret" : "variable";
}

/** The keys of a kind that a service reads. */
export function keysOf(service: WorkerName, kind: KeyKind): string[] {
  const fields = Object.entries(SCHEMAS[service].shape as Record<string, z.ZodType>);
  return fields.flatMap(([key, field]) => (kindOf(field) === kind ? [key] : []));
}

/** The value of a service's key: `SERVICE_KEY`, or `KEY` where services may share it. */
export function givenValue(
  environment: DeployEnvironment,
  service: WorkerName,
  key: string,
): string | undefined {
  const own = environment[`${service.toUpperCase()}_${key}`];
  return own || (OWN_KEYS.includes(key) ? undefined : environment[key]) || undefined;
}

/** What an operator sets for a service's key. */
export const variableOf = (service: WorkerName, key: string): string =>
  OWN_KEYS.includes(key) ? `${service.toUpperCase()}_${key}` : key;

/** One Worker of a deployment. */
export interface WantedWorker {
  service: WorkerName;
  /** Its name at Cloudflare. */
  script: string;
  buckets: string[];
  queues: string[];
  /** Names of secrets that the service reads. */
  secrets: string[];
  /** Plain variables and their values, beside those of wrangler.toml. */
  variables: Record<string, string>;
  /** Those of wrangler.toml. */
  declared: Record<string, string>;
  /** Its custom domain; undefined: it is on workers.dev, or has no address. */
  domain: string | undefined;
  /** Cloud region that it runs beside; undefined: where the request arrives. */
  region: string | undefined;
}

const HOST = /^([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}$/;
const REGION = /^(aws|gcp|azure):[a-z0-9-]+$/;
/** Hosts of Neon end in the region and the cloud. */
const NEON_HOST = /\.([a-z0-9-]+)\.(aws|azure)\.neon\.tech$/;

/** The custom domain of a service; fails on what is no host name. */
function domainOf(environment: DeployEnvironment, service: WorkerName): string | undefined {
  const name = `DOMAIN_${service.toUpperCase()}`;
  const domain = environment[name] || undefined;
  if (domain === undefined || HOST.test(domain)) return domain;
  throw new Error(`${name}: must be a host name such as markets.example.com`);
}

/** The region beside a service's database: `PLACEMENT`, or the one that Neon's address names. */
function regionOf(environment: DeployEnvironment, service: WorkerName): string | undefined {
  const wish = environment.PLACEMENT || undefined;
  if (wish === "off" || service === "infer") return undefined;
  if (wish !== undefined) {
    if (REGION.test(wish)) return wish;
    throw new Error("PLACEMENT: must be off or a cloud's region such as aws:us-east-1");
  }
  const url = environment[service === "vision" ? "VISION_MIGRATE_URL" : "MARKETS_MIGRATE_URL"];
  const [, region, cloud] = NEON_HOST.exec(URL.parse(url ?? "")?.hostname ?? "") ?? [];
  return region && `${cloud}:${region}`;
}

/** Variables that follow from the rest of a deployment, where they are not given. */
function derivedVariables(
  service: WorkerName,
  { environment, buckets }: { environment: DeployEnvironment; buckets: readonly string[] },
): Record<string, string | undefined> {
  const markets = domainOf(environment, "markets");
  const account = environment.CLOUDFLARE_ACCOUNT_ID;
  if (service === "markets") return { CACHE_HOST: markets };
  if (service === "console") return { SERVICE_API_URL: markets && `https://${markets}` };
  if (service === "infer") return {};
  return {
    REGISTRATION: "invited",
    S3_URL: account && `https://${account}.r2.cloudflarestorage.com/${buckets[0]}`,
  };
}

/** What a Worker of the deployment is to be; fails on a domain or placement of a wrong form. */
export async function wantedWorker(
  service: WorkerName,
  environment: DeployEnvironment,
): Promise<WantedWorker> {
  const { unstable_readConfig: readConfig } = await import("wrangler");
  const config = readConfig({ config: join(ROOT, "wrangler.toml"), env: service });
  const buckets = config.r2_buckets.flatMap(
    ({ bucket_name: name }: { bucket_name?: string }) => name ?? [],
  );
  const declared = Object.fromEntries(
    Object.entries(config.vars).map(([key, value]) => [key, String(value)]),
  );
  const derived = derivedVariables(service, { environment, buckets });
  const variables = keysOf(service, "variable")
    .filter((key) => !LOCAL_KEYS.includes(key))
    .map((key) => [key, givenValue(environment, service, key) ?? derived[key]] as const);
  return {
    service,
    script: config.name ?? service,
    buckets,
    queues: (config.queues.producers ?? []).map(({ queue }: { queue: string }) => queue),
    secrets: keysOf(service, "secret"),
    variables: Object.fromEntries(
      variables.filter((entry): entry is [string, string] => entry[1] !== undefined),
    ),
    declared,
    domain: hasAddress(service) ? domainOf(environment, service) : undefined,
    region: regionOf(environment, service),
  };
}

export const hasAddress = (service: WorkerName): service is ServiceName =>
  SERVICES.some((one) => one === service);

/** What is wrong with a service's configuration, by key; secrets that it has already are taken. */
export function configurationFaults(
  { service, variables, declared }: WantedWorker,
  { given, held }: { given: Readonly<Record<string, string>>; held: readonly string[] },
): { key: string; problem: string }[] {
  const bindings = keysOf(service, "binding");
  const parsed = SCHEMAS[service].safeParse({
    ...Object.fromEntries(bindings.map((key) => [key, {}])),
    ...declared,
    ...variables,
    ...given,
  });
  return (parsed.error?.issues ?? [])
    .map(({ path, message }) => ({ key: String(path[0] ?? ""), problem: message }))
    .filter(({ key }) => given[key] !== undefined || !held.includes(key));
}
