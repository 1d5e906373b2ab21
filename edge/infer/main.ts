// The edge-inference Worker: an image and a model's name in, objects in pixels of the image out,
// where no GPU node is. It has no address, and is reached by the vision service's binding alone, so
// it believes what a request says of the model and its workspace. Its memory is its own, and
// bounded: requests beyond it are told to come again.

import type { ExecutionContext } from "@cloudflare/workers-types";
import { Failure } from "../../shared/errors.ts";
import { systemClock } from "../../shared/time.ts";
import {
  EDGE_HASH_PATH,
  EDGE_IMAGE_BYTES_MAX,
  PRECISION_HEADER,
} from "../../shared/wire/edge-inference.ts";
import { oncePerEnvironment } from "../http/config.ts";
import { createLog } from "../http/log.ts";
import { parseConfig } from "./config.ts";
import { hashImage } from "./hash.ts";
import { predict } from "./predict.ts";
import { runtimeBytes } from "./runtime.ts";

/** Requests that an isolate holds at once, and bytes of them all. */
const REQUESTS_MAX = 8;
const HELD_BYTES_MAX = 2 * EDGE_IMAGE_BYTES_MAX;
/** Bytes of a request beside its image. */
const HEAD_BYTES_MAX = 256 * 1024;
/** A request that was canceled says nothing of its end; what it held is free by then. */
const HOLD_MS = 60_000;

const log = createLog("infer");
const open = oncePerEnvironment(parseConfig);

interface Hold {
  bytes: number;
  since: number;
}
const holds = new Set<Hold>();

/** Takes room for a request's bytes; fails with `overloaded` where there is none. */
function holdFor(bytes: number): Hold {
  const now = systemClock();
  for (const hold of holds) if (now - hold.since > HOLD_MS) holds.delete(hold);
  const held = [...holds].reduce((sum, hold) => sum + hold.bytes, 0);
  if (holds.size >= REQUESTS_MAX || held + bytes > HELD_BYTES_MAX) {
    throw new Failure("overloaded", "the edge has as much as it takes", {
      data: { retry_after_seconds: 1 },
    });
  }
  const hold = { bytes, since: now };
  holds.add(hold);
  return hold;
}

async function answer(request: Request, environment: object): Promise<Response> {
  const config = open(environment);
  if (request.method !== "POST") throw new Failure("method_not_allowed", "POST is answered");
  const announced = request.headers.get("Content-Length");
  const bytes = announced === null ? EDGE_IMAGE_BYTES_MAX : Number(announced);
  if (bytes > EDGE_IMAGE_BYTES_MAX + HEAD_BYTES_MAX) {
    throw new Failure("file_too_large", "the image is larger than the edge takes", {
      data: { bytes_max: EDGE_IMAGE_BYTES_MAX },
    });
  }
  const hold = holdFor(bytes);
  try {
    const began = systemClock();
    const body = new Uint8Array(await request.arrayBuffer());
    if (new URL(request.url).pathname === EDGE_HASH_PATH) {
      return Response.json({ hash: await hashImage(body) });
    }
    const { answer, opened, precision } = await predict(config, body);
    const objects = answer.predictions.length;
    // The clock stands still while nothing outside is waited for.
    const ms = systemClock() - began;
    log.info("predicted", { opened, objects, ms, precision, runtime_bytes: runtimeBytes() });
    return Response.json(answer, { headers: { [PRECISION_HEADER]: precision } });
  } finally {
    holds.delete(hold);
  }
}

function refuse(thrown: unknown): Response {
  if (!(thrown instanceof Failure)) {
    log.error("request_failed", { error: thrown });
    const body = { code: "internal", detail: "inference at the edge failed" };
    return Response.json(body, { status: 500 });
  }
  const { code, message: detail, data, status, cause } = thrown;
  if (status >= 500) log.error("request_refused", { code, detail, error: cause });
  return Response.json({ ...data, code, detail }, { status });
}

export default {
  fetch(request: Request, environment: object, context: ExecutionContext): Promise<Response> {
    const work = answer(request, environment).catch(refuse);
    // The work ends in order also when whoever asked goes away.
    context.waitUntil(work);
    return work;
  },
};
