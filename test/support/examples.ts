// Sends the examples of a service's description, as its API page shows them, and holds what the
// service answers against the answers shown. `--update` writes those answers anew, `npm test --
// <the service's contract test> --update` then the golden description that holds them.

import { expect, it } from "vitest";
import {
  type Description,
  type Endpoint,
  endpointsOf,
  exampleRequest,
} from "../../edge/http/example-request.ts";

export interface ExampleOptions {
  /** The file of the service's examples. */
  file: string;
  /** Base URL of the service; read when the test runs. */
  url: () => string;
  /** The secret of the credential that the examples name. */
  secret: () => string;
  /** Texts of the examples that are others in this world, such as ids, and what they are here. */
  replaced?: () => Record<string, string>;
  /** The text of an answer with what differs from world to world replaced by one example of it. */
  stable?: (text: string) => string;
}

/** Headers that a description need not name: HTTP's own, or of no meaning to a reader. */
const UNNAMED = new Set(
  (
    "connection content-encoding content-length content-type date keep-alive referrer-policy " +
    "transfer-encoding x-content-type-options"
  ).split(" "),
);

/** Entries shown of a list, and members of a record. */
const LIST_MAX = 3;
const MEMBERS_MAX = 24;

interface HeaderNames {
  [name: string]: { $ref: string };
}

/** The tests; examples that change something are sent after those that read. */
export function exampleTests(options: ExampleOptions) {
  const { stable = (text) => text } = options;
  const described = async () =>
    (await (await fetch(`${options.url()}/openapi.json`)).json()) as Description;
  const send = (endpoint: Endpoint, document: Description, more: Record<string, string> = {}) => {
    const given = exampleRequest(endpoint, document);
    const here = (text: string) =>
      Object.entries(options.replaced?.() ?? {}).reduce(
        (replaced, [from, to]) => replaced.replaceAll(from, to),
        text,
      );
    const headers: Record<string, string> = { ...more };
    const { credential, body } = given;
    if (credential)
      headers[credential.name] = credential.value.replace(/\$\w+/, () => options.secret());
    if (body !== undefined) headers["Content-Type"] = "application/json";
    return fetch(options.url() + here(given.path), {
      method: given.method,
      headers,
      ...(body === undefined ? {} : { body: here(JSON.stringify(body)) }),
    });
  };

  it("answers every example as the description shows", async () => {
    const document = await described();
    const answers: Record<string, unknown> = {};
    const reads = ({ method }: Endpoint) => method === "GET";
    const endpoints = endpointsOf(document);
    const others = endpoints.filter((endpoint) => !reads(endpoint));
    for (const endpoint of [...endpoints.filter(reads), ...others]) {
      const name = `${endpoint.method} ${endpoint.path}`;
      const [status = "", answer] = Object.entries(endpoint.operation.responses ?? {})[0] ?? [];
      const response = await send(endpoint, document);
      const text = await response.text();
      expect([name, response.status, response.status < 300 || text]).toEqual([
        name,
        Number(status),
        true,
      ]);
      expectHeaders(response, answer?.headers as HeaderNames, document);
      if (!answer?.content) continue;
      expect([name, response.headers.get("Content-Type")]).toEqual([name, "application/json"]);
      answers[name] = JSON.parse(stable(text), shortened);
    }
    await expect(`${JSON.stringify(answers, null, 2)}\n`).toMatchFileSnapshot(options.file);
  });

  it("answers 304 where a description says so, to who names the answer", async () => {
    const document = await described();
    for (const endpoint of endpointsOf(document)) {
      if (!endpoint.operation.responses?.["304"]) continue;
      const tag = (await send(endpoint, document)).headers.get("ETag") ?? "";
      const again = await send(endpoint, document, { "If-None-Match": tag });
      expect([endpoint.path, again.status, await again.text()]).toEqual([endpoint.path, 304, ""]);
    }
  });
}

/** Lists are shown by their beginning; so are maps, which have more members than any record. */
function shortened(_name: string, value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, LIST_MAX);
  const members = Object.entries(value && typeof value === "object" ? value : {});
  return members.length > MEMBERS_MAX ? Object.fromEntries(members.slice(0, LIST_MAX)) : value;
}

/** An answer carries what its description promises, and nothing that it does not name. */
function expectHeaders(response: Response, named: HeaderNames = {}, { components }: Description) {
  const declared = components?.headers as Record<string, { required?: boolean }>;
  const names = Object.keys(named);
  const lower = (all: string[]) => all.map((name) => name.toLowerCase());
  const sent = [...response.headers.keys()].filter((header) => !UNNAMED.has(header));
  expect(lower(names)).toEqual(expect.arrayContaining(sent));
  expect(sent).toEqual(
    expect.arrayContaining(lower(names.filter((name) => declared[name]?.required))),
  );
}
