// What `worst-bodies` knows of a route that it measures.

import type { Description, Endpoint } from "../../edge/http/example-request.ts";
import type { Schema } from "../support/hostile.ts";

/** A route of a service, with an address that is there. */
export interface Target {
  service: "markets" | "console" | "vision";
  /** `GET /path`, as the service describes it. */
  route: string;
  endpoint: Endpoint;
  document: Description;
  url: string;
  /** Bytes of its longest JSON body; null where it takes none. */
  bytesMax: number | null;
  schema: Schema | undefined;
  /** A body in order. */
  body: unknown;
  /** Headers of whoever is heard there. */
  credential(): Promise<Record<string, string>>;
}
