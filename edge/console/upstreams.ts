// Which upstream a provider is: the real one when its credential is set, else the sandbox when
// there is one, else none. Nothing after this choice knows the difference, except that sandbox data
// is marked.

import { Failure } from "../../shared/errors.ts";
import { Secret } from "../../shared/secret.ts";
import type { Upstreams } from "../markets/ingest/pipeline.ts";
import { EIA_BASE_URL } from "../markets/ingest/sources/eia.ts";
import type { Fetcher } from "../markets/ingest/sources/upstream.ts";
import type { Config } from "./config.ts";

/** Between two requests to a provider: its published limit, or what its users found out. */
export const REQUEST_INTERVALS_MS: ReadonlyMap<string, number> = new Map([
  // Under 5 requests a second, 9,000 an hour.
  ["api.eia.gov", 400],
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
});
