// Blocks that ask for something outside of the run: webhooks and uploads into a project. They only
// describe it, with secrets by their names; whoever asked for the run performs it once that has
// ended well, or tells it where the run is a dry one.

import { z } from "zod";
import { mapOf } from "../../scalars.ts";
import { Bbox, Rle } from "../../shapes.ts";
import {
  type Block,
  type BlockCall,
  BlockFailure,
  defineBlock,
  type InputPorts,
} from "../block.ts";
import { readState } from "../step-state.ts";
import { type Detections, type ImageFrame, rootPoint, type WorkflowImage } from "../values.ts";

/** Characters of a webhook's payload as JSON. */
const PAYLOAD_CHARACTERS_MAX = 256_000;
const HEADERS_MAX = 20;

/** The name of a header that a webhook may set. */
export const HeaderName = z
  .string()
  .regex(/^[A-Za-z][A-Za-z0-9-]{0,63}$/, "must be the name of a header")
  .refine(
    (name) =>
      // Those of the connection and of whoever carries the message, which a platform sets itself.
      !/^(host|content-.*|connection|keep-alive|upgrade|expect|te|trailer|transfer-encoding)$/i.test(
        name,
      ) && !/^(cookie|webhook-.*|x-forwarded-.*|cf-.*|proxy-.*)$/i.test(name),
    "must be a header that the sender may set",
  );
const HeaderValue = z
  .string()
  .max(1_000)
  .regex(/^[\x20-\x7e]*$/, "must be printable ASCII");
const WebhookUrl = z
  .url({ protocol: /^https?$/ })
  .max(2_000)
  .refine(
    (url) => !/^\w+:\/\/[^/?#]*@/.test(url),
    "must hold no credentials: name secrets for them",
  );

/** A message that is to be sent by POST: whoever sends it adds the id and the signature. */
export const WebhookEffect = z.object({
  /** Null: the secret of `url_secret` is the address. */
  url: WebhookUrl.nullable(),
  url_secret: z.string().nullable(),
  headers: z.record(HeaderName, HeaderValue),
  /** Names of secrets, by the header whose value they are. */
  secret_headers: z.record(HeaderName, z.string()),
  /** Name of the secret that signs the message; null: it is not signed. */
  signing_secret: z.string().nullable(),
  payload: z.json(),
});
export type WebhookEffect = z.infer<typeof WebhookEffect>;

/**
 * An image for a project, and what was seen on it, which is told and not stored; boxes are in
 * pixels of the effect's image.
 */
export const DatasetUploadEffect = z.object({
  project: z.string(),
  tags: z.array(z.string()),
  objects: z.array(
    z.object({
      class: z.string(),
      confidence: z.number().min(0).max(1),
      bbox: Bbox,
      mask: Rle.optional(),
    }),
  ),
});
export type DatasetUploadEffect = z.infer<typeof DatasetUploadEffect>;

/** The port of a header whose value is a secret. */
export const headerPort = (name: string) => `header_${name.toLowerCase().replaceAll("-", "_")}`;

const webhookInputs = {
  payload: { kind: "json", meaning: "what is sent, as JSON under `payload`" },
  image: {
    kind: "image",
    meaning: "an image that goes with it, as a data address",
    optional: true,
  },
  signing_secret: {
    kind: "secret",
    meaning: "name of the secret that signs the message; left open, it is not signed",
    optional: true,
  },
} as const satisfies InputPorts;
const sinkOutputs = {
  sent: { kind: "boolean", meaning: "whether it was asked for" },
  reason: { kind: "string", meaning: "why it was, or was not" },
} as const;

const WebhookParameters = z.object({
  url: WebhookUrl.optional().meta({
    description: "where to; left out, the port `url_secret` names a secret that holds it",
  }),
  headers: mapOf(HeaderName, HeaderValue, HEADERS_MAX)
    .default({})
    .meta({ description: "headers whose values are no secrets" }),
  secret_headers: z
    .array(HeaderName)
    .max(HEADERS_MAX)
    .default([])
    .meta({
      description:
        "headers whose values are secrets: each is a port, `header_` and its name in lower case, " +
        "with _ for -",
    }),
  cooldown_seconds: z.number().min(0).max(86_400).default(0).meta({
    description: "no message within this time after one, in the same stream",
  }),
});

/** As the block's schema parsed them. */
export type WebhookParameters = z.output<typeof WebhookParameters>;

const SentState = z.object({ sent_ms: z.array(z.number()).max(600) });

const webhook = defineBlock({
  type: "webhook@1",
  title: "Webhook",
  description:
    "Sends a value by POST once the run has ended well, with retries and the same id in every " +
    "attempt. Messages are signed as Standard Webhooks has it.",
  section: "sinks",
  inputs: webhookInputs,
  parameters: WebhookParameters,
  outputs: sinkOutputs,
  portsOf: ({ url, secret_headers }) => {
    const inputs: Record<string, InputPorts[string]> = { ...webhookInputs };
    if (url === undefined) {
      inputs.url_secret = { kind: "secret", meaning: "name of the secret that is the address" };
    }
    for (const name of secret_headers) {
      inputs[headerPort(name)] = {
        kind: "secret",
        meaning: `name of the secret that is the header ${name}`,
      };
    }
    return { inputs, outputs: sinkOutputs };
  },
  problemOf: ({ headers, secret_headers }) => {
    const names = [...Object.keys(headers), ...secret_headers];
    const twice = names.find((name, index) =>
      names.slice(0, index).some((other) => headerPort(other) === headerPort(name)),
    );
    return twice === undefined ? null : `the header ${twice} is given twice`;
  },
  runsOn: "anywhere",
  purity: "sink",
  cost: "free",
  example: {
    parameters: { url: "https://example.com/hook", secret_headers: ["X-Api-Key"] },
    inputs: { payload: { count: 3 }, header_x_api_key: "receiver_key" },
    outputs: { sent: true, reason: "asked for" },
  },
  run: ({ inputs, parameters, state: given, now }) => {
    const { state, warnings } = readState(SentState, given, { sent_ms: [] });
    const elapsed = now - (state.sent_ms.at(-1) ?? Number.NEGATIVE_INFINITY);
    if (elapsed >= 0 && elapsed < parameters.cooldown_seconds * 1_000) {
      return { outputs: { sent: false, reason: "cooling down" }, warnings };
    }
    const text = JSON.stringify(inputs.payload);
    if (text.length > PAYLOAD_CHARACTERS_MAX) {
      throw new BlockFailure(
        `the payload has ${text.length} characters as JSON; ${PAYLOAD_CHARACTERS_MAX} are allowed`,
      );
    }
    // Ports beyond the fixed ones are those of `portsOf`, all of kind secret: names, by the check.
    const secrets = inputs as Readonly<Record<string, unknown>>;
    const nameOf = (port: string) => (secrets[port] as string | undefined) ?? null;
    const request: WebhookEffect = {
      url: parameters.url ?? null,
      url_secret: parameters.url === undefined ? nameOf("url_secret") : null,
      headers: parameters.headers,
      secret_headers: Object.fromEntries(
        parameters.secret_headers.map((name) => [name, nameOf(headerPort(name)) ?? ""]),
      ),
      signing_secret: inputs.signing_secret ?? null,
      payload: z.json().parse(JSON.parse(text)),
    };
    return {
      outputs: { sent: true, reason: "asked for" },
      effects: [
        inputs.image === undefined
          ? { kind: "webhook", request }
          : { kind: "webhook", request, image: inputs.image },
      ],
      ...(parameters.cooldown_seconds > 0 && { state: { sent_ms: [now] } }),
      warnings,
    };
  },
});

const UploadParameters = z.object({
  tags: z.array(z.string().min(1).max(64)).max(20).default([]).meta({
    description: "words in front of the name that the image's file has in the project",
  }),
  confidence_min: z.number().min(0).max(1).optional().meta({
    description: "only images with an object at or above it, and at or below `confidence_max`",
  }),
  confidence_max: z.number().min(0).max(1).optional(),
  share: z.number().min(0).max(1).default(1).meta({
    description:
      "share of the images that goes, 0 to 1, drawn by their time and objects: no chance in it",
  }),
  per_minute_max: z.int().min(1).max(600).default(60).meta({
    description: "images within a minute of one stream",
  }),
});
const uploadInputs = {
  image: { kind: "image", meaning: "the image that is uploaded" },
  detections: {
    kind: "detections",
    meaning: "what decides whether it goes; is not stored",
    optional: true,
  },
  project: { kind: "project", meaning: "the project that it goes into" },
} as const satisfies InputPorts;

/** A number in [0, 1), the same for the same text: FNV-1a, its bits mixed as murmur ends. */
function drawOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}

/** Objects in pixels of another image of the same root, cut to it; those outside of it are gone. */
function objectsOn(image: ImageFrame, { frame, objects }: Detections) {
  const isSame =
    frame.width === image.width &&
    frame.height === image.height &&
    frame.offset.every((value, axis) => value === image.offset[axis]) &&
    frame.scale.every((value, axis) => value === image.scale[axis]);
  const onImage = (x: number, y: number): [number, number] => {
    const [rootX, rootY] = isSame ? [x, y] : rootPoint(frame, [x, y]);
    const [left, top] = isSame
      ? [x, y]
      : [(rootX - image.offset[0]) / image.scale[0], (rootY - image.offset[1]) / image.scale[1]];
    return [Math.min(Math.max(left, 0), image.width), Math.min(Math.max(top, 0), image.height)];
  };
  return objects.flatMap(({ class: name, confidence, bbox, mask }) => {
    const [x1, y1] = onImage(bbox[0], bbox[1]);
    const [x2, y2] = onImage(bbox[2], bbox[3]);
    const cut = Bbox.safeParse([x1, y1, x2, y2]);
    if (!cut.success) return [];
    // A mask is over the image that its object was found on: on another one it would lie wrong.
    const shape = isSame && mask ? { mask } : {};
    return [{ class: name, confidence, bbox: cut.data, ...shape }];
  });
}

type UploadCall = BlockCall<
  { image: WorkflowImage; detections: Detections | undefined; project: string },
  z.output<typeof UploadParameters>
>;

/** Why an image does not go, or null where it does. */
function reasonToKeep(
  { inputs: { image, detections }, parameters, now }: UploadCall,
  sentInMinute: number,
): string | null {
  const { confidence_min: min, confidence_max: max, share } = parameters;
  const isRanged = min !== undefined || max !== undefined;
  const isUncertain = detections?.objects.some(
    ({ confidence }) => confidence >= (min ?? 0) && confidence <= (max ?? 1),
  );
  if (isRanged && !isUncertain) return "no object within the range of confidence";
  const drawn = drawOf(JSON.stringify([now, image.frame, detections?.objects ?? []]));
  if (drawn >= share) return "not in the share";
  return sentInMinute >= parameters.per_minute_max ? "as many as a minute may have" : null;
}

const datasetUpload = defineBlock({
  type: "dataset_upload@1",
  title: "Dataset upload",
  description:
    "Puts an image into a project; what was seen on it is not stored. A range of confidence sends only " +
    "images that the model is unsure of; a share thins them out.",
  section: "sinks",
  inputs: uploadInputs,
  parameters: UploadParameters,
  outputs: sinkOutputs,
  problemOf: ({ confidence_min: min, confidence_max: max }) =>
    min !== undefined && max !== undefined && min > max
      ? "confidence_min is above confidence_max"
      : null,
  runsOn: "anywhere",
  purity: "sink",
  cost: "free",
  example: {
    parameters: { confidence_min: 0.3, confidence_max: 0.6 },
    inputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAC0lEQVR42mNgQAYAAA4AATo1BFYAAAAASUVORK5CYII=",
      detections: {
        frame: { width: 2, height: 2 },
        objects: [{ class: "car", confidence: 0.45, bbox: [0, 0, 1, 2] }],
      },
      project: "11111111-1111-4111-8111-111111111111",
    },
    outputs: { sent: true, reason: "asked for" },
  },
  run: (call) => {
    const { inputs, parameters, now } = call;
    const { state, warnings } = readState(SentState, call.state, { sent_ms: [] });
    const recent = state.sent_ms.filter((sent) => sent <= now && now - sent < 60_000);
    const reason = reasonToKeep(call, recent.length);
    if (reason !== null) {
      return { outputs: { sent: false, reason }, state: { sent_ms: recent }, warnings };
    }
    const request: DatasetUploadEffect = {
      project: inputs.project,
      tags: parameters.tags,
      objects: inputs.detections ? objectsOn(inputs.image.frame, inputs.detections) : [],
    };
    return {
      outputs: { sent: true, reason: "asked for" },
      effects: [{ kind: "dataset_upload", request, image: inputs.image }],
      state: { sent_ms: [...recent, now] },
      warnings,
    };
  },
});

export const SINK_BLOCKS: readonly Block[] = [webhook, datasetUpload];
