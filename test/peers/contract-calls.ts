// One call of each operation, for the clients that generators make: its example, with what exists
// in place of the ids that the description shows. What deletes is asked for something absent, so
// that the calls after it find what they name.

import {
  type Description,
  type Endpoint,
  endpointsOf,
  exampleRequest,
} from "../../edge/http/example-request.ts";

/** A call, as the programs of the clients are told of it. */
export interface Call {
  /** `GET /path`. */
  name: string;
  operationId: string;
  tag: string;
  path: Record<string, unknown>;
  query: Record<string, unknown>;
  body: unknown;
  /** Fields of a form; a null is a file. */
  form: Record<string, string | null>;
  /** The credential to send: a header and its value. */
  headers: Record<string, string>;
  /** Why it is not made; null where it is. */
  skipped: string | null;
}

/** What a call of one operation has in place of what those of the others have. */
export interface OwnCall {
  name: string;
  headers: Record<string, string>;
  path?: Record<string, string>;
}

export interface CallOptions {
  /** Texts of the examples, and what stands for each here. */
  replaced: Readonly<Record<string, string>>;
  /** Header values by security scheme. */
  credentials: Readonly<Record<string, Record<string, string>>>;
  /** Operations that need other credentials than the rest, or that name something of their own. */
  operations: readonly OwnCall[];
  /** Operations that wait for what does not come here. */
  waiting: readonly string[];
}

/** The calls of a document, in its order. */
export function callsOf(document: Description, options: CallOptions): Call[] {
  return endpointsOf(document).map((endpoint) => callOf(endpoint, document, options));
}

function callOf(endpoint: Endpoint, document: Description, options: CallOptions): Call {
  const { method, path, operation } = endpoint;
  const name = `${method} ${path}`;
  const isLasting = method !== "DELETE";
  const here = <Value>(value: Value): Value => {
    if (value === undefined) return value;
    const text = Object.entries(options.replaced).reduce(
      (rest, [from, to]) => rest.replaceAll(from, to),
      JSON.stringify(value),
    );
    return JSON.parse(text) as Value;
  };
  // Whoever is in several workspaces has to say which one is meant.
  const isGiven = (parameter: { name: string; required?: boolean }) =>
    parameter.required || parameter.name === "workspace_id";
  const parametersIn = (where: string) =>
    Object.fromEntries(
      (operation.parameters ?? [])
        .filter((parameter) => isGiven(parameter) && parameter.in === where)
        .map(({ name: parameter, schema = {} }) => [
          parameter,
          isLasting || parameter === "workspace_id" ? here(schema.example) : (schema.example ?? ""),
        ]),
    );
  const { body, form } = exampleRequest(endpoint, document);
  const [scheme = ""] = Object.keys(operation.security?.[0] ?? {});
  const own = options.operations.find((one) => one.name === name);
  return {
    name,
    operationId: operation.operationId ?? "",
    tag: operation.tags?.[0] ?? "",
    path: { ...parametersIn("path"), ...own?.path },
    query: parametersIn("query"),
    body: here(body),
    form: here(form),
    headers: own?.headers ?? options.credentials[scheme] ?? {},
    skipped: whySkipped(endpoint, options.waiting.includes(name)),
  };
}

function whySkipped({ operation }: Endpoint, isWaiting: boolean): string | null {
  if (isWaiting) return "a request waits half a minute for a node or a task";
  const opensSocket = "101" in (operation.responses ?? {});
  return opensSocket ? "these clients open no sockets" : null;
}
