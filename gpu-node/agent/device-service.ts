// The service as a device speaks to it. One request, one try: whoever asks decides when to ask
// again. The token goes to the service alone, and no address of a file reaches a message.

import { gzipSync } from "node:zlib";
import { z } from "zod";
import { Secret } from "../../shared/secret.ts";
import {
  DeviceImage,
  DeviceToken,
  type EnrolDevice,
  EnrolledDevice,
  type Heartbeat,
  HeartbeatAnswer,
  type LogBatch,
  LogReceipt,
  type ManifestKey,
} from "../../shared/wire/fleet.ts";
import { SignedManifest } from "../../shared/wire/rollouts.ts";

const REQUEST_MS_MAX = 30_000;
const Body = z.object({ code: z.string(), detail: z.string() }).partial();

/** The service understood and said no. */
export class ServiceRefusal extends Error {
  override readonly name = "ServiceRefusal";
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, detail: string) {
    super(`the service answered ${status} ${code}: ${detail}`);
    this.status = status;
    this.code = code;
  }
}

type AwayDetail = Pick<ServiceAway, "afterMs" | "wasAnswered" | "wasSlow">;

/** No answer, one that says to come again, or one that is none of the service's. */
export class ServiceAway extends Error {
  override readonly name = "ServiceAway";
  /** When to come again, where it says so. */
  readonly afterMs: number | null;
  /** Somebody answered, whole: what was asked was not lost, and asking at once is of no use. */
  readonly wasAnswered: boolean;
  /** Its time was over: less may have come through. */
  readonly wasSlow: boolean;

  constructor(
    reason: string,
    { afterMs = null, wasAnswered = false, wasSlow = false }: Partial<AwayDetail> = {},
  ) {
    super(reason);
    this.afterMs = afterMs;
    this.wasAnswered = wasAnswered;
    this.wasSlow = wasSlow;
  }
}

interface OutgoingRequest {
  method?: "GET" | "POST";
  token?: Secret;
  body?: unknown;
  /** In place of a body. */
  form?: FormData;
  gzip?: boolean;
  signal?: AbortSignal | undefined;
  /** By when it is answered; half a minute when omitted. */
  msMax?: number;
}

/** Sends a request; fails with ServiceAway or ServiceRefusal unless it is answered well. */
async function ask(address: string, sent: OutgoingRequest): Promise<Response> {
  const limit = AbortSignal.timeout(sent.msMax ?? REQUEST_MS_MAX);
  const headers: Record<string, string> = {};
  if (sent.token) headers.authorization = `Bearer ${sent.token.reveal()}`;
  const text = sent.body === undefined ? null : JSON.stringify(sent.body);
  if (text !== null) headers["content-type"] = "application/json";
  if (sent.gzip) headers["content-encoding"] = "gzip";
  let response: Response;
  try {
    response = await fetch(address, {
      method: sent.method ?? "POST",
      headers,
      body: text !== null && sent.gzip ? new Uint8Array(gzipSync(text)) : (sent.form ?? text),
      redirect: "manual",
      signal: sent.signal ? AbortSignal.any([limit, sent.signal]) : limit,
    });
  } catch (thrown) {
    sent.signal?.throwIfAborted();
    const cause = (thrown as Error).cause as { code?: string } | undefined;
    const reason = `no answer (${cause?.code ?? (thrown as Error).name})`;
    throw new ServiceAway(reason, { wasSlow: limit.aborted });
  }
  if (response.status < 400) return response;
  const { code, detail = "" } = Body.safeParse(await jsonOf(response, sent.signal)).data ?? {};
  if (response.status >= 500 || response.status === 429 || response.status === 408) {
    const after = Number(response.headers.get("retry-after"));
    const afterMs = after > 0 ? after * 1_000 : null;
    throw new ServiceAway(`status ${response.status} ${code ?? ""}`, {
      afterMs,
      wasAnswered: true,
    });
  }
  // The service names what it refuses; a proxy does not, and knows nothing but a body's size.
  if (code === undefined && response.status !== 413)
    throw new ServiceAway(`status ${response.status} of somebody who is not the service`, {
      wasAnswered: true,
    });
  throw new ServiceRefusal(response.status, code ?? "", detail);
}

/** What an answer says, null where that is no JSON. Fails with ServiceAway where it is cut off. */
async function jsonOf(response: Response, signal?: AbortSignal): Promise<unknown> {
  const text = await response.text().catch(() => {
    signal?.throwIfAborted();
    throw new ServiceAway("an answer that was cut off");
  });
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

async function parsed<Schema extends z.ZodType>(
  address: string,
  sent: OutgoingRequest,
  schema: Schema,
): Promise<z.output<Schema>> {
  const response = await ask(address, sent);
  const read = schema.safeParse(await jsonOf(response, sent.signal));
  // Such as the page of a proxy that answers for the service.
  if (!read.success) {
    throw new ServiceAway("an answer that is none of the service's", { wasAnswered: true });
  }
  return read.data;
}

/** Trades a one-time code for the device's identity. */
export const enrol = (
  url: string,
  body: z.input<typeof EnrolDevice>,
  signal?: AbortSignal,
): Promise<EnrolledDevice> =>
  parsed(`${url}/api/v1/devices/enrol`, { body, signal }, EnrolledDevice);

/** What a device asks of the service by its token. */
export class DeviceService {
  readonly #base: string;
  readonly #logMsMax: number;
  #token: Secret;

  /** `logMsMax`: by when a batch of the log is answered. */
  constructor(url: string, deviceId: string, token: Secret, logMsMax = REQUEST_MS_MAX) {
    this.#base = `${url}/api/v1/devices/${deviceId}`;
    this.#token = token;
    this.#logMsMax = logMsMax;
  }

  /** From here on it comes with this token. */
  use(token: Secret): void {
    this.#token = token;
  }

  /** Says how the device is; gives what is wanted of it. */
  heartbeat(beat: z.input<typeof Heartbeat>, signal?: AbortSignal): Promise<HeartbeatAnswer> {
    const sent = { token: this.#token, body: beat, signal };
    return parsed(`${this.#base}/heartbeat`, sent, HeartbeatAnswer);
  }

  /** Hands over lines of the log; gives what is stored. */
  syncLogs(batch: z.input<typeof LogBatch>, signal?: AbortSignal): Promise<LogReceipt> {
    const sent = { token: this.#token, body: batch, gzip: true, signal, msMax: this.#logMsMax };
    return parsed(`${this.#base}/sync-logs`, sent, LogReceipt);
  }

  /** Sends the image of a line of the log along. */
  async sendImage(
    { bootId, seq }: { bootId: string; seq: number },
    jpeg: Uint8Array<ArrayBuffer>,
    signal?: AbortSignal,
  ): Promise<DeviceImage> {
    const form = new FormData();
    form.set("file", new Blob([jpeg], { type: "image/jpeg" }), `${seq}.jpg`);
    const sent = { token: this.#token, form, signal };
    return parsed(`${this.#base}/images?boot_id=${bootId}&seq=${seq}`, sent, DeviceImage);
  }

  /** What the device is to run, as somebody signed it. */
  manifest(signal?: AbortSignal): Promise<SignedManifest> {
    const sent = { method: "GET", token: this.#token, signal } as const;
    return parsed(`${this.#base}/manifest`, sent, SignedManifest);
  }

  /** An address of a version's file, which takes no token. */
  async artifact(version: string, signal?: AbortSignal): Promise<string> {
    const address = `${this.#base}/artifact?version=${encodeURIComponent(version)}`;
    const response = await ask(address, { method: "GET", token: this.#token, signal });
    await response.body?.cancel();
    const location = response.headers.get("location");
    if (location === null) throw new ServiceAway("an answer that is none of the service's");
    return new URL(location, address).href;
  }

  /** The device's next token, and the keys that manifests are signed with. */
  async nextToken(signal?: AbortSignal): Promise<{ token: Secret; keys: ManifestKey[] }> {
    const sent = { token: this.#token, signal };
    const next = await parsed(`${this.#base}/token`, sent, DeviceToken);
    return { token: new Secret(next.token), keys: next.manifest_keys };
  }
}
