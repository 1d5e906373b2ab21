// The providers: how each is configured, how often it may be asked, and the way to it. A new one is
// an entry of `PROVIDERS`; its settings, its queue, its pace and its sandbox follow from it.

import type { Queue } from "@cloudflare/workers-types";
import type { z } from "zod";
import { Failure } from "../../../shared/errors.ts";
import { Secret } from "../../../shared/secret.ts";
import { binding, optionalSecret, truth } from "../../http/config.ts";
import { EIA_BASE_URL } from "./sources/eia.ts";
import type { ErcotAccess } from "./sources/ercot.ts";
import { ERCOT_API_URL, ERCOT_TOKEN_URL } from "./sources/ercot-api.ts";
import { ERCOT_SITE_URL } from "./sources/ercot-mis.ts";
import { NOAA_BASE_URL, type NoaaAccess } from "./sources/noaa.ts";
import { TWELVE_DATA_BASE_URL } from "./sources/twelve-data.ts";
import type { Fetcher } from "./sources/upstream.ts";

/** What every provider's access has beside its own addresses and credentials. */
export interface Access {
  /** Whether the sandbox stands in for the provider. */
  sandbox: boolean;
}

/** Where the sandbox answers for a provider. */
interface SandboxAddress {
  /** Ends in a slash, as does `shownAs`, which `source_url` shows for it. */
  url: string;
  shownAs: string;
}

/** Settings as their schemas read them. */
type SettingsOf<Shape extends z.ZodRawShape> = { [Key in keyof Shape]: z.output<Shape[Key]> };

/** A provider of series. */
interface ProviderDefinition<Shape extends z.ZodRawShape, Way> {
  /** What selects the real provider; none where it asks for no credential. */
  settings: Shape;
  /**
   * Every host that is asked, with the milliseconds between two requests to it: the published limit
   * or, where there is none, what was found to be safe.
   */
  intervalsMs: Readonly<Record<string, number>>;
  /**
   * The way to it: the real one when its credential is set, else the sandbox when there is one,
   * else none. Called once a process; what it returns, once a run, which fails with
   * `credential_missing` where there is none.
   */
  open: (settings: SettingsOf<Shape>, sandbox: SandboxAddress | null) => () => Way & Access;
}

const provider = <Shape extends z.ZodRawShape, Way>(one: ProviderDefinition<Shape, Way>) => one;

/** An address below the sandbox's for a provider. */
const below = ({ url, shownAs }: SandboxAddress, path: string) => ({
  baseUrl: `${url}${path}`,
  shownAs: `${shownAs}${path}`,
});

/** The way to an API that asks for a single key. */
const keyed =
  (
    { name, apiKey, baseUrl }: { name: string; apiKey: Secret | undefined; baseUrl: string },
    standIn: ReturnType<typeof below> | null,
  ) =>
  () => {
    if (apiKey) return { baseUrl, shownAs: baseUrl, apiKey, sandbox: false };
    if (standIn) return { ...standIn, apiKey: new Secret("sandbox"), sandbox: true };
    const detail = `${name} is not set: set it, or start with the sandbox`;
    throw new Failure("credential_missing", detail);
  };

const ERCOT_SETTINGS = {
  /** Login and subscription key of ERCOT's public API: all three, or none. */
  ERCOT_USERNAME: optionalSecret(),
  ERCOT_PASSWORD: optionalSecret(),
  ERCOT_SUBSCRIPTION_KEY: optionalSecret(),
  /**
   * `true`: without credentials, ERCOT's public document lists are read, which need no login and
   * hold the last days. Default: no.
   */
  ERCOT_PUBLIC_LISTS: truth(),
};

/**
 * ERCOT: with credentials its public API, else its public document lists where `ERCOT_PUBLIC_LISTS`
 * selects them, else the sandbox, else none. One login and one memory of documents serve all runs
 * of the process.
 */
function openErcot(
  settings: SettingsOf<typeof ERCOT_SETTINGS>,
  sandbox: SandboxAddress | null,
): () => ErcotAccess & Access {
  const { ERCOT_USERNAME, ERCOT_PASSWORD, ERCOT_SUBSCRIPTION_KEY } = settings;
  const held = { ERCOT_USERNAME, ERCOT_PASSWORD, ERCOT_SUBSCRIPTION_KEY };
  const missing = Object.entries(held).flatMap(([name, value]) => (value ? [] : [name]));
  const refused = (detail: string) => () => {
    throw new Failure("credential_missing", detail);
  };
  const [login, read] = [{ current: null }, new Map()];
  const site = { baseUrl: ERCOT_SITE_URL, shownAs: ERCOT_SITE_URL, read };
  if (ERCOT_USERNAME && ERCOT_PASSWORD && ERCOT_SUBSCRIPTION_KEY) {
    const credentials = {
      username: ERCOT_USERNAME,
      password: ERCOT_PASSWORD,
      subscriptionKey: ERCOT_SUBSCRIPTION_KEY,
    };
    const urls = { baseUrl: ERCOT_API_URL, tokenUrl: ERCOT_TOKEN_URL, shownAs: ERCOT_API_URL };
    return () => ({ api: { ...urls, ...credentials, login }, site, sandbox: false });
  }
  if (missing.length < Object.keys(held).length)
    return refused(`not set: ${missing.join(" and ")}; ERCOT needs all three credentials or none`);
  if (settings.ERCOT_PUBLIC_LISTS) return () => ({ api: null, site, sandbox: false });
  if (!sandbox)
    return refused(
      `${missing.join(", ")} are not set: set them, start with the sandbox, or set ` +
        "ERCOT_PUBLIC_LISTS=true for ERCOT's public document lists",
    );
  const word = new Secret("sandbox");
  const api = {
    ...below(sandbox, "api/public-reports/"),
    tokenUrl: `${sandbox.url}oauth2/v2.0/token`,
    username: word,
    password: word,
    subscriptionKey: word,
    login,
  };
  return () => ({ api, site: { ...below(sandbox, "www/"), read }, sandbox: true });
}

/** Every provider, by the name that runs, queues and the catalog graph give it. */
export const PROVIDERS = {
  eia: provider({
    settings: {
      /** EIA API key. With it the real EIA answers; without it and without a sandbox, runs fail. */
      EIA_API_KEY: optionalSecret(),
    },
    // Under 5 requests a second, 9,000 an hour.
    intervalsMs: { "api.eia.gov": 400 },
    open: ({ EIA_API_KEY: apiKey }, sandbox) =>
      keyed(
        { name: "EIA_API_KEY", apiKey, baseUrl: EIA_BASE_URL },
        sandbox && below(sandbox, "v2/"),
      ),
  }),
  ercot: provider({
    settings: ERCOT_SETTINGS,
    // Thirty requests a minute, and refusals within a handful of fast ones; documents of the site
    // come faster. A login is asked for once an hour.
    intervalsMs: { "api.ercot.com": 2_000, "www.ercot.com": 1_000, "ercotb2c.b2clogin.com": 2_000 },
    open: openErcot,
  }),
  noaa: provider({
    settings: {},
    // No published limit; a directory and two large files a month want no more.
    intervalsMs: { "www.ncei.noaa.gov": 1_000 },
    open: (_settings, sandbox) => (): NoaaAccess & Access => {
      if (!sandbox) return { baseUrl: NOAA_BASE_URL, shownAs: NOAA_BASE_URL, sandbox: false };
      return { ...below(sandbox, "pub/data/cirs/climdiv/"), sandbox: true };
    },
  }),
  twelve_data: provider({
    settings: {
      /** Twelve Data API key. With it the real one answers; else as with EIA's. */
      TWELVE_DATA_API_KEY: optionalSecret(),
    },
    // Eight credits a minute, one for each request.
    intervalsMs: { "api.twelvedata.com": 7_500 },
    open: ({ TWELVE_DATA_API_KEY: apiKey }, sandbox) =>
      keyed(
        { name: "TWELVE_DATA_API_KEY", apiKey, baseUrl: TWELVE_DATA_BASE_URL },
        sandbox && below(sandbox, ""),
      ),
  }),
};

/** A provider's name. */
export type Provider = keyof typeof PROVIDERS;
/** Every provider's name. */
export const PROVIDER_IDS = Object.keys(PROVIDERS) as Provider[];

/** What has the members of every part of a union. */
type Together<Union> = (Union extends unknown ? (one: Union) => void : never) extends (
  all: infer All,
) => void
  ? All
  : never;
type Settings = Together<(typeof PROVIDERS)[Provider]["settings"]>;

/** The settings of all providers, as a service's configuration parses them. */
export const PROVIDER_SETTINGS: Settings = Object.assign(
  {},
  ...PROVIDER_IDS.map((id) => PROVIDERS[id].settings),
);

/** The binding of a provider's queue. */
export const queueBinding = <P extends Provider>(id: P) =>
  `INGEST_${id.toUpperCase()}` as `INGEST_${Uppercase<P>}`;

/** The queue itself, as the platform names it. */
export const queueName = (id: Provider): string => `vantage-ingest-${id.replaceAll("_", "-")}`;

/** A message of an ingest queue: the run to execute. */
export interface RunMessage {
  run_id: string;
}

/** The bindings of all queues: each provider has its own, whose concurrency is our politeness. */
export const INGEST_QUEUES = Object.fromEntries(
  PROVIDER_IDS.map((id) => [queueBinding(id), binding<Queue<RunMessage>>()]),
  // Built from the same names as the type, which `fromEntries` forgets.
) as unknown as { [P in Provider as `INGEST_${Uppercase<P>}`]: z.ZodType<Queue<RunMessage>> };

/** What of a service's configuration says how the providers are reached. */
export type ProviderConfig = SettingsOf<Settings> & {
  /** Base URL of the sandbox, without a slash at its end. */
  SANDBOX_URL?: string | undefined;
};

/** The ways to the providers; asking for one that is not configured is `credential_missing`. */
export type Upstreams = {
  [P in Provider]: ReturnType<(typeof PROVIDERS)[P]["open"]>;
} & { fetcher: Fetcher };

/** The way to every provider, by what is configured; all are asked through `fetcher`. */
export function openUpstreams(config: ProviderConfig, fetcher: Fetcher): Upstreams {
  const ways = PROVIDER_IDS.map((id) => {
    const sandbox = config.SANDBOX_URL
      ? { url: `${config.SANDBOX_URL}/${id}/`, shownAs: `sandbox://${id}/` }
      : null;
    return [id, PROVIDERS[id].open(config, sandbox)];
  });
  // Built from the same names as the type.
  return { ...Object.fromEntries(ways), fetcher } as Upstreams;
}

/** Milliseconds between two requests, by host; the sandbox may be asked at once. */
export function requestIntervalsMs({ SANDBOX_URL }: ProviderConfig): ReadonlyMap<string, number> {
  const real = PROVIDER_IDS.flatMap((id) => Object.entries(PROVIDERS[id].intervalsMs));
  return new Map([...real, ...(SANDBOX_URL ? [[new URL(SANDBOX_URL).host, 0] as const] : [])]);
}

/** Milliseconds that a request to a provider takes at least: what its slowest host allows. */
export const intervalMs = (id: Provider): number =>
  Math.max(...Object.values(PROVIDERS[id].intervalsMs));
