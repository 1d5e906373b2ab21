// What a refused request is still sending: left unread, the connection would end beneath its
// sender, who would not get to read why.

import type { MiddlewareHandler } from "hono";
import { Failure } from "../../shared/errors.ts";
import { systemClock } from "../../shared/time.ts";

/** Bytes read of a refused body: the sender of a longer one may see the connection end. */
export const REFUSED_BYTES_MAX = 64 * 1024 * 1024;
/** How long the next bytes are waited for: what was announced may never come. */
const MOMENT_MS = 2_000;
/** Refusals of whom nobody knows, and for a body's length: they are let pass that long in all. */
const BRIEF = ["unauthorized", "body_too_large"];

/** Reads the body of a request that is refused to its end, unless it is large or stops coming. */
export const letRefusedPass: MiddlewareHandler = async (context, next) => {
  await next();
  const { raw } = context.req;
  if (context.res.status < 400 || !raw.body || raw.bodyUsed || raw.body.locked) return;
  if (Number(raw.headers.get("Content-Length") ?? 0) > REFUSED_BYTES_MAX) return;
  const { error } = context;
  const isBrief = !(error instanceof Failure) || BRIEF.includes(error.code);
  const started = systemClock();
  const reader = raw.body.getReader();
  let passed = 0;
  while (passed <= REFUSED_BYTES_MAX && !(isBrief && systemClock() - started >= MOMENT_MS)) {
    const piece = await nextPiece(reader);
    if (!piece) return;
    passed += piece.length;
  }
};

/** The next bytes; null where there are none, or none come. */
async function nextPiece(
  reader: ReadableStreamDefaultReader<Uint8Array>,
): Promise<Uint8Array | null> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const moment = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), MOMENT_MS);
  });
  // A sender that has gone reads no answer.
  const read = reader.read().then(
    ({ value }) => value ?? null,
    () => null,
  );
  try {
    return await Promise.race([read, moment]);
  } finally {
    clearTimeout(timer);
  }
}
