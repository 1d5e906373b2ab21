// Configuration of the edge-inference service. What it looks at an image with comes with each
// request: the vision service alone is configured.

import type { R2Bucket } from "@cloudflare/workers-types";
import { z } from "zod";
import { binding, parseEnvironment } from "../http/config.ts";

/** Every key that the service reads. */
export const Environment = z.object({
  /** The vision service's objects, of which weights are read. Required, no default. */
  MEDIA: binding<R2Bucket>(),
});

export type Config = z.output<typeof Environment>;

/** Fails with `bad_configuration` naming every bad key. */
export const parseConfig = (environment: object): Config =>
  parseEnvironment(Environment, environment);
