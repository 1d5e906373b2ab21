// The request that the API page shows of a route, made of the examples in its description. Tests of
// the services send each of them.

/** A JSON schema, as far as anybody here reads it. */
export type Json = Record<string, unknown>;

/** A parameter of an operation. */
export interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema?: Json;
}

/** The body of an operation, or of one of its answers, in one media type. */
export interface Media {
  schema?: Json;
  example?: unknown;
}

/** What is read of an operation of an OpenAPI 3.1 document. */
export interface Operation {
  operationId?: string;
  tags?: string[];
  summary?: string;
  description?: string;
  security?: Record<string, unknown>[];
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content?: Record<string, Media> };
  responses?: Record<
    string,
    { description: string; headers?: Record<string, Json>; content?: Record<string, Media> }
  >;
}

/** What is read of an OpenAPI 3.1 document. */
export interface Description {
  info: { title: string; description?: string; version: string };
  tags?: { name: string; description?: string }[];
  paths?: Record<string, unknown>;
  components?: {
    schemas?: Record<string, unknown>;
    headers?: Record<string, unknown>;
    securitySchemes?: Record<string, unknown>;
  };
}

/** An operation with its address. */
export interface Endpoint {
  method: string;
  path: string;
  operation: Operation;
}

/** Every operation of a document, in its order. */
export const endpointsOf = ({ paths = {} }: Description): Endpoint[] =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods as Record<string, Operation>).map(([method, operation]) => ({
      path,
      method: method.toUpperCase(),
      operation,
    })),
  );

/** A request; `credential` is the header it needs, with a shell variable for the secret. */
export interface ExampleRequest {
  method: string;
  /** With the query. */
  path: string;
  credential: { name: string; value: string } | null;
  /** A JSON body. */
  body: unknown;
  /** The fields of a form; a null is a file, which no description holds. */
  form: Record<string, string | null>;
  /** Null where no body need be sent. */
  bodyType: string | null;
}

/** What people read unescaped, and every server understands so. */
const escaped = (text: string) =>
  encodeURIComponent(text).replace(/%(2F|2C|3A)/g, (code) => decodeURIComponent(code));

/** The example of an operation: what it requires, and nothing else. */
export function exampleRequest(endpoint: Endpoint, document: Description): ExampleRequest {
  const { method, path, operation } = endpoint;
  const exampleOf = ({ schema = {} }: Parameter) => escaped(String(schema.example ?? "…"));
  const parameters = (operation.parameters ?? []).filter(({ required }) => required);
  const query = parameters
    .filter((parameter) => parameter.in === "query")
    .map((parameter) => `${parameter.name}=${exampleOf(parameter)}`);
  const address = parameters
    .filter((parameter) => parameter.in === "path")
    .reduce((text, parameter) => text.replace(`{${parameter.name}}`, exampleOf(parameter)), path);
  const { required: isSent = false, content = {} } = operation.requestBody ?? {};
  const [bodyType = null, media] = isSent ? (Object.entries(content)[0] ?? []) : [];
  const isForm = bodyType === "multipart/form-data";
  return {
    method,
    path: query.length > 0 ? `${address}?${query.join("&")}` : address,
    credential: credentialOf(operation, document),
    body: isForm ? undefined : (media?.example ?? bodyOf(media?.schema)),
    form: isForm ? formOf(media) : {},
    bodyType,
  };
}

/**
 * The required members of a JSON body, where each has an example; of one that requires nothing, the
 * first that has.
 */
function bodyOf({ properties = {}, required = [], example }: Json = {}): unknown {
  if (example !== undefined) return example;
  const exampleOf = (name: string) => (properties as Record<string, Json>)[name]?.example;
  const first = Object.keys(properties as Json).find((name) => exampleOf(name) !== undefined);
  const needed = (required as string[]).length > 0 ? (required as string[]) : first ? [first] : [];
  const members = needed.map((name) => [name, exampleOf(name)] as const);
  const isWhole = members.length > 0 && members.every(([, example]) => example !== undefined);
  return isWhole ? Object.fromEntries(members) : undefined;
}

/** The required fields of a form, and those of its example. */
function formOf({ schema = {}, example = {} }: Media = {}) {
  const { properties = {}, required = [] } = schema;
  const whole = example as Json;
  const names = new Set([...(required as string[]), ...Object.keys(whole)]);
  const fields = [...names].map((name) => {
    const field = (properties as Record<string, Json>)[name] ?? {};
    const { format } = (field.items as Json | undefined) ?? field;
    return [name, format === "binary" ? null : fieldText(whole[name] ?? field.example)] as const;
  });
  return Object.fromEntries(fields);
}

/** A value as a field of a form has it: a list of one text is a field of its own for each. */
function fieldText(value: unknown): string {
  const [only, ...others] = Array.isArray(value) ? value : [value];
  if (others.length > 0 || (typeof only === "object" && only !== null))
    return JSON.stringify(value);
  return String(only ?? "…");
}

function credentialOf({ security = [] }: Operation, { components }: Description) {
  const [scheme] = Object.keys(security[0] ?? {});
  if (scheme === undefined) return null;
  const { type, name } = (components?.securitySchemes?.[scheme] ?? {}) as Json;
  if (type === "apiKey") return { name: String(name), value: "$API_KEY" };
  return { name: "Authorization", value: "Bearer $TOKEN" };
}

/** The request as a command of the shell. */
export function curlOf(request: ExampleRequest, baseUrl: string): string {
  const { method, path, credential, body, form, bodyType } = request;
  const parts = [`curl ${method === "GET" ? "" : `-X ${method} `}'${baseUrl}${path}'`];
  if (credential) parts.push(`-H "${credential.name}: ${credential.value}"`);
  if (bodyType === "application/json") {
    const data = body === undefined ? "@body.json" : `'${JSON.stringify(body)}'`;
    parts.push(`-H 'Content-Type: application/json' -d ${data}`);
  } else if (bodyType === "multipart/form-data") {
    for (const [name, value] of Object.entries(form)) parts.push(`-F ${name}=${value ?? "@file"}`);
  } else if (bodyType !== null) parts.push(`-H 'Content-Type: ${bodyType}' --data-binary @file`);
  return parts.join(" \\\n  ");
}
