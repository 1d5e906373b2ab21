// The ways to the providers that an environment selects.

import { parseConfig } from "../../edge/console/config.ts";
import {
  INGEST_QUEUES,
  openUpstreams,
  type ProviderConfig,
  type Upstreams,
} from "../../edge/markets/ingest/providers.ts";

/** What a console must be given, whatever a test is about; its queues are never sent to. */
export const CONSOLE_ENVIRONMENT = {
  ...Object.fromEntries(Object.keys(INGEST_QUEUES).map((name) => [name, {}])),
  DATABASE_URL: "postgresql://writer:password@localhost/markets",
  OPERATOR_TOKEN: "an operator's token",
  STORE: {},
};

/** An environment as the console's configuration reads it. */
export const providerConfigOf = (environment: Record<string, string>): ProviderConfig =>
  parseConfig({ ...CONSOLE_ENVIRONMENT, ...environment });

/** An environment's upstreams, which pause for nothing. */
export function upstreamsOf(
  environment: Record<string, string>,
  fetcher: Partial<Upstreams["fetcher"]> = {},
): Upstreams {
  const plain = { fetch: (url: string, init: object) => fetch(url, init), pause: async () => {} };
  return openUpstreams(providerConfigOf(environment), { ...plain, ...fetcher });
}
