// Forms and headers that no client of good will sends, for the driver of hostile values. Forms are
// written byte by byte: what a client's own library would never write is what they are for.

import type { Endpoint, Json } from "../../edge/http/example-request.ts";
import { mp4, png } from "./media.ts";

/** A request of a route as these make it. */
export interface OddRequest {
  what: string;
  body?: Uint8Array | string | ReadableStream<Uint8Array>;
  headers: Record<string, string>;
  /** The declared parameter that is hostile, where one is. */
  parameter?: { name: string; text: string };
}

const BOUNDARY = "----hostile";
const FORM = `multipart/form-data; boundary=${BOUNDARY}`;

interface Part {
  /** Lines of the part's header. */
  head: string | Buffer;
  content: string | Uint8Array;
}

/** A form of parts; without an end it breaks off. */
function written(parts: readonly Part[], end = `--${BOUNDARY}--\r\n`): Uint8Array {
  const pieces = parts.flatMap(({ head, content }) =>
    [`--${BOUNDARY}\r\n`, head, "\r\n\r\n", content, "\r\n"].map((one) => Buffer.from(one)),
  );
  return new Uint8Array(Buffer.concat([...pieces, Buffer.from(end)]));
}

const disposition = (name: string) => `Content-Disposition: form-data; name="${name}"`;
const field = (name: string, content: string | Uint8Array): Part => ({
  head: disposition(name),
  content,
});
const fileOf = (name: string, filename: string, content: Uint8Array): Part => ({
  head: `${disposition(name)}; filename="${filename}"\r\nContent-Type: video/mp4`,
  content,
});

/** Texts of a field. */
const FIELDS = [
  "",
  "\u0000",
  "null",
  "[",
  '{"a":1e400}',
  "[[1,2],[-1,1e-46]]",
  "-1",
  "x".repeat(20_000),
  Uint8Array.of(0xff, 0xfe, 0x00, 0xd8),
];
const FILENAMES = [
  "",
  "..",
  "../../etc/passwd",
  "a\u0000b.mp4",
  "é".repeat(600),
  "x".repeat(5_000),
  "%00.mp4",
  '.mp4"; name="project_id',
  "\ufffd\ufffe.mp4",
];
/** Contents of a file that are none of any kind. */
const FILES = [new Uint8Array(), Buffer.from("a text"), png().subarray(0, 20), png(0, 2 ** 31)];

/**
 * The hostile forms of a route: each field, name and content in turn, in forms that are else in
 * order, and forms that are none. `fieldOf` gives what a field holds in those.
 */
export function* oddForms(
  { path, operation }: Endpoint,
  fieldOf: (name: string) => string | undefined,
): Generator<OddRequest> {
  const schema = operation.requestBody?.content?.["multipart/form-data"]?.schema;
  if (!schema) return;
  const properties = Object.entries((schema.properties ?? {}) as Record<string, Json>);
  const isFile = ({ format, items }: Json) =>
    (format ?? (items as Json | undefined)?.format) === "binary";
  const [upload] = properties.filter(([, shape]) => isFile(shape)).map(([name]) => name);
  const content = /video|upload$|batch$/.test(path) ? mp4() : png();
  const required = (schema.required ?? []) as string[];
  const fields = required.filter((name) => name !== upload);
  const base = fields.map((name) => field(name, fieldOf(name) ?? "x"));
  const file = upload === undefined ? [] : [fileOf(upload, "a.mp4", content)];
  const form = (what: string, parts: readonly Part[], end?: string): OddRequest => ({
    what: `form: ${what}`,
    body: written(parts, end),
    headers: { "Content-Type": FORM },
  });
  for (const [name] of properties) {
    const others = base.filter(({ head }) => head !== disposition(name));
    for (const [index, text] of FIELDS.entries()) {
      // A file may come as a field, and a field as a file.
      yield form(`${name} ${index}`, [...others, field(name, text), ...file]);
    }
    yield form(`${name} as a file`, [...others, fileOf(name, "x", png()), ...file]);
    yield form(`${name} twice`, [...base, field(name, "x"), field(name, "x"), ...file]);
  }
  const named = upload ?? "file";
  for (const [index, filename] of FILENAMES.entries()) {
    yield form(`filename ${index}`, [...base, fileOf(named, filename, content)]);
  }
  for (const [index, odd] of FILES.entries()) {
    yield form(`file ${index}`, [...base, fileOf(named, "a.mp4", odd)]);
  }
  const many = Array.from({ length: 60 }, (_, index) => field(`x${index}`, "x"));
  const unnamed = { head: "Content-Disposition: form-data", content: "x" };
  const bytes = Buffer.from([...Buffer.from(disposition("")).subarray(0, -1), 0xff, 0x22]);
  yield form("nothing", []);
  yield form("no end", [...base, ...file], "");
  yield form("the file first", [...file, ...base]);
  yield form("no header", [{ head: "", content: "x" }, ...base, ...file]);
  yield form("no name", [unnamed, ...base, ...file]);
  yield form("a name of odd bytes", [{ head: bytes, content: "x" }, ...base, ...file]);
  yield form("a name of all objects", [field("__proto__", "x"), ...base, ...file]);
  yield form("many fields", [...many, ...base, ...file]);
  yield { ...form("another boundary", base), headers: { "Content-Type": `${FORM}x` } };
  yield { ...form("no boundary", base), headers: { "Content-Type": "multipart/form-data" } };
  const whole = written([...base, ...file]);
  yield { what: "form: no length", body: streamOf(whole), headers: { "Content-Type": FORM } };
}

/** A body that is sent without its length. */
const streamOf = (bytes: Uint8Array) =>
  new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(bytes);
      controller.close();
    },
  });

/** Values of any header. */
const HEADERS = [
  "",
  "\u00ff\u00fe",
  "x".repeat(4_000),
  "-1",
  "*",
  '"',
  'W/"x", "y',
  "bytes=5-1",
  "bytes=0-99999999999999999999",
  "bytes=-0,-0",
  "%00",
  "' OR 1=1 --",
];
const CREDENTIALS = [
  "",
  "Bearer",
  "Bearer \u00ff",
  "Bearer a.b.c",
  `Bearer ${"x".repeat(4_000)}`,
  "Bearer eyJhbGciOiJub25lIn0.e30.",
  "Basic Og==",
  "Bearer Bearer x",
];
const TYPES = [
  "",
  "text/plain",
  "application/json; charset=utf-16",
  "application/json;;=",
  "application/JSON",
  "multipart/form-data",
  "multipart/form-data; boundary=\u00ff",
  "application/x-www-form-urlencoded",
  "x".repeat(2_000),
];
/** Headers that say how to answer. */
const ANSWERING = ["If-Match", "If-None-Match", "Range", "Accept", "X-Request-Id", "If-Range"];

const turn = <Value>(values: readonly Value[], index: number) =>
  values[index % values.length] as Value;

/** A credential that is nobody's; every route has another one. */
export const oddCredential = (index: number): OddRequest => {
  const Authorization = turn(CREDENTIALS, index);
  return { what: `credential ${Authorization.slice(0, 30)}`, headers: { Authorization } };
};

/**
 * The hostile headers of a route: all values of those that it declares, and of the others one each,
 * which differ from route to route. `json` is its body, where it takes one.
 */
export function* oddHeaders(
  { operation }: Endpoint,
  { index, json }: { index: number; json: string | undefined },
): Generator<OddRequest> {
  const typed: Record<string, string> =
    json === undefined ? {} : { "Content-Type": "application/json" };
  const sent = json === undefined ? {} : { body: json };
  for (const { in: where, name } of operation.parameters ?? []) {
    if (where !== "header") continue;
    for (const text of HEADERS) {
      const headers = { ...typed, [name]: text };
      yield { what: `${name}: ${text.slice(0, 30)}`, ...sent, headers, parameter: { name, text } };
    }
  }
  const answering = ANSWERING.map((name, at) => [name, turn(HEADERS, index + at)] as const);
  yield { what: "headers", ...sent, headers: { ...typed, ...Object.fromEntries(answering) } };
  if (json === undefined) return;
  const type = turn(TYPES, index);
  yield { what: `type ${type.slice(0, 30)}`, body: json, headers: { "Content-Type": type } };
  const body = streamOf(Buffer.from(json));
  yield { what: "no length", body, headers: typed };
}
