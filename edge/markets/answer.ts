// How an answer leaves: conditional requests, the cache at the edge, small bodies whole and large
// ones as a stream that takes no more memory than a few chunks.

import type { Cache } from "@cloudflare/workers-types";
import type { Context } from "hono";
import { iso } from "../../shared/time.ts";
import type { AppEnv } from "../http/app.ts";
import type { Config } from "./config.ts";
import type { ReadApi } from "./service.ts";

/** A 200 answer before it is sent: how it is named, cached and written. */
export interface Answer {
  /** Names the answer, without quotes. */
  tag: string;
  /** Equal tags mean equal rows, but their bytes may be laid out otherwise: a weak ETag. */
  weak?: boolean;
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
  /** Where the edge cache keeps it, when it does not change. */
  cacheKeys: readonly string[];
  /** Writes the body; not called for an answer the reader holds already. */
  body: () => AsyncGenerator<Uint8Array>;
}

type Ctx = Context<AppEnv<ReadApi>>;

/** Bodies of up to so many bytes are sent whole, with their length, and may be cached. */
const WHOLE_BYTES_MAX = 1024 * 1024;
const NAMED_HEADERS = ["Content-Type", "ETag", "X-As-Of", "X-Store-Version", "X-Sandbox"];

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
 */
export async function send(context: Ctx, answer: Answer): Promise<never> {
  const headers = headersOf(answer);
  const reply = (body: BodyInit | null, status: 200 | 304) =>
    respond(context, { ...answer, headers }, body, status);
  if (isKnown(context, headers.ETag)) return reply(null, 304);
  if (context.req.raw.method === "HEAD") return reply(null, 200);
  const cached = await fromCache(context, answer.cacheKeys, headers.ETag);
  if (cached) return reply(cached, 200);
  const chunks = answer.body();
  const start: Uint8Array[] = [];
  let size = 0;
  while (size <= WHOLE_BYTES_MAX) {
    const { value, done } = await chunks.next();
    if (done) {
      const whole = new Blob(start as Uint8Array<ArrayBuffer>[]);
      const bytes = await whole.arrayBuffer();
      store(context, answer.cacheKeys, headers, bytes);
      return reply(bytes, 200);
    }
    start.push(value);
    size += value.length;
  }
  return reply(streamed(context, start, chunks), 200);
}

function headersOf(answer: Answer): Record<string, string> {
  const headers: Record<string, string> = {};
  if (answer.asOf !== null) headers["X-As-Of"] = iso(answer.asOf);
  if (typeof answer.storeVersion === "number") {
    headers["X-Store-Version"] = String(answer.storeVersion);
  }
  if (answer.sandbox) headers["X-Sandbox"] = "true";
  headers["Content-Type"] = answer.contentType;
  headers.ETag = `${answer.weak ? "W/" : ""}"${answer.tag}"`;
  return headers;
}

/** Sends an immutable answer that the edge cache holds, without a question to the database. */
export async function sendCached(
  context: Ctx,
  key: string,
  { compressible }: Pick<Answer, "compressible">,
): Promise<never | null> {
  const cached = await lookUp(context, key);
  if (!cached) return null;
  const headers = Object.fromEntries(
    NAMED_HEADERS.flatMap((name) => {
      const value = cached.headers.get(name);
      return value === null ? [] : [[name, value]];
    }),
  );
  const reply = (body: BodyInit | null, status: 200 | 304) =>
    respond(context, { immutable: true, headers, compressible }, body, status);
  if (isKnown(context, headers.ETag)) {
    await cached.body?.cancel();
    return reply(null, 304);
  }
  return reply(await cached.arrayBuffer(), 200);
}

// `caches.default` is Cloudflare's own: the DOM's CacheStorage, which this file sees, lacks it.
const edgeCache = () => (caches as unknown as { default: Cache }).default;

/** The cached answer of a key; a cache that fails counts as one that holds nothing. */
const lookUp = (context: Ctx, key: string) =>
  edgeCache()
    .match(key)
    .catch((error: unknown) => context.var.log.warning("cache_match", { error }) ?? undefined);

/** The cached body of an answer under one of its keys; a body of any other answer is left alone. */
async function fromCache(
  context: Ctx,
  keys: readonly string[],
  etag: string | undefined,
): Promise<ArrayBuffer | null> {
  for (const key of keys) {
    const cached = await lookUp(context, key);
    if (cached && cached.headers.get("ETag") === etag) return cached.arrayBuffer();
    await cached?.body?.cancel();
  }
  return null;
}

/** Puts a whole body into the edge cache under each key, after the answer was sent. */
function store(
  context: Ctx,
  keys: readonly string[],
  headers: Readonly<Record<string, string>>,
  bytes: ArrayBuffer,
) {
  // Only our own cache sees this header, behind the check of the API key: always public, and given
  // only keys whose answer is immutable.
  const publicHeaders = { ...headers, "Cache-Control": "public, max-age=31536000, immutable" };
  for (const key of keys) {
    // The workers-types package declares a Response of its own beside the global one.
    const put = edgeCache().put(key, new Response(bytes, { headers: publicHeaders }) as never);
    context.executionCtx.waitUntil(
      put.catch((error: unknown) => context.var.log.warning("cache_put", { error })),
    );
  }
}

/** Whether If-None-Match names the answer: the reader holds it already. */
const isKnown = (context: Ctx, etag: string | undefined) => {
  const given = (context.req.header("If-None-Match") ?? "").split(",").map((one) => one.trim());
  const bare = (tag: string | undefined) => tag?.replace(/^W\//, "").replace(/-gz"$/, '"');
  return given.some((one) => one === "*" || bare(one) === bare(etag));
};

function respond(
  context: Ctx,
  answer: Pick<Answer, "immutable" | "compressible"> & { headers: Record<string, string> },
  body: BodyInit | null,
  status: 200 | 304,
): never {
  const { immutable, headers, compressible } = answer;
  for (const [name, value] of Object.entries(headers)) context.header(name, value);
  context.header("Cache-Control", cacheControl({ immutable }, context.var.service.config));
  context.header("Vary", "Accept, Accept-Encoding", { append: true });
  // Cloudflare's edge compresses for its readers, and `cf` is there only behind it.
  const alone = !(context.req.raw as { cf?: unknown }).cf;
  if (compressible && alone && acceptsGzip(context)) {
    context.header("ETag", headers.ETag?.replace(/"$/, '-gz"'));
    if (status === 200) context.header("Content-Encoding", "gzip");
  } else if (body instanceof ArrayBuffer) {
    context.header("Content-Length", String(body.byteLength));
  }
  // Hono's body type lacks ArrayBuffer and streams of the Workers runtime; `never` as `send` says.
  return context.body(body as never, status) as never;
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
