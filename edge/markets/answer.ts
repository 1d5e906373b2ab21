// How an answer leaves: conditional requests, the cache at the edge, small bodies whole and large
// ones as a stream that takes no more memory than a few chunks.

import type { Cache } from "@cloudflare/workers-types";
import type { Context } from "hono";
import type { AppEnv } from "../http/app.ts";
import type { Config } from "./config.ts";
import type { ReadApi } from "./routes.ts";

export interface Answer {
  /** Names the answer, without quotes. */
  tag: string;
  /** Equal tags mean equal rows, but their bytes may be laid out otherwise: a weak ETag. */
  weak?: boolean;
  contentType: string;
  /** Text is worth compressing where no edge does it. */
  compressible: boolean;
  /** No later commit can change it. */
  settled: boolean;
  /** Headers of this answer's own. */
  headers: Readonly<Record<string, string>>;
  /** Where the edge cache keeps it, when it does not change. */
  cacheKeys: readonly string[];
  /** Writes the body; not called for an answer the reader holds already. */
  body: () => AsyncGenerator<Uint8Array>;
}

type Ctx = Context<AppEnv<ReadApi>>;

/** Bodies up to here are sent whole, with a length, and may be cached. */
const WHOLE_BYTES_MAX = 1024 * 1024;
const NAMED_HEADERS = ["Content-Type", "ETag", "X-As-Of", "X-Store-Version", "X-Sandbox"];

/**
 * A settled answer never changes; shared caches may hold it unless readers need a key.
 */
export function cacheControl(settled: boolean, config: Config): string {
  const scope = config.SERVICE_READ_API_KEY ? "private" : "public";
  if (settled) return `${scope}, max-age=31536000, immutable`;
  return config.SERVICE_READ_API_KEY
    ? "private, max-age=0"
    : "public, max-age=0, s-maxage=30, stale-while-revalidate=30";
}

/** Sends an answer. Only a body that is streamed can still fail after its status was sent. */
export async function send(context: Ctx, answer: Answer): Promise<Response> {
  const headers: Record<string, string> = {
    ...answer.headers,
    "Content-Type": answer.contentType,
    ETag: `${answer.weak ? "W/" : ""}"${answer.tag}"`,
  };
  const reply = (body: BodyInit | null, status: 200 | 304) =>
    respond(context, { ...answer, headers }, body, status);
  if (isKnown(context, headers.ETag)) return reply(null, 304);
  if (context.req.raw.method === "HEAD") return reply(null, 200);
  const kept = await fromCache(context, answer.cacheKeys);
  if (kept) return reply(kept, 200);
  const chunks = answer.body();
  const start: Uint8Array[] = [];
  let size = 0;
  while (size <= WHOLE_BYTES_MAX) {
    const { value, done } = await chunks.next();
    if (done) {
      const whole = new Blob(start as Uint8Array<ArrayBuffer>[]);
      const bytes = await whole.arrayBuffer();
      keep(context, answer.cacheKeys, headers, bytes);
      return reply(bytes, 200);
    }
    start.push(value);
    size += value.length;
  }
  return reply(streamed(context, start, chunks), 200);
}

/** A settled answer that the edge cache holds, without a question to the database. */
export async function sendCached(
  context: Ctx,
  key: string,
  compressible: boolean,
): Promise<Response | null> {
  const found = await lookUp(context, key);
  if (!found) return null;
  const headers = Object.fromEntries(
    NAMED_HEADERS.flatMap((name) => {
      const value = found.headers.get(name);
      return value === null ? [] : [[name, value]];
    }),
  );
  const send = (body: BodyInit | null, status: 200 | 304) =>
    respond(context, { settled: true, headers, compressible }, body, status);
  if (isKnown(context, headers.ETag)) {
    await found.body?.cancel();
    return send(null, 304);
  }
  return send(await found.arrayBuffer(), 200);
}

const edgeCache = () => (caches as unknown as { default: Cache }).default;

/** A cache that fails has nothing. */
const lookUp = (context: Ctx, key: string) =>
  edgeCache()
    .match(key)
    .catch((error: unknown) => context.var.log.warning("cache_match", { error }) ?? undefined);

async function fromCache(context: Ctx, keys: readonly string[]): Promise<ArrayBuffer | null> {
  for (const key of keys) {
    const found = await lookUp(context, key);
    if (found) return found.arrayBuffer();
  }
  return null;
}

function keep(
  context: Ctx,
  keys: readonly string[],
  headers: Readonly<Record<string, string>>,
  bytes: ArrayBuffer,
) {
  // Inside our own cache, behind the key check: always public, always settled.
  const stored = { ...headers, "Cache-Control": "public, max-age=31536000, immutable" };
  for (const key of keys) {
    const put = edgeCache().put(key, new Response(bytes, { headers: stored }) as never);
    context.executionCtx.waitUntil(
      put.catch((error: unknown) => context.var.log.warning("cache_put", { error })),
    );
  }
}

const isKnown = (context: Ctx, etag: string | undefined) => {
  const given = (context.req.header("If-None-Match") ?? "").split(",").map((one) => one.trim());
  const bare = (tag: string | undefined) => tag?.replace(/^W\//, "").replace(/-gz"$/, '"');
  return given.some((one) => one === "*" || bare(one) === bare(etag));
};

function respond(
  context: Ctx,
  { settled, headers, compressible }: Pick<Answer, "settled" | "headers" | "compressible">,
  body: BodyInit | null,
  status: 200 | 304,
): Response {
  for (const [name, value] of Object.entries(headers)) context.header(name, value);
  context.header("Cache-Control", cacheControl(settled, context.var.service.config));
  context.header("Vary", "Accept, Accept-Encoding", { append: true });
  // Cloudflare's edge compresses for its readers, and `cf` is there only behind it.
  const alone = !(context.req.raw as { cf?: unknown }).cf;
  if (compressible && alone && acceptsGzip(context)) {
    context.header("ETag", headers.ETag?.replace(/"$/, '-gz"'));
    if (status === 200) context.header("Content-Encoding", "gzip");
  } else if (body instanceof ArrayBuffer) {
    context.header("Content-Length", String(body.byteLength));
  }
  return context.body(body as never, status);
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
  return readable as unknown as ReadableStream;
}
