// How an answer leaves: conditional requests, the cache at the edge, small bodies whole and large
// ones as a stream that takes no more memory than a few chunks, settled ones in ranges too.

import type { Context } from "hono";
import { Failure } from "../../shared/errors.ts";
import { iso } from "../../shared/time.ts";
import type { AppEnv } from "../http/app.ts";
import { findBody, findBodyInTurn, RecentTexts, storeBody } from "./answer-cache.ts";
import type { Config } from "./config.ts";
import type { ReadApi } from "./service.ts";

/** A 200 answer before it is sent: how it is named, cached and written. */
export interface Answer {
  /** Names the answer's bytes, without quotes: equal tags, equal bytes. */
  tag: string;
  contentType: string;
  /** Text is worth compressing where no edge does it. */
  compressible: boolean;
  /** No later commit can change it. */
  immutable: boolean;
  /** The knowledge time that answered, epoch milliseconds; null before the first vintage. */
  asOf: number | null;
  /** The store version that answered, where one series did. */
  storeVersion?: number | null;
  /** Whether any row of it is sandbox data. */
  sandbox: boolean;
  /** Whether the edge cache may keep its bytes, under its tag. */
  cacheable: boolean;
  /** Nothing was known yet, so it has no rows. */
  isEmpty?: boolean;
  /** Writing it takes less time than asking the cache for it does. */
  isQuick?: boolean;
  /**
   * Writes the body; not called for an answer the reader holds already. A part holds until the next
   * one is asked for.
   */
  body: () => AsyncGenerator<Uint8Array>;
}

type Ctx = Context<AppEnv<ReadApi>>;

/** Bodies of up to so many bytes are sent whole, with their length, and may be cached. */
const WHOLE_BYTES_MAX = 1024 * 1024;
/**
 * Bodies of up to so many bytes are kept whole for readers who ask for ranges or for the length; of
 * larger ones no range is given.
 */
const RANGED_BYTES_MAX = 8 * 1024 * 1024;

/** The value of Cache-Control. Shared caches may hold an answer unless readers need a key. */
export function cacheControl({ immutable }: { immutable: boolean }, config: Config): string {
  const scope = config.SERVICE_READ_API_KEY ? "private" : "public";
  if (immutable) return `${scope}, max-age=31536000, immutable`;
  return config.SERVICE_READ_API_KEY
    ? "private, max-age=0"
    : "public, max-age=0, s-maxage=30, stale-while-revalidate=30";
}

/**
 * Sends an answer. Only a body that is streamed can still fail after its status was sent. The type
 * is `never`, which every declared response accepts: the declared records are in the bytes, where
 * the type system cannot see them.
 *
 * A range, or the length that HEAD tells, is given of an immutable answer only: the address of any
 * other may name another vintage by the time the next range is asked for.
 */
export async function send(context: Ctx, answer: Answer): Promise<never> {
  const headers = headersOf(answer);
  const reply = (status: 200 | 206 | 304, body: Body) =>
    respond(context, answer, { headers, status, body });
  if (isKnown(context, headers.ETag)) return reply(304, null);
  const isHead = context.req.raw.method === "HEAD";
  const isMeasurable = answer.cacheable || answer.isEmpty === true;
  const isRanged = answer.immutable && isMeasurable && !larger.has(answer.tag);
  const range = isRanged && !isHead ? wantedRange(context, headers.ETag) : null;
  const takesRanges = () => {
    if (isRanged) headers["Accept-Ranges"] = "bytes";
  };
  if (isRanged && (isHead || range)) {
    takesRanges();
    return sendMeasured(context, answer, { headers, range });
  }
  if (isHead) return reply(200, null);
  const key = answer.cacheable && !answer.isQuick ? bodyKey(context, answer) : null;
  const kept = key === null ? null : await findBody(context.var.log, key, null);
  if (kept) {
    takesRanges();
    return reply(200, kept.body);
  }
  const chunks = answer.body();
  const { start, whole } = await readUpTo(chunks, WHOLE_BYTES_MAX);
  // How long it becomes, and whether ranges of it are given, is not known yet.
  if (!whole) return reply(200, streamed(context, start, chunks));
  takesRanges();
  const isWanted = asked.has(answer.tag);
  asked.add(answer.tag);
  if (key !== null && isWanted) {
    context.executionCtx.waitUntil(storeBody(context.var.log, key, whole));
  }
  return reply(200, whole);
}

/** Tags of answers whose bodies are too large for ranges: nobody has to find out twice. */
const larger = new RecentTexts();
/**
 * Tags of answers that were asked for once: only what is asked for again is put into the cache, or
 * a study's walk through ten years would fill it with days that nobody reads twice.
 */
const asked = new RecentTexts();

/** A range of a body, or for HEAD its length; of a body that is too large neither is given. */
async function sendMeasured(
  context: Ctx,
  answer: Answer,
  { headers, range }: { headers: Record<string, string>; range: string | null },
): Promise<never> {
  const reply = (status: 200 | 206, body: Body) =>
    respond(context, answer, { headers, status, body });
  const { log } = context.var;
  const key = answer.cacheable ? bodyKey(context, answer) : null;
  const replyPart = ({ contentRange, bytes }: Part) => {
    if (bytes === null) throw unsatisfiable(context, contentRange);
    headers["Content-Range"] = contentRange;
    return reply(206, bytes);
  };
  // An answer without rows is made anew for each range.
  const { found, endTurn } =
    key === null ? { found: null, endTurn() {} } : await findBodyInTurn(log, key, range);
  try {
    if (found && range !== null) return replyPart(await partOf(found, range));
    if (found) {
      await found.body?.cancel();
      return reply(200, lengthOf(found));
    }
    const chunks = answer.body();
    const { start, whole } = await readUpTo(chunks, RANGED_BYTES_MAX);
    if (!whole) {
      larger.add(answer.tag);
      delete headers["Accept-Ranges"];
      if (range !== null) return reply(200, streamed(context, start, chunks));
      await chunks.return(undefined);
      return reply(200, null);
    }
    if (key !== null) await storeBody(log, key, whole);
    if (range === null) return reply(200, { length: whole.byteLength });
    return replyPart(cut(whole, range));
  } finally {
    endTurn();
  }
}

/** A range of a body; without bytes where it lies outside. */
interface Part {
  bytes: ArrayBuffer | ReadableStream | null;
  contentRange: string;
}

/**
 * The range of a kept body. The cache cuts most of them, but not one from the end that is longer
 * than the body, nor one of no bytes.
 */
async function partOf(found: Response, range: string): Promise<Part> {
  const contentRange = found.headers.get("Content-Range");
  if (found.status === 206 && contentRange) return { bytes: found.body, contentRange };
  if (found.status === 416 && contentRange) return { bytes: null, contentRange };
  return cut(await found.arrayBuffer(), range);
}

function headersOf(answer: Answer): Record<string, string> {
  const headers: Record<string, string> = {};
  if (answer.asOf !== null) headers["X-As-Of"] = iso(answer.asOf);
  if (typeof answer.storeVersion === "number") {
    headers["X-Store-Version"] = String(answer.storeVersion);
  }
  if (answer.sandbox) headers["X-Sandbox"] = "true";
  headers["Content-Type"] = answer.contentType;
  headers.ETag = `"${answer.tag}"`;
  return headers;
}

/** The length of a kept body, where the cache tells it. */
function lengthOf({ headers }: Response): Body {
  const length = headers.get("Content-Length");
  return length === null ? null : { length: Number(length) };
}

/** The first chunks of a body, and all of it where it is no longer than `bytesMax`. */
async function readUpTo(chunks: AsyncGenerator<Uint8Array>, bytesMax: number) {
  const start: Uint8Array[] = [];
  let size = 0;
  while (size <= bytesMax) {
    const { value, done } = await chunks.next();
    if (done) {
      const whole = new Uint8Array(size);
      let at = 0;
      for (const chunk of start) {
        whole.set(chunk, at);
        at += chunk.length;
      }
      return { start, whole: whole.buffer };
    }
    start.push(value.slice());
    size += value.length;
  }
  return { start, whole: null };
}

/**
 * Where the edge cache keeps an answer: under its tag, which names the series by its number and the
 * vintage by its version and time. Asking the catalog for them first costs a statement a read; in
 * return no body of a catalog that was restored, or begun anew at the same address, is ever served.
 */
function bodyKey(context: Ctx, { tag }: Answer): string {
  const { config, cacheScope } = context.var.service;
  return `https://${config.CACHE_HOST}/${cacheScope}/${encodeURIComponent(tag)}`;
}

/** The Range header of a request where it is one range of bytes that applies to the answer. */
function wantedRange(context: Ctx, etag: string | undefined): string | null {
  const range = context.req.header("Range") ?? "";
  const condition = context.req.header("If-Range");
  if (condition !== undefined && condition !== etag) return null;
  // Several ranges at once, units other than bytes, and what ends before it begins may be ignored
  // (RFC 9110, 14.2).
  const [, first, last] = /^bytes=(\d*)-(\d*)$/.exec(range) ?? [];
  if (!first && !last) return null;
  return first && last && Number(last) < Number(first) ? null : range;
}

function cut(whole: ArrayBuffer, range: string): Part {
  const size = whole.byteLength;
  const [first = "", last = ""] = range.slice("bytes=".length).split("-");
  const from = first === "" ? Math.max(size - Number(last), 0) : Number(first);
  const to = first === "" || last === "" ? size : Math.min(Number(last) + 1, size);
  if (from >= to) return { bytes: null, contentRange: `bytes */${size}` };
  return { bytes: whole.slice(from, to), contentRange: `bytes ${from}-${to - 1}/${size}` };
}

function unsatisfiable(context: Ctx, contentRange: string) {
  context.header("Content-Range", contentRange);
  return new Failure("range_not_satisfiable", "Range: lies outside the answer");
}

/** Whether If-None-Match names the answer: the reader holds it already. */
const isKnown = (context: Ctx, etag: string | undefined) => {
  const given = (context.req.header("If-None-Match") ?? "").split(",").map((one) => one.trim());
  const bare = (tag: string | undefined) => tag?.replace(/^W\//, "").replace(/-gz"$/, '"');
  return given.some((one) => one === "*" || bare(one) === bare(etag));
};

/** What is sent; for HEAD only how long it is. */
type Body = ArrayBuffer | ReadableStream | { length: number } | null;

function respond(
  context: Ctx,
  { immutable, compressible }: Pick<Answer, "immutable" | "compressible">,
  {
    headers,
    status,
    body,
  }: { headers: Readonly<Record<string, string>>; status: 200 | 206 | 304; body: Body },
): never {
  for (const [name, value] of Object.entries(headers)) context.header(name, value);
  context.header("Cache-Control", cacheControl({ immutable }, context.var.service.config));
  context.header("Vary", "Accept, Accept-Encoding", { append: true });
  // Cloudflare's edge compresses for its readers, and `cf` is there only behind it.
  const isAlone = !(context.req.raw as { cf?: unknown }).cf;
  const length = body instanceof ArrayBuffer ? body.byteLength : null;
  const isLength = body !== null && "length" in body;
  // A range is one of the bytes as they are.
  if (compressible && isAlone && status !== 206 && acceptsGzip(context)) {
    context.header("ETag", headers.ETag?.replace(/"$/, '-gz"'));
    if (status === 200) context.header("Content-Encoding", "gzip");
  } else if (length !== null || isLength) {
    context.header("Content-Length", String(isLength ? body.length : length));
  }
  // Hono's body type lacks ArrayBuffer and streams of the Workers runtime; `never` as `send` says.
  return context.body((isLength ? null : body) as never, status) as never;
}

const acceptsGzip = (context: Ctx) =>
  /\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))/.test(context.req.header("Accept-Encoding") ?? "");

/** The rest of a body as a stream, written only as fast as it is read. */
function streamed(
  context: Ctx,
  start: readonly Uint8Array[],
  rest: AsyncGenerator<Uint8Array>,
): ReadableStream {
  const { readable, writable } = new IdentityTransformStream();
  const pump = async () => {
    const writer = writable.getWriter();
    try {
      for (const chunk of start) await writer.write(chunk);
      for await (const chunk of rest) await writer.write(chunk);
      await writer.close();
    } catch (error) {
      // The reader went away, or the store did; the cut body tells a reader who is still there.
      context.var.log.warning("stream_ended", { request_id: context.var.requestId, error });
      await writer.abort(error).catch(() => {});
    } finally {
      await rest.return(undefined);
    }
  };
  context.executionCtx.waitUntil(pump());
  // The workers-types package declares a ReadableStream of its own beside the global one.
  return readable as unknown as ReadableStream;
}
