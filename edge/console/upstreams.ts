// Which upstream a provider is: the real one when its credential is set, else the sandbox when
// there is one, else none. A provider that asks for no credential is real where there is no
// sandbox. Nothing after this choice knows the difference, except that sandbox data is marked.

import { Failure } from "../../shared/errors.ts";
import { Secret } from "../../shared/secret.ts";
import type { Provider, Upstreams } from "../markets/ingest/pipeline.ts";
import { EIA_BASE_URL } from "../markets/ingest/sources/eia.ts";
import { ERCOT_API_URL, ERCOT_TOKEN_URL } from "../markets/ingest/sources/ercot-api.ts";
import { ERCOT_SITE_URL } from "../markets/ingest/sources/ercot-mis.ts";
import { NOAA_BASE_URL } from "../markets/ingest/sources/noaa.ts";
import { TWELVE_DATA_BASE_URL } from "../markets/ingest/sources/twelve-data.ts";
import type { Fetcher } from "../markets/ingest/sources/upstream.ts";
import type { Config } from "./config.ts";

/** Between two requests to a provider: its published limit, or what its users found out. */
export const PROVIDER_INTERVALS_MS: Readonly<Record<Provider, number>> = {
  // Under 5 requests a second, 9,000 an hour.
  eia: 400,
  // Thirty requests a minute, and refusals within a handful of fast ones.
  ercot: 2_000,
  // No published limit; a directory and two large files a month want no more.
  noaa: 1_000,
  // Eight credits a minute, one for each request.
  twelve_data: 7_500,
};

/** The same by host; documents of ERCOT's site come faster than its API. */
export const REQUEST_INTERVALS_MS: ReadonlyMap<string, number> = new Map([
  ["api.eia.gov", PROVIDER_INTERVALS_MS.eia],
  ["www.ncei.noaa.gov", PROVIDER_INTERVALS_MS.noaa],
  ["api.twelvedata.com", PROVIDER_INTERVALS_MS.twelve_data],
  ["api.ercot.com", PROVIDER_INTERVALS_MS.ercot],
  ["www.ercot.com", 1_000],
]);

/** The upstream of every provider, by what is configured; all are asked through `fetcher`. */
export const chooseUpstreams = (config: Config, fetcher: Fetcher): Upstreams => ({
  fetcher,
  ercot: ercotUpstream(config),
  eia: () => {
    if (config.EIA_API_KEY) {
      const access = { baseUrl: EIA_BASE_URL, shownAs: EIA_BASE_URL, apiKey: config.EIA_API_KEY };
      return { ...access, sandbox: false };
    }
    if (!config.SANDBOX_URL) {
      const detail = "EIA_API_KEY is not set: set it, or start with the sandbox";
      throw new Failure("credential_missing", detail);
    }
    const baseUrl = `${config.SANDBOX_URL}/eia/v2/`;
    return { baseUrl, shownAs: "sandbox://eia/v2/", apiKey: new Secret("sandbox"), sandbox: true };
  },
  noaa: () => {
    if (!config.SANDBOX_URL)
      return { baseUrl: NOAA_BASE_URL, shownAs: NOAA_BASE_URL, sandbox: false };
    const path = "noaa/pub/data/cirs/climdiv/";
    const baseUrl = `${config.SANDBOX_URL}/${path}`;
    return { baseUrl, shownAs: `sandbox://${path}`, sandbox: true };
  },
  twelveData: () => {
    const [baseUrl, apiKey] = [TWELVE_DATA_BASE_URL, config.TWELVE_DATA_API_KEY];
    if (apiKey) return { baseUrl, shownAs: baseUrl, apiKey, sandbox: false };
    if (!config.SANDBOX_URL) {
      const detail = "TWELVE_DATA_API_KEY is not set: set it, or start with the sandbox";
      throw new Failure("credential_missing", detail);
    }
    return {
      baseUrl: `${config.SANDBOX_URL}/twelve_data/`,
      shownAs: "sandbox://twelve_data/",
      apiKey: new Secret("sandbox"),
      sandbox: true,
    };
  },
});

/**
 * ERCOT: with credentials its public API, else its public document lists where
 * `ERCOT_PUBLIC_LISTS` selects them, else the sandbox, else none. One login and one memory of
 * documents serve all runs of the process.
 */
function ercotUpstream(config: Config): Upstreams["ercot"] {
  const { ERCOT_USERNAME, ERCOT_PASSWORD, ERCOT_SUBSCRIPTION_KEY, SANDBOX_URL } = config;
  const held = { ERCOT_USERNAME, ERCOT_PASSWORD, ERCOT_SUBSCRIPTION_KEY };
  const missing = Object.entries(held).flatMap(([name, value]) => (value ? [] : [name]));
  const [login, read] = [{ current: null }, new Map()];
  if (ERCOT_USERNAME && ERCOT_PASSWORD && ERCOT_SUBSCRIPTION_KEY) {
    const credentials = {
      username: ERCOT_USERNAME,
      password: ERCOT_PASSWORD,
      subscriptionKey: ERCOT_SUBSCRIPTION_KEY,
    };
    const urls = { baseUrl: ERCOT_API_URL, tokenUrl: ERCOT_TOKEN_URL, shownAs: ERCOT_API_URL };
    const api = { ...urls, ...credentials, login };
    const site = { baseUrl: ERCOT_SITE_URL, shownAs: ERCOT_SITE_URL, read };
    return () => ({ api, site, sandbox: false });
  }
  if (missing.length < Object.keys(held).length) {
    const detail = `not set: ${missing.join(" and ")}; ERCOT needs all three credentials or none`;
    return () => {
      throw new Failure("credential_missing", detail);
    };
  }
  if (config.ERCOT_PUBLIC_LISTS) {
    const site = { baseUrl: ERCOT_SITE_URL, shownAs: ERCOT_SITE_URL, read };
    return () => ({ api: null, site, sandbox: false });
  }
  if (!SANDBOX_URL) {
    const detail =
      `${missing.join(", ")} are not set: set them, start with the sandbox, or set ` +
      "ERCOT_PUBLIC_LISTS=true for ERCOT's public document lists";
    return () => {
      throw new Failure("credential_missing", detail);
    };
  }
  const [username, password, subscriptionKey] = ["sandbox", "sandbox", "sandbox"].map(
    (word) => new Secret(word),
  ) as [Secret, Secret, Secret];
  const api = {
    baseUrl: `${SANDBOX_URL}/ercot/api/public-reports/`,
    tokenUrl: `${SANDBOX_URL}/ercot/oauth2/v2.0/token`,
    shownAs: "sandbox://ercot/api/public-reports/",
    username,
    password,
    subscriptionKey,
    login,
  };
  const site = { baseUrl: `${SANDBOX_URL}/ercot/www/`, shownAs: "sandbox://ercot/www/", read };
  return () => ({ api, site, sandbox: true });
}
