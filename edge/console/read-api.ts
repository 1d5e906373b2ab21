// The console as a reader: it asks the read API over its service binding, or at its address where
// there is none, with the key anybody needs. There is no other way from here to a series.

import { ERRORS, type ErrorCode, Failure } from "../../shared/errors.ts";
import { type MarketsClient, MarketsError, marketsClient } from "../markets/client/client.ts";
import type { Config } from "./config.ts";

/** A service binding ignores the host; a URL has to have one. */
const BASE_URL = "https://markets";

/** The read API, or null where the console has no way to it. */
export function readApiOf(config: Config): MarketsClient | null {
  const { MARKETS, SERVICE_API_URL } = config;
  const apiKey = config.SERVICE_READ_API_KEY?.reveal();
  if (MARKETS) {
    return marketsClient({
      baseUrl: BASE_URL,
      apiKey,
      fetch: (url, init) => MARKETS.fetch(url, init),
    });
  }
  return SERVICE_API_URL ? marketsClient({ baseUrl: SERVICE_API_URL, apiKey }) : null;
}

/** The read API's address in what the console shows people to copy. */
export const snippetUrlOf = ({ SERVICE_API_URL = "http://localhost:8000" }: Config): string =>
  SERVICE_API_URL.replace(/\/$/, "");

/** A refusal of the read API as a failure of ours with its code; anything else as it came. */
export function asFailure(thrown: unknown): unknown {
  if (!(thrown instanceof MarketsError)) return thrown;
  const { code, detail } = thrown;
  const isKnown = (given: string): given is ErrorCode => given in ERRORS;
  if (isKnown(code)) return new Failure(code, detail, { cause: thrown });
  return new Failure("store_unavailable", "the read API does not answer", { cause: thrown });
}
