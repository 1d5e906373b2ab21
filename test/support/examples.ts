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
import { headerProblems } from "./headers.ts";

export interface ExampleOptions {
  /** The file of the service's examples. */
  file: string;
  /** Base URL of the service; read when the test runs. */
  url: () => string;
  /** The secret of the credential that the examples name. */
  secret: () => string;
  /** Texts of the examples that are others in this world, such as ids, and what they are here. */
  replaced?: () => Record<string, string>;
  /**
   * Makes what an operation needs to be there; returns its own replaced texts, and whose credential
   * it is sent with where that is another.
   */
  before?: (operationId: string) => Promise<Preparation | undefined>;
  /** The file that an operation takes. */
  sent?: (operationId: string) => Blob;
  /** The text of an answer with what differs from world to world replaced by one example of it. */
  stable?: (text: string) => string;
}

export interface Preparation {
  replaced?: Record<string, string>;
  secret?: string;
}

/** Entries shown of a list, and members of a record. */
const LIST_MAX = 3;
const MEMBERS_MAX = 32;
/** Boxes and outlines are shown whole: a part of one is none. */
const NUMBERS_MAX = 8;

/** The tests; examples that change something are sent after those that read. */
export function exampleTests(options: ExampleOptions) {
  const { stable = (text) => text } = options;
  const described = async () =>
    (await (await fetch(`${options.url()}/openapi.json`)).json()) as Description;
  const send = async (
    endpoint: Endpoint,
    document: Description,
    more: Record<string, string> = {},
  ) => {
    const given = exampleRequest(endpoint, document);
    const id = endpoint.operation.operationId ?? "";
    const own = await options.before?.(id);
    // Its own come first: one may hold another.
    const all = { ...own?.replaced, ...options.replaced?.(), ...own?.replaced };
    const replaced = Object.entries(all);
    const here = (text: string) =>
      replaced.reduce((rest, [from, to]) => rest.replaceAll(from, to), text);
    const there = (text: string) =>
      replaced.reduce((rest, [from, to]) => rest.replaceAll(to, from), text);
    const headers: Record<string, string> = { ...more };
    const { credential, body, form } = given;
    const secret = own?.secret ?? options.secret();
    if (credential) headers[credential.name] = credential.value.replace(/\$\w+/, () => secret);
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const fields = new FormData();
    for (const [name, value] of Object.entries(form)) {
      if (value !== null) fields.append(name, here(value));
      else fields.append(name, options.sent?.(id) ?? new Blob([]), "crossing.mp4");
    }
    const sent = body === undefined ? [...fields].length > 0 && fields : here(JSON.stringify(body));
    const response = await fetch(options.url() + here(given.path), {
      method: given.method,
      redirect: "manual",
      headers,
      ...(sent ? { body: sent } : {}),
    });
    const text = response.status === 304 ? "" : there(await response.text());
    return { response, text };
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
      // A socket is no answer to show.
      if (status === "101") continue;
      const { response, text } = await send(endpoint, document);
      expect
        .soft([name, response.status, response.status < 400 || text])
        .toEqual([name, Number(status), true]);
      if (response.status !== Number(status)) continue;
      expect([name, ...headerProblems(endpoint, response, document)]).toEqual([name]);
      const [type] = Object.keys(answer?.content ?? {});
      if (type === undefined) continue;
      expect([name, response.headers.get("Content-Type")]).toEqual([name, type]);
      if (type === "application/json") answers[name] = JSON.parse(stable(text), shortened);
    }
    await expect(`${JSON.stringify(answers, null, 2)}\n`).toMatchFileSnapshot(options.file);
  });

  it("answers 304 where a description says so, to who names the answer", async () => {
    const document = await described();
    for (const endpoint of endpointsOf(document)) {
      if (!endpoint.operation.responses?.["304"]) continue;
      const tag = (await send(endpoint, document)).response.headers.get("ETag") ?? "";
      const { response: again } = await send(endpoint, document, { "If-None-Match": tag });
      expect([endpoint.path, again.status, await again.text()]).toEqual([endpoint.path, 304, ""]);
    }
  });
}

/** Lists are shown by their beginning; so are maps, which have more members than any record. */
function shortened(_name: string, value: unknown): unknown {
  if (Array.isArray(value)) {
    const isNumbers = value.every((one) => typeof one === "number");
    return value.slice(0, isNumbers ? NUMBERS_MAX : LIST_MAX);
  }
  const members = Object.entries(value && typeof value === "object" ? value : {});
  return members.length > MEMBERS_MAX ? Object.fromEntries(members.slice(0, LIST_MAX)) : value;
}
