// A service that speaks the device protocol and judges whoever comes: enrolment, heartbeats,
// manifests, files in parts, logs. It knows no agent in particular, so any can be run against it
// (`DEVICE_AGENT="the program" npx vitest run test/gpu-node/agent/conformance.long.test.ts`). What
// an agent does against the protocol is a sentence in `complaints`.

import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { gunzipSync } from "node:zlib";
import { expect } from "vitest";
import {
  BootId,
  EnrolDevice,
  Heartbeat,
  LogBatch,
  type ManifestKey,
  type ReportedModel,
} from "../../shared/wire/fleet.ts";
import { MANIFEST_DOMAIN, type Manifest, type SignedManifest } from "../../shared/wire/rollouts.ts";
import type { DeviceFile } from "./described-files.ts";
import type { DeviceProcess } from "./device-process.ts";

/**
 * What a request meets in place of an answer; `drop_after`: it takes effect, its answer is lost.
 */
export type DeviceFault = "drop" | "drop_after" | "page" | "refusing_page" | 500 | 429 | 401;

/** How a file is given. */
export interface FileFault {
  /** Cut off after so many bytes of each answer. */
  cutAfter?: number;
  /** Bytes that are given in place of the file's. */
  instead?: Buffer;
  /** Ranges are passed over: the whole file comes. */
  wholeOnly?: boolean;
}

/** A signing key of the judge's. */
export interface JudgeKey {
  wire: ManifestKey;
  private: KeyObject;
}

export function judgeKey(): JudgeKey {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const public_key = publicKey.export({ format: "jwk" }).x ?? "";
  return { wire: { key_id: public_key.slice(0, 16), public_key }, private: privateKey };
}

/** What is wanted of the device. */
interface Offer {
  manifest: Manifest;
  signed: SignedManifest;
  bytes: Buffer;
}

const json = (response: ServerResponse, status: number, body: unknown) =>
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));

async function bytesOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  return request.headers["content-encoding"] === "gzip" ? gunzipSync(body) : body;
}

/** The judge. */
export class DeviceJudge {
  readonly deviceId = crypto.randomUUID();
  readonly code = `vdc_${crypto.randomUUID()}`;
  token = `vdt_${crypto.randomUUID()}`;
  key = judgeKey();
  readonly complaints: string[] = [];
  readonly beats: Heartbeat[] = [];
  /** Every state that was reported, by version, as it changed. */
  readonly states: { version: string; status: ReportedModel["status"]; failure: string | null }[] =
    [];
  /** Lines that are stored, by boot. */
  readonly logs = new Map<string, Map<number, unknown>>();
  readonly dropped = new Map<string, Set<number>>();
  /** Bytes of files that were given, and the ranges that were asked for. */
  readonly given: { range: string | null; bytes: number }[] = [];
  /** It had no key when the device enrolled. */
  isKeyless = false;
  /** Images that came, by boot and number of their lines, in order. */
  readonly images: { line: string; bytes: number }[] = [];
  duplicates = 0;
  /** Times that the device's code was answered with its identity. */
  enrolments = 0;
  /** Nothing is answered: the line is dead. */
  isAway = false;
  /** Lines of the log that are refused for good, and every batch that holds one. */
  readonly refused = new Set<number>();
  /** Milliseconds that lines of the log take to come. */
  syncMs = 0;
  file: FileFault = {};
  #faults: { path: RegExp; left: DeviceFault[] }[] = [];
  #offer: Offer | null = null;
  #version = 0;
  #nonce: string | undefined;
  #seen: string | null = null;
  readonly #server = createServer((request, response) => {
    this.#serve(request, response).catch((thrown: unknown) => {
      // Who is cut off in the middle of a request did nothing against the rules.
      if (request.complete) this.complaints.push(`the judge failed: ${String(thrown)}`);
      response.destroy();
    });
  });
  url = "";

  async open(): Promise<this> {
    await new Promise<void>((done) => this.#server.listen(0, "127.0.0.1", done));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return this;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((done) => this.#server.close(done));
  }

  /** What sends an agent here, with a folder of its own and one of what it looks at. */
  environment(dir: string, images: string): Record<string, string> {
    return {
      VANTAGE_URL: this.url,
      VANTAGE_DEVICE_CODE: this.code,
      VANTAGE_DEVICE_DIR: dir,
      VANTAGE_DEVICE_SOURCE: images,
    };
  }

  /** Waits until the newest heartbeat says that a confirmed version predicts. */
  async hears(version: string): Promise<void> {
    await expect
      .poll(() => {
        const model = this.beats.at(-1)?.model;
        return [model?.version, model?.status, (model?.inferences ?? 0) > 0];
      })
      .toEqual([version, "confirmed", true]);
  }

  /** Ends an agent, and then itself: nothing may have gone against the protocol. */
  async dismiss(device: DeviceProcess): Promise<void> {
    device.signal("SIGKILL");
    await device.ended;
    await this.close();
    expect(this.complaints).toEqual([]);
  }

  /** The next requests whose path matches meet these faults, one each. */
  fault(path: RegExp, ...faults: DeviceFault[]): void {
    this.#faults.push({ path, left: faults });
  }

  /** How many faults are still to be met at that path. */
  faultsLeft(path: RegExp): number {
    const own = this.#faults.filter((one) => one.path.source === path.source);
    return own.reduce((sum, { left }) => sum + left.length, 0);
  }

  /** Wants a file of the device from here on; what is signed may be changed before and after. */
  want(
    { bytes, file }: DeviceFile,
    more: Partial<Manifest> = {},
    forge: (signed: SignedManifest) => SignedManifest = (signed) => signed,
  ): Manifest {
    this.#version += 1;
    const manifest: Manifest = {
      layout: 1,
      device_id: this.deviceId,
      version: String(this.#version),
      rollout_id: crypto.randomUUID(),
      model_id: crypto.randomUUID(),
      export_id: crypto.randomUUID(),
      file,
      confidence: 0.25,
      confirm: { inferences: 3, seconds: 600 },
      min_agent: "0.1.0",
      keys: [this.key.wire],
      issued_at: new Date(0).toISOString(),
      ...more,
    };
    this.#offer = { manifest, bytes, signed: forge(this.signed(manifest)) };
    return manifest;
  }

  /** A manifest as the judge's key signs it. */
  signed(manifest: Manifest, key = this.key): SignedManifest {
    const text = JSON.stringify(manifest);
    const signature = sign(null, Buffer.from(MANIFEST_DOMAIN + text), key.private);
    return {
      manifest: text,
      signatures: [{ key_id: key.wire.key_id, signature: signature.toString("base64url") }],
    };
  }

  /** The last state that was reported of a version. */
  stateOf(version: string) {
    return this.states.findLast((one) => one.version === version);
  }

  /** How many lines are stored. */
  get lines(): number {
    return [...this.logs.values()].reduce((sum, lines) => sum + lines.size, 0);
  }

  async #serve(request: IncomingMessage, response: ServerResponse) {
    const url = new URL(request.url ?? "", this.url);
    const path = url.pathname;
    const body = await bytesOf(request);
    if (path.endsWith("/sync-logs")) await new Promise((done) => setTimeout(done, this.syncMs));
    if (this.isAway) return void request.socket.destroy();
    const fault = this.#faults.find((one) => one.path.test(path) && one.left.length > 0);
    const met = fault?.left.shift();
    if (met === "drop") return void request.socket.destroy();
    if (met === "page") return void response.writeHead(200).end("<html>Sign in</html>");
    if (met === "refusing_page")
      return void response.writeHead(400).end("<html>Bad Request</html>");
    if (typeof met === "number") return void json(response, met, { code: "busy", detail: "later" });
    if (path === "/file") return void this.#give(request, response);
    const isImage = request.method === "POST" && path.endsWith("/images");
    const [status, answer, headers = {}] = isImage
      ? await this.#takeImage(request, url, body)
      : this.#answer(request, url, body);
    if (met === "drop_after") return void request.socket.destroy();
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    json(response, status, answer);
  }

  #answer(
    request: IncomingMessage,
    url: URL,
    body: Buffer,
  ): [number, unknown, Record<string, string>?] {
    const no = (status: number, code: string): [number, unknown] => [
      status,
      { code, detail: code, request_id: "t" },
    ];
    const path = url.pathname.replace("/api/v1/devices", "");
    if (request.method === "POST" && path === "/enrol")
      return this.#enrol(body) ?? no(401, "unauthorized");
    if (request.headers.authorization !== `Bearer ${this.token}`) {
      this.complaints.push(`${request.method} ${path} came without the device's token`);
      return no(401, "unauthorized");
    }
    const [, id, verb] = path.split("/");
    if (id !== this.deviceId) return no(404, "not_found");
    if (request.method === "POST" && verb === "heartbeat") return this.#beat(body);
    if (request.method === "POST" && verb === "sync-logs") return this.#sync(body);
    if (request.method === "POST" && verb === "token") {
      this.token = `vdt_${crypto.randomUUID()}`;
      return [201, { token: this.token, overlap_s: 600, manifest_keys: [this.key.wire] }];
    }
    const offer = this.#offer;
    if (request.method === "GET" && verb === "manifest") {
      return offer ? [200, offer.signed] : no(404, "not_found");
    }
    if (request.method === "GET" && verb === "artifact") {
      const version = url.searchParams.get("version");
      if (!offer) return no(404, "not_found");
      if (version !== offer.manifest.version) return no(409, "state_conflict");
      return [302, {}, { location: `${this.url}/file?signature=x` }];
    }
    this.complaints.push(`${request.method} ${path} is no request of the protocol`);
    return no(404, "route_not_found");
  }

  #parsed<Value>(
    schema: { safeParse(value: unknown): { data?: Value; error?: unknown } },
    body: Buffer,
    what: string,
  ): Value | null {
    let value: unknown = null;
    try {
      value = JSON.parse(body.toString());
    } catch {
      // Told below.
    }
    const { data, error } = schema.safeParse(value);
    if (data !== undefined) return data;
    this.complaints.push(`${what} is not as the protocol has it: ${String(error)}`);
    return null;
  }

  #enrol(body: Buffer): [number, unknown] | null {
    const given = this.#parsed(EnrolDevice, body, "the enrolment");
    if (given?.code !== this.code) return null;
    if (this.enrolments > 0 && (given.nonce === undefined || given.nonce !== this.#nonce)) {
      this.complaints.push("a code that was used came again without the nonce that it came with");
      return null;
    }
    this.#nonce = given.nonce;
    this.enrolments += 1;
    const manifest_keys = this.isKeyless ? [] : [this.key.wire];
    const { deviceId: device_id, token } = this;
    return [201, { device_id, token, interval_s: 1, manifest_keys }];
  }

  #beat(body: Buffer): [number, unknown] {
    const beat = this.#parsed(Heartbeat, body, "a heartbeat");
    if (!beat) return [422, { code: "invalid_request", detail: "no", request_id: "t" }];
    this.beats.push(beat);
    this.#note(beat.model);
    const { manifest } = this.#offer ?? {};
    const desired = manifest && {
      rollout_id: manifest.rollout_id,
      model_id: manifest.model_id,
      export_id: manifest.export_id,
      version: manifest.version,
      manifest_url: `/api/v1/devices/${this.deviceId}/manifest`,
    };
    const server_time = new Date().toISOString();
    return [200, { server_time, clock_skew_s: 0, next_s: 0.2, desired: desired ?? null }];
  }

  #note(model: ReportedModel | null) {
    const { version = null, status, failure = null } = model ?? {};
    if (version === null || !status) return;
    const last = this.stateOf(version);
    if (last?.status === status) return;
    if (last && ["rolled_back", "failed"].includes(last.status)) {
      this.complaints.push(`version ${version} was ${last.status} and is ${status}`);
    }
    if (this.#seen !== null && BigInt(version) < BigInt(this.#seen)) {
      this.complaints.push(`version ${version} is reported after ${this.#seen}`);
    }
    this.#seen = version;
    if (["rolled_back", "failed"].includes(status) && !failure) {
      this.complaints.push(`version ${version} is ${status}, and nothing says why`);
    }
    this.states.push({ version, status, failure });
  }

  #sync(body: Buffer): [number, unknown] {
    const batch = this.#parsed(LogBatch, body, "a batch of the log");
    if (!batch) return [422, { code: "invalid_request", detail: "no", request_id: "t" }];
    const { boot_id, lines, dropped } = batch;
    if (lines.some(({ seq }) => this.refused.has(seq))) {
      return [422, { code: "invalid_request", detail: "a line that no service takes" }];
    }
    const stored = this.logs.get(boot_id) ?? new Map<number, unknown>();
    this.logs.set(boot_id, stored);
    const gone = this.dropped.get(boot_id) ?? new Set<number>();
    this.dropped.set(boot_id, gone);
    let duplicates = 0;
    for (const line of lines) {
      const { seq } = line;
      const known = stored.get(seq);
      if (known === undefined) stored.set(seq, line);
      else {
        duplicates += 1;
        if (JSON.stringify(known) !== JSON.stringify(line)) {
          this.complaints.push(`line ${seq} of a boot came twice, and differs`);
        }
      }
    }
    for (const { from, to } of dropped) for (let seq = from; seq <= to; seq++) gone.add(seq);
    this.duplicates += duplicates;
    const isKnown = (seq: number) => stored.has(seq) || gone.has(seq);
    let acked_seq = 0;
    while (isKnown(acked_seq + 1)) acked_seq += 1;
    const max = Math.max(0, ...stored.keys());
    const gaps: { from: number; to: number }[] = [];
    for (let seq = acked_seq + 1; seq <= max; seq++) {
      if (isKnown(seq)) continue;
      const last = gaps.at(-1);
      if (last && last.to === seq - 1) last.to = seq;
      else gaps.push({ from: seq, to: seq });
    }
    const receipt = { boot_id, acked_seq, stored: lines.length - duplicates, duplicates, gaps };
    return [200, receipt];
  }

  async #takeImage(
    request: IncomingMessage,
    url: URL,
    body: Buffer,
  ): Promise<[number, unknown, Record<string, string>?]> {
    if (request.headers.authorization !== `Bearer ${this.token}`) {
      this.complaints.push("an image came without the device's token");
      return [401, { code: "unauthorized", detail: "no" }];
    }
    const [boot, seq] = [url.searchParams.get("boot_id") ?? "", url.searchParams.get("seq")];
    const headers = { "content-type": request.headers["content-type"] ?? "" };
    const form = await new Response(new Uint8Array(body), { headers }).formData().catch(() => null);
    const file = form?.get("file");
    const bytes = file instanceof File ? new Uint8Array(await file.arrayBuffer()) : null;
    // What JPEG, PNG and WebP begin with.
    const isKnown = ["ffd8ff", "89504e", "524946"].includes(
      Buffer.from(bytes?.subarray(0, 3) ?? []).toString("hex"),
    );
    if (!bytes || !isKnown || !BootId.safeParse(boot).success || !/^[1-9]\d*$/.test(seq ?? "")) {
      this.complaints.push("an image is not as the protocol has it");
      return [422, { code: "invalid_request", detail: "no" }];
    }
    const line = `${boot} ${seq}`;
    const duplicate = this.images.some((one) => one.line === line);
    if (!duplicate) this.images.push({ line, bytes: bytes.length });
    return [201, { video_id: crypto.randomUUID(), duplicate: false }];
  }

  #give(request: IncomingMessage, response: ServerResponse) {
    if (request.headers.authorization !== undefined) {
      this.complaints.push("the token was sent to the store, where the file lies");
    }
    const { cutAfter, instead, wholeOnly = false } = this.file;
    const bytes = instead ?? this.#offer?.bytes ?? Buffer.alloc(0);
    const { range = null } = request.headers as { range?: string };
    const from = wholeOnly ? 0 : Number(/^bytes=(\d+)-$/.exec(range ?? "")?.[1] ?? 0);
    if (from > 0 && from >= bytes.length) {
      response.writeHead(416, { "content-range": `bytes */${bytes.length}` }).end();
      return;
    }
    const part = bytes.subarray(from);
    const headers = { "content-length": String(part.length) };
    if (from > 0) {
      const last = bytes.length - 1;
      response.writeHead(206, {
        ...headers,
        "content-range": `bytes ${from}-${last}/${bytes.length}`,
      });
    } else response.writeHead(200, headers);
    const sent = cutAfter === undefined ? part : part.subarray(0, cutAfter);
    this.given.push({ range, bytes: sent.length });
    if (sent.length === part.length) response.end(part);
    else response.write(sent, () => setTimeout(() => response.destroy(), 20));
  }
}
