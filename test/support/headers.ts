// The headers of answers, held against the description of their service: what is promised is sent,
// and nothing is sent that no client could know of.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Description, Endpoint } from "../../edge/http/example-request.ts";
import { endpointsOf } from "../../edge/http/example-request.ts";

/**
 * Headers that say nothing of the answer: those of the transport, and of every answer, which may
 * set the cookie of its session anew.
 */
const UNNAMED = new Set(
  (
    "connection content-encoding content-length content-type date keep-alive referrer-policy " +
    "set-cookie transfer-encoding x-content-type-options"
  ).split(" "),
);

interface Answer {
  status: number;
  headers: Headers;
}

/** What is wrong with the headers of an answer; nothing where its status is not declared. */
export function headerProblems(
  { operation }: Pick<Endpoint, "operation">,
  { status, headers }: Answer,
  { components }: Description,
): string[] {
  const declared = operation.responses?.[status];
  if (!declared) return [];
  const shared = components?.headers as Record<string, { required?: boolean }>;
  const named = new Map(
    Object.entries(declared.headers ?? {}).map(([name, header]) => [
      name.toLowerCase(),
      header.$ref === undefined ? header : shared[name],
    ]),
  );
  const sent = [...headers.keys()].filter((name) => !UNNAMED.has(name));
  const missing = [...named].filter(([name, header]) => header?.required && !headers.has(name));
  return [
    ...sent.filter((name) => !named.has(name)).map((name) => `${status} ${name}: undeclared`),
    ...missing.map(([name]) => `${status} ${name}: missing`),
  ];
}

/** The same for an answer to any request, by the golden copy of a service's description. */
export function goldenHeaderProblems(service: "markets" | "console" | "vision") {
  let document: Description | undefined;
  let routes: { endpoint: Endpoint; form: RegExp }[] = [];
  return (method: string, path: string, answer: Answer): string[] => {
    if (!document) {
      const file = join(import.meta.dirname, `../golden/openapi.${service}.json`);
      document = JSON.parse(readFileSync(file, "utf8")) as Description;
      routes = endpointsOf(document).map((endpoint) => ({
        endpoint,
        form: new RegExp(`^${endpoint.path.replace(/\{\w+\}/g, "[^/]+")}$`),
      }));
      // A path of letters stands before one with an id.
      routes.sort((a, b) => a.endpoint.path.split("{").length - b.endpoint.path.split("{").length);
    }
    const bare = path.replace(/\?.*/, "");
    const asked = method === "HEAD" ? "GET" : method;
    const route = routes.find(({ endpoint, form }) => endpoint.method === asked && form.test(bare));
    return route ? headerProblems(route.endpoint, answer, document) : [];
  };
}
