// Which upstream a provider is: the real one when its credential is set, else the sandbox when
// there is one, else none. A provider that asks for no credential is real where there is no
// sandbox. Nothing after this choice knows the difference, except that sandbox data is marked.

import { Failure } from "../../shared/errors.ts";
import { Secret } from "../../shared/secret.ts";
import type { Upstreams } from "../markets/ingest/pipeline.ts";
import { EIA_BASE_URL } from "../markets/ingest/sources/eia.ts";
import { NOAA_BASE_URL } from "../markets/ingest/sources/noaa.ts";
import { TWELVE_DATA_BASE_URL } from "../markets/ingest/sources/twelve-data.ts";
import type { Fetcher } from "../markets/ingest/sources/upstream.ts";
import type { Config } from "./config.ts";

/** Between two requests to a provider: its published limit, or what its users found out. */
export const REQUEST_INTERVALS_MS: ReadonlyMap<string, number> = new Map([
  // Under 5 requests a second, 9,000 an hour.
  ["api.eia.gov", 400],
  // No published limit; a directory and two large files a month want no more.
  ["www.ncei.noaa.gov", 1_000],
  // Eight credits a minute, one for each request.
  ["api.twelvedata.com", 7_500],
]);

export const chooseUpstreams = (config: Config, fetcher: Fetcher): Upstreams => ({
  fetcher,
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
