// Configuration at the door: a zod schema over the environment, parsed once per isolate.
// Every bad key is named, no value ever is; secrets are wrapped (shared/secret.ts).

import { z } from "zod";
import { Failure } from "../../shared/errors.ts";
import { whole } from "../../shared/scalars.ts";
import { Secret } from "../../shared/secret.ts";

/** A required secret; the empty string counts as missing. */
export const secret = () =>
  z
    .string({ error: "required" })
    .min(1, "required")
    .transform((value) => new Secret(value));

/** A secret that may be unset; unset and empty are both `undefined`. */
export const optionalSecret = () =>
  z
    .string()
    .optional()
    .transform((value) => (value ? new Secret(value) : undefined));

/** A key that is `true` or not; unset and empty are no. */
export const truth = () =>
  z
    .enum(["true", "false", ""], { error: "must be true or false" })
    .default("")
    .transform((given) => given === "true");

/** A required platform binding, such as a bucket or a queue. */
export const binding = <T>() =>
  z.custom<T>((value) => typeof value === "object" && value !== null, "binding required");

/** Days that an object is kept after nothing names it any more: longer than a restore reaches. */
export const objectGraceDays = () => whole(0, 3_650).default(35);

const DATABASE_URL_FORM = "must be postgresql://user:password@host/database";

function isDatabaseUrl(text: string): boolean {
  const url = URL.parse(text);
  if (!url || !/^postgres(ql)?:$/.test(url.protocol)) return false;
  return url.username !== "" && url.pathname.length > 1;
}

/**
 * A `postgres://` connection string; its parts are checked, its text never appears in the error.
 */
export const databaseUrl = () =>
  z
    .string({ error: "required" })
    .min(1, "required")
    .refine(isDatabaseUrl, DATABASE_URL_FORM)
    .transform((value) => new Secret(value));

/** A connection string that may be unset; unset and empty are both `undefined`. */
export const optionalDatabaseUrl = () =>
  z
    .string()
    .optional()
    .refine((text) => !text || isDatabaseUrl(text), DATABASE_URL_FORM)
    .transform((value) => (value ? new Secret(value) : undefined));

/**
 * Parses an environment, or fails with `bad_configuration` naming every bad key. An empty text
 * means that the key is unset.
 */
export function parseEnvironment<Schema extends z.ZodType>(
  schema: Schema,
  environment: unknown,
): z.output<Schema> {
  const entries = Object.entries(environment as object).filter(([, value]) => value !== "");
  const parsed = schema.safeParse(Object.fromEntries(entries));
  if (parsed.success) return parsed.data;
  const keys = parsed.error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`);
  throw new Failure("bad_configuration", `bad configuration: ${keys.join("; ")}`, {
    data: { keys: parsed.error.issues.map((issue) => String(issue.path[0] ?? "")) },
  });
}

/**
 * Runs `open` once per environment object and keeps its result, or its failure, for the isolate.
 */
export function oncePerEnvironment<Context>(open: (environment: object) => Context) {
  const opened = new WeakMap<object, { context: Context } | { failure: unknown }>();
  return (environment: object): Context => {
    let entry = opened.get(environment);
    if (!entry) {
      try {
        entry = { context: open(environment) };
      } catch (failure) {
        entry = { failure };
      }
      opened.set(environment, entry);
    }
    if ("failure" in entry) throw entry.failure;
    return entry.context;
  };
}
