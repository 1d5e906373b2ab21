// The console as a reader: it asks the read API over its service binding, with the key anybody
// needs. There is no other way from here to a series.

import { z } from "zod";
import { ERRORS, ErrorBody, type ErrorCode, Failure } from "../../shared/errors.ts";
import { Revisions, SeriesRecord, Vintage } from "../../shared/markets.ts";
import type { Config } from "./config.ts";

type Query = Readonly<Record<string, string | undefined>>;

export interface SeriesAnswer {
  records: SeriesRecord[];
  /** Knowledge time and counter of the vintage that answered; null before the first. */
  asOf: string | null;
  storeVersion: number | null;
  sandbox: boolean;
}

export interface ReadApi {
  libraries(): Promise<string[]>;
  symbols(library: string): Promise<string[]>;
  series(query: Query): Promise<SeriesAnswer>;
  vintages(query: Query): Promise<Vintage[]>;
  revisions(query: Query): Promise<Revisions>;
}

/** The read API, or null where the console has no way to it. */
export function readApiOf({ MARKETS, SERVICE_READ_API_KEY }: Config): ReadApi | null {
  if (!MARKETS) return null;
  const ask = async (path: string, query: Query = {}) => {
    const given = Object.entries(query).filter(([, value]) => value !== undefined);
    const url = `https://markets/${path}?${new URLSearchParams(given as [string, string][])}`;
    const headers = SERVICE_READ_API_KEY ? { "X-API-Key": SERVICE_READ_API_KEY.reveal() } : {};
    const response = await MARKETS.fetch(url, { headers });
    if (response.ok) return response;
    throw failureOf(await response.json().catch(() => null));
  };
  const get = async <Shape>(shape: z.ZodType<Shape>, path: string, query?: Query) =>
    shape.parse(await (await ask(path, query)).json());
  return {
    libraries: () => get(z.array(z.string()), "libraries"),
    symbols: (library) => get(z.array(z.string()), "symbols", { library }),
    vintages: (query) => get(z.array(Vintage), "vintages", query),
    revisions: (query) => get(Revisions, "revisions", query),
    series: async (query) => {
      const response = await ask("series", query);
      const version = response.headers.get("X-Store-Version");
      return {
        records: z.array(SeriesRecord).parse(await response.json()),
        asOf: response.headers.get("X-As-Of"),
        storeVersion: version === null ? null : Number(version),
        sandbox: response.headers.get("X-Sandbox") === "true",
      };
    },
  };
}

function failureOf(body: unknown): Failure {
  const { data } = ErrorBody.safeParse(body);
  const isKnown = (code: string): code is ErrorCode => code in ERRORS;
  if (data && isKnown(data.code)) return new Failure(data.code, data.detail);
  return new Failure("store_unavailable", "the read API does not answer");
}
