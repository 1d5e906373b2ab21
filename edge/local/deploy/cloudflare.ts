// A client of the calls of Cloudflare's API v4 that a deployment needs. Paths and fields are those
// of the client that the pinned wrangler carries (cloudflare 5.2.0) and of wrangler itself. Errors
// hold no token; no secret of a Worker passes through here, since wrangler uploads those.

import { z } from "zod";
import type { Secret } from "../../../shared/secret.ts";

const API_URL = "https://api.cloudflare.com/client/v4";
const ANSWER_MS_MAX = 30_000;

/** Codes that mean that there is no such thing, beside the status 404. */
const ABSENT_CODES = [
  10_006, // an R2 bucket
  10_007, // a Worker
  10_059, // the CORS policy of a bucket
  10_090, // a Worker's environment
];
/** What the verification of users' tokens answers to a token that belongs to an account. */
const FOREIGN_TOKEN = 1_000;

const Envelope = z.object({
  success: z.boolean(),
  errors: z.array(z.object({ code: z.number(), message: z.string() })).default([]),
  result: z.unknown(),
  result_info: z.object({ total_pages: z.number().optional() }).nullish(),
});

const CorsRule = z.object({
  id: z.string().optional(),
  allowed: z.object({
    methods: z.array(z.string()),
    origins: z.array(z.string()),
    headers: z.array(z.string()).optional(),
  }),
  exposeHeaders: z.array(z.string()).optional(),
  maxAgeSeconds: z.number().optional(),
});
/** A rule of a bucket's CORS policy. */
export type CorsRule = z.infer<typeof CorsRule>;

const Transition = z.looseObject({
  condition: z.looseObject({ type: z.string(), maxAge: z.number().optional() }),
});
const LifecycleRule = z.looseObject({
  id: z.string(),
  enabled: z.boolean(),
  conditions: z.looseObject({ prefix: z.string().optional() }).optional(),
  abortMultipartUploadsTransition: Transition.optional(),
  deleteObjectsTransition: Transition.optional(),
});
/** A rule of a bucket's lifecycle; ages are seconds. */
export type LifecycleRule = z.infer<typeof LifecycleRule>;

const WorkerSettings = z.object({
  bindings: z.array(
    z.looseObject({ type: z.string(), name: z.string(), text: z.string().optional() }),
  ),
  placement: z
    .looseObject({ mode: z.string().optional(), region: z.string().optional() })
    .nullish(),
});
/** What a deployed Worker is configured with; secrets are named, never shown. */
export type WorkerSettings = z.infer<typeof WorkerSettings>;

/** A call that Cloudflare refused or did not answer. */
export class CloudflareError extends Error {
  readonly status: number;
  readonly codes: readonly number[];

  constructor(message: string, status: number, codes: readonly number[] = []) {
    super(message);
    this.status = status;
    this.codes = codes;
  }

  /** Whether the token lacks the right to this call. */
  get isForbidden(): boolean {
    return this.status === 401 || this.status === 403;
  }

  get isAbsent(): boolean {
    return this.status === 404 || this.codes.some((code) => ABSENT_CODES.includes(code));
  }
}

const Zone = z.looseObject({ id: z.string(), name: z.string(), status: z.string() });
/** A zone of the account; `status` is `active` once its name servers are Cloudflare's. */
type Zone = z.infer<typeof Zone>;

const JSON_BODY = { "Content-Type": "application/json" };

interface Call {
  /** Default: GET. */
  method?: "GET" | "POST" | "PUT";
  query?: Readonly<Record<string, string>>;
  body?: object;
}

const Item = z.looseObject({ name: z.string() });

/** An account of Cloudflare, by its API. */
export class Cloudflare {
  readonly #token: Secret;
  readonly #accountId: string;
  readonly #account: string;
  readonly #apiUrl: string;

  constructor(options: {
    token: Secret;
    accountId: string;
    /** Default: Cloudflare's own. */
    apiUrl?: string | undefined;
  }) {
    this.#token = options.token;
    this.#accountId = options.accountId;
    this.#account = `/accounts/${encodeURIComponent(options.accountId)}`;
    this.#apiUrl = (options.apiUrl ?? API_URL).replace(/\/$/, "");
  }

  /** `active` for a token that may be used; a user's token or an account's. */
  async tokenStatus(): Promise<string> {
    const Status = z.object({ status: z.string() });
    try {
      return (await this.#read(Status, "/user/tokens/verify")).status;
    } catch (thrown) {
      const isForeign = thrown instanceof CloudflareError && thrown.codes.includes(FOREIGN_TOKEN);
      if (!isForeign) throw thrown;
      return (await this.#read(Status, `${this.#account}/tokens/verify`)).status;
    }
  }

  async accountName(): Promise<string> {
    return (await this.#read(Item, this.#account)).name;
  }

  async hasBucket(name: string): Promise<boolean> {
    return (await this.#find(z.looseObject({}), this.#bucket(name))) !== null;
  }

  async createBucket(name: string) {
    await this.#call(`${this.#account}/r2/buckets`, { method: "POST", body: { name } });
  }

  async corsRules(bucket: string): Promise<CorsRule[]> {
    const Policy = z.object({ rules: z.array(CorsRule).default([]) });
    return (await this.#find(Policy, `${this.#bucket(bucket)}/cors`))?.rules ?? [];
  }

  async putCorsRules(bucket: string, rules: readonly CorsRule[]) {
    await this.#call(`${this.#bucket(bucket)}/cors`, { method: "PUT", body: { rules } });
  }

  async lifecycleRules(bucket: string): Promise<LifecycleRule[]> {
    const Lifecycle = z.object({ rules: z.array(LifecycleRule).default([]) });
    return (await this.#find(Lifecycle, `${this.#bucket(bucket)}/lifecycle`))?.rules ?? [];
  }

  async putLifecycleRules(bucket: string, rules: readonly LifecycleRule[]) {
    await this.#call(`${this.#bucket(bucket)}/lifecycle`, { method: "PUT", body: { rules } });
  }

  /** Names of all queues. */
  async queues(): Promise<string[]> {
    const Queues = z.array(z.looseObject({ queue_name: z.string() }));
    const names: string[] = [];
    for (let page = 1, pages = 1; page <= pages; page++) {
      const reply = await this.#call(`${this.#account}/queues`, { query: { page: String(page) } });
      pages = reply.pages;
      names.push(...parseResult(Queues, reply).map(({ queue_name: name }) => name));
    }
    return names;
  }

  async createQueue(name: string) {
    await this.#call(`${this.#account}/queues`, { method: "POST", body: { queue_name: name } });
  }

  /** Null: no such Worker was deployed. */
  workerSettings(script: string): Promise<WorkerSettings | null> {
    return this.#find(WorkerSettings, `${this.#script(script)}/settings`);
  }

  /** Names of a Worker's secrets. */
  async secretNames(script: string): Promise<string[]> {
    const found = await this.#find(z.array(Item), `${this.#script(script)}/secrets`);
    return (found ?? []).map(({ name }) => name);
  }

  /** The Worker that has a custom domain, or null. */
  async domainOwner(hostname: string): Promise<string | null> {
    const Domains = z.array(z.looseObject({ hostname: z.string(), service: z.string() }));
    const query = { hostname };
    const found = await this.#read(Domains, `${this.#account}/workers/domains`, { query });
    return found.find((domain) => domain.hostname === hostname)?.service ?? null;
  }

  /** The account's zone that a host lies in, or null. */
  async zoneOf(hostname: string): Promise<Zone | null> {
    const labels = hostname.split(".");
    for (let first = 0; first < labels.length - 1; first++) {
      const query = { name: labels.slice(first).join("."), "account.id": this.#accountId };
      const [zone] = await this.#read(z.array(Zone), "/zones", { query });
      if (zone) return zone;
    }
    return null;
  }

  async hasDnsRecord(zoneId: string, hostname: string): Promise<boolean> {
    const path = `/zones/${encodeURIComponent(zoneId)}/dns_records`;
    const query = { name: hostname };
    return (await this.#read(z.array(Item), path, { query })).length > 0;
  }

  /** The account's name under workers.dev; null: it has none yet. */
  async subdomain(): Promise<string | null> {
    const Subdomain = z.object({ subdomain: z.string() });
    const found = await this.#find(Subdomain, `${this.#account}/workers/subdomain`);
    return found?.subdomain ?? null;
  }

  #bucket(name: string): string {
    return `${this.#account}/r2/buckets/${encodeURIComponent(name)}`;
  }

  #script(name: string): string {
    return `${this.#account}/workers/scripts/${encodeURIComponent(name)}`;
  }

  async #read<Schema extends z.ZodType>(
    schema: Schema,
    path: string,
    call?: Call,
  ): Promise<z.output<Schema>> {
    return parseResult(schema, await this.#call(path, call));
  }

  /** Null where there is no such thing. */
  async #find<Schema extends z.ZodType>(
    schema: Schema,
    path: string,
  ): Promise<z.output<Schema> | null> {
    try {
      return await this.#read(schema, path);
    } catch (thrown) {
      if (thrown instanceof CloudflareError && thrown.isAbsent) return null;
      throw thrown;
    }
  }

  async #call(path: string, { method = "GET", query, body }: Call = {}): Promise<Reply> {
    const url = new URL(this.#apiUrl + path);
    for (const [name, value] of Object.entries(query ?? {})) url.searchParams.set(name, value);
    const name = `${method} ${path.replace(this.#account, "") || "/"}`;
    const fail = (what: string, status = 0, codes: number[] = []) =>
      new CloudflareError(`Cloudflare, ${name}: ${what}`, status, codes);
    const response = await fetch(url, {
      method,
      headers: { Authorization: `Bearer ${this.#token.reveal()}`, ...(body ? JSON_BODY : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
    }).catch((thrown: Error) => {
      throw fail(thrown.name === "TimeoutError" ? "no answer" : "cannot be reached");
    });
    const { status } = response;
    const parsed = Envelope.safeParse(await response.json().catch(() => null));
    if (!parsed.success) throw fail(`${status}, not in the API's form`, status);
    const { success, errors, result, result_info: pages } = parsed.data;
    if (success && response.ok) return { name, result, pages: pages?.total_pages ?? 1 };
    const told = errors.map(({ code, message }) => `${message} [${code}]`).join("; ");
    const codes = errors.map(({ code }) => code);
    throw fail([status, told].filter(Boolean).join(" "), status, codes);
  }
}

/** What a call that succeeded answers. */
interface Reply {
  name: string;
  result: unknown;
  pages: number;
}

function parseResult<Schema extends z.ZodType>(
  schema: Schema,
  { name, result }: Reply,
): z.output<Schema> {
  const parsed = schema.safeParse(result);
  if (parsed.success) return parsed.data;
  const { path, message } = parsed.error.issues[0] ?? { path: [], message: "" };
  throw new CloudflareError(`Cloudflare, ${name}: ${path.join(".")} ${message}`, 0);
}
