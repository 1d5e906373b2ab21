// How each kind of server is asked: the request that an image becomes, the predictions that its
// answer holds, and what says that it is well. Pure; nothing is sent here.

import { encodeBase64 } from "hono/utils/encode";
import { z } from "zod";
import type { Secret } from "../../../../shared/secret.ts";
import { type Bbox, Prediction } from "../../../../shared/tasks/tasks.ts";
import { CONFIDENCE_DEFAULT } from "../../../../shared/wire/serving.ts";
import { API } from "../../base/api.ts";
import { TARGET_OBJECTS_MAX, type TargetConfig } from "./records.ts";

/** A target that is asked. */
export type AskedTarget = Exclude<TargetConfig, { kind: "device" }>;

/** A request to a target. */
export interface TargetRequest {
  method: "GET" | "POST";
  url: string;
  headers: Record<string, string>;
  body?: Uint8Array<ArrayBuffer> | string;
}

/** How a kind of server is asked. */
interface TargetProtocol<Config> {
  predict(config: Config, image: TargetImage, credential: Secret | null): TargetRequest;
  /** The predictions of an answer; throws for what is none. */
  read(answer: unknown): Prediction[];
  health(config: Config, credential: Secret | null): TargetRequest;
  /** What is wrong, by an answer of 200; null: nothing. */
  problem(answer: unknown): string | null;
}

/** An image file. */
export interface TargetImage {
  file: Uint8Array<ArrayBuffer>;
  contentType: string;
}

const below = (url: string, path: string) => `${url.replace(/\/+$/, "")}${path}`;
const bearerOf = (credential: Secret | null): Record<string, string> =>
  credential ? { Authorization: `Bearer ${credential.reveal()}` } : {};
const sorted = (predictions: Prediction[]) =>
  predictions.toSorted((one, other) => other.confidence - one.confidence);

/** A form of one file, as multipart/form-data. */
function fileForm({ file, contentType }: TargetImage): Pick<TargetRequest, "headers" | "body"> {
  const boundary = `vantage-${crypto.randomUUID()}`;
  const text = new TextEncoder();
  const head = text.encode(
    `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="image"\r\n` +
      `Content-Type: ${contentType}\r\n\r\n`,
  );
  const tail = text.encode(`\r\n--${boundary}--\r\n`);
  const body = new Uint8Array(head.length + file.length + tail.length);
  body.set(head);
  body.set(file, head.length);
  body.set(tail, head.length + file.length);
  return { headers: { "Content-Type": `multipart/form-data; boundary=${boundary}` }, body };
}

type Vantage = Extract<AskedTarget, { kind: "vantage" }>;
type Http = Extract<AskedTarget, { kind: "http" }>;

const EndpointHealth = z.object({ health: z.string() });

const vantage: TargetProtocol<Vantage> = {
  predict: ({ url, endpoint }, image, credential) => {
    const { headers, body } = fileForm(image);
    return {
      method: "POST",
      url: below(url, `${API}/endpoints/${encodeURIComponent(endpoint)}/predict`),
      headers: { ...headers, ...bearerOf(credential) },
      ...(body === undefined ? {} : { body }),
    };
  },
  read: (answer) => z.array(Prediction).max(TARGET_OBJECTS_MAX).parse(answer),
  health: ({ url, endpoint }, credential) => ({
    method: "GET",
    url: below(url, `${API}/endpoints/${encodeURIComponent(endpoint)}/status`),
    headers: bearerOf(credential),
  }),
  problem: (answer) => {
    const { health } = EndpointHealth.parse(answer);
    return health === "ok" ? null : `says of itself: ${health.slice(0, 50)}`;
  },
};

const Roboflow = z.object({
  predictions: z
    .array(
      z.object({
        x: z.number(),
        y: z.number(),
        width: z.number().positive(),
        height: z.number().positive(),
        class: z.string().max(200),
        confidence: z.number(),
      }),
    )
    .max(TARGET_OBJECTS_MAX),
});

/** Roboflow's inference server: boxes by their centres, in pixels; its key is in the body. */
const roboflow: TargetProtocol<Http> = {
  predict: ({ url, model }, { file }, credential) => ({
    method: "POST",
    url: below(url, "/infer/object_detection"),
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({
      model_id: model,
      confidence: CONFIDENCE_DEFAULT,
      image: { type: "base64", value: encodeBase64(file.buffer) },
      ...(credential ? { api_key: credential.reveal() } : {}),
    }),
  }),
  read: (answer) => {
    // It answers a list where several images were sent.
    const { predictions } = Roboflow.parse(Array.isArray(answer) ? answer[0] : answer);
    return z.array(Prediction).parse(
      predictions.map(({ x, y, width, height, class: name, confidence }) => ({
        class: name,
        confidence,
        bbox: [x - width / 2, y - height / 2, x + width / 2, y + height / 2],
      })),
    );
  },
  health: ({ url, health_path = "/info" }) => ({
    method: "GET",
    url: below(url, health_path),
    headers: {},
  }),
  problem: () => null,
};

/** A score, and under the class's name the corners in pixels. */
const TorchServe = z
  .array(z.record(z.string().max(200), z.union([z.number(), z.array(z.number()).min(4).max(4)])))
  .max(TARGET_OBJECTS_MAX);
const Ping = z.object({ status: z.string() });

/** TorchServe with its own handler `object_detector`. */
const torchserve: TargetProtocol<Http> = {
  predict: ({ url, model }, { file, contentType }, credential) => ({
    method: "POST",
    url: below(url, `/predictions/${model.split("/").map(encodeURIComponent).join("/")}`),
    headers: { "Content-Type": contentType, ...bearerOf(credential) },
    body: file,
  }),
  read: (answer) =>
    TorchServe.parse(answer).map(({ score, ...boxes }) => {
      const [name, bbox] = Object.entries(boxes)[0] ?? [];
      return Prediction.parse({ class: name, confidence: score, bbox: bbox as Bbox | undefined });
    }),
  health: ({ url, health_path = "/ping" }, credential) => ({
    method: "GET",
    url: below(url, health_path),
    headers: bearerOf(credential),
  }),
  problem: (answer) => {
    const { status } = Ping.parse(answer);
    return status === "Healthy" ? null : `says of itself: ${status.slice(0, 50)}`;
  },
};

const HTTP: Readonly<Record<Http["protocol"], TargetProtocol<Http>>> = { roboflow, torchserve };

/** The protocol of a target, with its configuration filled in. */
export function protocolOf(config: AskedTarget) {
  const bound = <Config extends AskedTarget>(protocol: TargetProtocol<Config>, own: Config) => ({
    predict: (image: TargetImage, credential: Secret | null) =>
      protocol.predict(own, image, credential),
    read: (answer: unknown) => sorted(protocol.read(answer)),
    health: (credential: Secret | null) => protocol.health(own, credential),
    problem: protocol.problem,
  });
  return config.kind === "vantage" ? bound(vantage, config) : bound(HTTP[config.protocol], config);
}
