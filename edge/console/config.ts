// Configuration of the console: the Worker that owns everything that writes to the markets store.

import type { Fetcher, R2Bucket } from "@cloudflare/workers-types";
import { z } from "zod";
import { whole } from "../../shared/scalars.ts";
import { alertWebhookKeys, checkAlertWebhook } from "../http/alert-webhook.ts";
import {
  binding,
  databaseUrl,
  objectGraceDays,
  optionalDatabaseUrl,
  optionalSecret,
  parseEnvironment,
  truth,
} from "../http/config.ts";
import { INGEST_QUEUES, PROVIDER_SETTINGS } from "../markets/ingest/providers.ts";
import { operatorsOf, operatorToken, operatorTokens } from "./operators.ts";

const Variables = z.object({
  /** Postgres connection string of the role that writes the catalog and the ledger. Required. */
  DATABASE_URL: databaseUrl(),
  /** The bucket of immutable segments. Required binding. */
  STORE: binding<R2Bucket>(),
  /** The catalog graph's database, a role that writes it. Unset: runs record nothing there. */
  GRAPH_DATABASE_URL: optionalDatabaseUrl(),
  /** Runs of each provider. Required bindings. */
  ...INGEST_QUEUES,
  /** Bearer token of the operator API, of 16 characters or more. Required, no default. */
  OPERATOR_TOKEN: operatorToken(),
  /** Further operators as `name:token,name:token`; what they do is recorded with their names. */
  OPERATOR_TOKENS: operatorTokens(),
  /** Bearer token of `/metrics`. Unset: there is no such route. */
  METRICS_TOKEN: optionalSecret(),
  ...alertWebhookKeys(),
  /**
   * `true`: every request comes through Cloudflare, which names its sender's address. Default: no,
   * and what a request says of its address is not believed.
   */
  BEHIND_CLOUDFLARE: truth(),
  /** The read API's service, which the console shows series from. Unset: SERVICE_API_URL. */
  MARKETS: binding<Fetcher>().optional(),
  /** The read API's key, where it asks for one. */
  SERVICE_READ_API_KEY: optionalSecret(),
  /**
   * The read API's address, for the snippets that the console shows, and for the console itself
   * where there is no binding. Unset: snippets say localhost:8000.
   */
  SERVICE_API_URL: z.url({ error: "must be a URL", protocol: /^https?$/ }).optional(),
  /** What selects the real providers. */
  ...PROVIDER_SETTINGS,
  /** Base URL of the sandbox upstream, for providers whose credential is not set. Unset: none. */
  SANDBOX_URL: z.url("must be a URL").optional(),
  /** `true`: requests that succeed are logged too. Default: those that fail alone. */
  LOG_REQUESTS: truth(),
  /** Days that an object is kept after nothing needs it any more. */
  OBJECT_GRACE_DAYS: objectGraceDays(),
  /** How long a silent run stays its process's own before the minute cron frees it. */
  INGEST_LEASE_SECONDS: whole(1).default(60),
});

type VariableValues = z.output<typeof Variables>;

/** Whether two of the tokens are one: what it opens, and whose it is, would not be known. */
function hasSharedToken({ OPERATOR_TOKEN, OPERATOR_TOKENS, METRICS_TOKEN }: VariableValues) {
  const holders = operatorsOf({ OPERATOR_TOKEN, OPERATOR_TOKENS });
  const tokens = holders.map(({ token }) => token.reveal());
  if (METRICS_TOKEN) tokens.push(METRICS_TOKEN.reveal());
  return new Set(tokens).size < tokens.length;
}

/** Every key that the service reads. */
export const Environment = Variables.superRefine((given, context) => {
  if (hasSharedToken(given)) {
    const message = "must be none of OPERATOR_TOKEN and METRICS_TOKEN, which differ too";
    context.addIssue({ code: "custom", path: ["OPERATOR_TOKENS"], message });
  }
  checkAlertWebhook(given, context);
});

/** The console's configuration, parsed. */
export type Config = z.output<typeof Environment>;

/** Fails with `bad_configuration` naming every bad key. */
export const parseConfig = (environment: object): Config =>
  parseEnvironment(Environment, environment);
