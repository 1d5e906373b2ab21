// Query strings and headers of 16 KB, the longest that the platform takes, for any route.

import { FORM_TYPE } from "./worst-pages.ts";
import type { Target } from "./worst-target.ts";

/** A request of a route; what it does not say is as the route has it. */
export interface WorstRequest {
  name: string;
  url?: string;
  headers?: Record<string, string>;
  body?: string;
}

/** Characters of a query, and of a header. */
const LENGTH = 16_000;

/** Texts repeated to so many characters. */
const long = (piece: (index: number) => string, between = ""): string => {
  const pieces: string[] = [];
  for (let index = 0, left = LENGTH; left > 0; index++) {
    pieces.push(piece(index));
    left -= piece(index).length + between.length;
  }
  return pieces.join(between).slice(0, LENGTH);
};

/** Values of any parameter, as they stand in an address. */
const VALUES: Readonly<Record<string, string>> = {
  letters: long(() => "a"),
  digits: long(() => "1"),
  "a list": long((index) => `a${index}`, ","),
  dots: long(() => "1.", ""),
  blanks: long(() => "+"),
  escapes: long(() => "%C3%A9"),
  marks: long(() => "%CC%95%CC%80"),
  // Of a cursor: JSON in base64, lists in lists.
  "deep base64": Buffer.from("[".repeat(LENGTH * 0.75)).toString("base64url"),
  "days and more": `2026-01-31T00:00:00.${long(() => "0")}Z`,
};

/** The address of a route with another query; what must be given stays. */
function withQuery({ url }: Target, query: string): string {
  const [address, search = ""] = url.split("?");
  return `${address}?${search && `${search}&`}${query}`;
}

/**
 * Queries of a route. Of one that is no GET only unknown parameters, which are refused: nothing is
 * to be done, and by none of its own.
 */
export function* queriesOf(target: Target): Generator<WorstRequest> {
  const { parameters = [] } = target.endpoint.operation;
  const names = parameters.filter((one) => one.in === "query").map(({ name }) => name);
  const ask = (name: string, query: string): WorstRequest => ({
    name: `query: ${name}`,
    url: withQuery(target, query),
  });
  yield ask(
    "unknown parameters",
    long((index) => `x${index}`, "&"),
  );
  yield ask(
    "one unknown parameter",
    long(() => "x", "&"),
  );
  yield ask(
    "a long name",
    long(() => "n"),
  );
  const [first = "limit"] = names;
  yield ask(
    "near names",
    long((index) => `${first}${index}=`, "&"),
  );
  if (!target.route.startsWith("GET")) return;
  for (const name of names) {
    yield ask(
      `${name} again and again`,
      long(() => `${name}=1`, "&"),
    );
    for (const [what, value] of Object.entries(VALUES))
      yield ask(`${name}, ${what}`, `${name}=${value}`);
  }
}

/** Forms of a route that takes them, as fields of a text, of 16 KB. */
export function* formsOf({ endpoint, body }: Target): Generator<WorstRequest> {
  const schema = endpoint.operation.requestBody?.content?.[FORM_TYPE]?.schema;
  if (!schema) return;
  const given = new URLSearchParams(body as Record<string, string>).toString();
  const ask = (name: string, text: string): WorstRequest => ({
    name: `form: ${name}`,
    headers: { "Content-Type": FORM_TYPE },
    body: `${given}&${text}`.slice(0, LENGTH),
  });
  yield ask(
    "unknown fields",
    long((index) => `x${index}=`, "&"),
  );
  yield ask(
    "one field again and again",
    long(() => "x=", "&"),
  );
  yield ask("names in names", `a${long((index) => `[${index}]`)}=1`);
  for (const field of Object.keys(schema.properties as object)) {
    for (const [what, value] of Object.entries(VALUES))
      yield ask(`${field}, ${what}`, `${field}=${value}`);
  }
}

const HEADERS: Readonly<Record<string, readonly string[]>> = {
  Authorization: [
    `Bearer ${long(() => "a")}`,
    `Bearer ${long(() => "a.")}`,
    `Bearer ${long(() => " ")}a`,
    `Basic ${long(() => "QUFB")}`,
  ],
  "If-None-Match": [
    long((index) => `"${index}"`, ", "),
    long(() => 'W/"', ","),
    long(() => " ,"),
    long(() => '"'),
  ],
  "If-Match": [long((index) => `"${index}"`, ", ")],
  Range: [`bytes=${long((index) => `${index}-${index}`, ",")}`, `bytes=${long(() => "1")}-`],
  Accept: [
    long((index) => `a/b${index};q=0.${index}`, ","),
    long(() => "*/*;", ","),
    long(() => ";q=", ","),
  ],
  "Accept-Encoding": [long((index) => `gzip;q=0.${index}`, ",")],
  "Content-Type": [
    `application/json;${long((index) => `a=${index}`, ";")}`,
    `multipart/form-data; boundary=${long(() => " ")}x`,
  ],
  Cookie: [long((index) => `a${index}=b`, "; "), `session=${long(() => "a")}`, long(() => "=;")],
  "Idempotency-Key": [long(() => "a"), long(() => " a")],
  "X-Request-Id": [long(() => "a"), long(() => " a")],
  "X-API-Key": [long(() => "a")],
  Origin: [`https://${long(() => "a.")}`],
};

/** Headers of a route. One that is no GET is asked about what is not there. */
export function* headersOf(target: Target): Generator<WorstRequest> {
  const isRead = target.route.startsWith("GET");
  const address = target.url.replace(
    /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g,
    () => crypto.randomUUID(),
  );
  for (const [name, values] of Object.entries(HEADERS)) {
    for (const [index, value] of values.entries()) {
      const body = isRead ? {} : { body: "{}" };
      const typed: Record<string, string> = isRead ? {} : { "Content-Type": "application/json" };
      const url = isRead ? target.url : address;
      yield { name: `${name} ${index}`, url, headers: { ...typed, [name]: value }, ...body };
    }
  }
}
