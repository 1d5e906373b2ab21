// Inference at the edge, in the real Workers with real weights. Goal: without a node an image is
// answered with the objects that a node would find at the same size; with one the node answers; and
// whatever is sent, the edge refuses it as declared and goes on.

import { sql } from "drizzle-orm";
import sharp, { type Sharp } from "sharp";
import { beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { readStill } from "../../../../gpu-node/media/stills.ts";
import { openPredictor } from "../../../../gpu-node/serving/predictor.ts";
import { DETECTIONS_MAX } from "../../../../shared/detector/detector-onnx.ts";
import { iou } from "../../../../shared/detector/tracks.ts";
import { decodeFrame, encodeFrame, LINE_STATUS } from "../../../../shared/tasks/line.ts";
import { Prediction } from "../../../../shared/tasks/tasks.ts";
import { EDGE_PIXELS_MAX } from "../../../../shared/wire/edge-inference.ts";
import { ServeStatus } from "../../../../shared/wire/serving.ts";
import { Model } from "../../../../shared/wire/training.ts";
import { form, jpeg, png } from "../../../support/media.ts";
import { CAPABILITIES, introduce, openModels } from "../../../support/nodes.ts";
import { type RegisteredModel, registerModel } from "../../../support/registered-model.ts";
import { type Api, apiAs } from "../../../support/scripted-node.ts";
import { newTenant, type Person, register } from "../../../support/vision.ts";
import { seeded } from "../../../support/weights.ts";
import { createWorld, type World } from "../../../support/world.ts";

const SIDE = 320;
/** Of a score, by which colours that were rounded elsewhere may move it. */
const SCORE_TOLERANCE = 0.02;
/** An object whose score is so near the asked one may be told by one and not by the other. */
const CONFIDENCE = 0.3;

let world: World;
let founder: Person;
let admin: Api;
let workspaceId: string;
let model: RegisteredModel;

beforeAll(async () => {
  world = await createWorld({ services: ["infer", "vision"] });
  founder = await register(world.urls.vision);
  admin = apiAs(world.urls.vision, founder.tokens.access_token);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
  model = await registerModel(world, workspaceId, { classes: ["disc", "plate"], image_size: SIDE });
  await activate(model);
});

async function activate({ model_id }: { model_id: string }) {
  await world.visionDatabase.execute(sql`UPDATE model SET active = false WHERE active`);
  await world.visionDatabase.execute(
    sql`UPDATE model SET active = true WHERE id = ${model_id}::uuid`,
  );
}

/** A photograph's worth of detail with some shapes, the same each time. */
function photo(width: number, height: number): Sharp {
  const random = seeded(width * 10_000 + height);
  const noise = Uint8Array.from({ length: width * height * 3 }, () => random() * 256);
  return sharp(noise, { raw: { width, height, channels: 3 } })
    .blur(3)
    .composite([
      {
        input: Buffer.from(
          `<svg width="${width}" height="${height}"><circle cx="30%" cy="40%" r="15%" fill="red"/>
           <rect x="55%" y="50%" width="25%" height="30%" fill="#08f"/></svg>`,
        ),
      },
    ]);
}

/** The image, fading from left to right. */
async function transparent(image: Sharp): Promise<Sharp> {
  const { data, info } = await image.ensureAlpha().raw().toBuffer({ resolveWithObject: true });
  const { width, height } = info;
  for (let at = 3; at < data.length; at += 4) data[at] = (((at >> 2) % width) * 255) / width;
  return sharp(data, { raw: { width, height, channels: 4 } });
}

const send = (content: Uint8Array | Buffer, query = `?confidence=${CONFIDENCE}`) =>
  admin.send("POST", `/predict/image${query}`, form({ content: new Uint8Array(content) }));
const codeOf = async (response: Response) => [
  response.status,
  ((await response.json()) as { code?: string }).code,
];

async function foundAtEdge(content: Uint8Array | Buffer, query?: string): Promise<Prediction[]> {
  const response = await send(content, query);
  const body: unknown = await response.json();
  expect([response.status, response.headers.get("X-Served-By"), body]).toEqual([200, "edge", body]);
  return Prediction.array().parse(body);
}

/** What the node's own predictor finds of a registered model. */
async function foundByNode(
  registered: RegisteredModel,
  files: readonly Buffer[],
): Promise<Prediction[][]> {
  const object = await world.media.get(registered.weights.key);
  const weights = new Uint8Array((await object?.arrayBuffer()) as ArrayBuffer);
  const predictor = await openPredictor(registered, weights, { cpuThreads: 2, device: "cpu" });
  try {
    const found: Prediction[][] = [];
    for (const file of files) {
      found.push(await predictor.predict(await readStill(file), { confidence: CONFIDENCE }));
    }
    return found;
  } finally {
    await predictor.dispose();
  }
}

/** The lowest score of a list: below it objects are not told, or, of a full list, not found. */
const cutOf = (found: readonly Prediction[]) =>
  found.length < DETECTIONS_MAX ? CONFIDENCE : (found.at(-1)?.confidence ?? 1);

/** Objects of one list that have none in the other like them, but for those at its cut. */
const unlike = (one: readonly Prediction[], other: readonly Prediction[]) =>
  one.filter(
    (mine) =>
      mine.confidence >= cutOf(other) + SCORE_TOLERANCE &&
      !other.some(
        (theirs) =>
          theirs.class === mine.class &&
          Math.abs(theirs.confidence - mine.confidence) <= SCORE_TOLERANCE &&
          (iou(theirs.bbox, mine.bbox) >= 0.9 ||
            theirs.bbox.every((corner, at) => Math.abs(corner - (mine.bbox[at] ?? 0)) <= 1)),
      ),
  );

describe("without a node", () => {
  it("the edge finds what a node finds at the same size", async () => {
    const wide = await photo(1280, 720).png().toBuffer();
    const files = [
      await sharp(wide).jpeg({ quality: 92 }).toBuffer(),
      await sharp(wide)
        .jpeg({ quality: 92, progressive: true, chromaSubsampling: "4:4:4" })
        .toBuffer(),
      await sharp(wide).withMetadata({ orientation: 6 }).jpeg({ quality: 92 }).toBuffer(),
      await sharp(wide).withMetadata({ orientation: 3 }).webp({ quality: 92 }).toBuffer(),
      wide,
      await sharp(wide).grayscale().jpeg().toBuffer(),
      await sharp(wide).resize(200, 333, { fit: "fill" }).png({ palette: true }).toBuffer(),
      await sharp(wide).resize(97, 61).png({ progressive: true }).toBuffer(),
      await sharp(wide).toColourspace("rgb16").png().toBuffer(),
      await (await transparent(sharp(wide).resize(400))).png().toBuffer(),
      await (await transparent(sharp(wide).resize(400))).webp({ lossless: true }).toBuffer(),
      await sharp(wide).resize(1750, 1180, { fit: "fill" }).jpeg({ quality: 80 }).toBuffer(),
    ];
    const expected = await foundByNode(model, files);
    for (const [index, file] of files.entries()) {
      const found = await foundAtEdge(file);
      const nodes = expected[index] ?? [];
      expect([index, nodes.length > 3]).toEqual([index, true]);
      expect([index, unlike(nodes, found), unlike(found, nodes)]).toEqual([index, [], []]);
      const scores = found.map(({ confidence }) => confidence);
      expect(scores).toEqual(scores.toSorted((a, b) => b - a));
    }
  });

  it("the edge says what it serves, and what it does not", async () => {
    const status = ServeStatus.parse(await admin.ok("GET", "/serve/status"));
    expect(status).toMatchObject({
      health: "ok",
      nodes: { able: 0, warm: 0 },
      edge: { able: true, image_size: SIDE, reason: null },
    });
    const record = Model.parse(await admin.ok("GET", `/models/${model.model_id}`));
    expect(record.edge).toEqual({ able: true, reason: null });
    await world.visionDatabase.execute(
      sql`UPDATE model SET bytes = 40000000 WHERE id = ${model.model_id}::uuid`,
    );
    const large = Model.parse(await admin.ok("GET", `/models/${model.model_id}`));
    expect(large.edge).toEqual({ able: false, reason: expect.stringContaining("at most 16") });
    expect(ServeStatus.parse(await admin.ok("GET", "/serve/status"))).toMatchObject({
      health: "no_node",
      edge: { able: false, reason: large.edge.reason },
    });
    const refused = await send(await photo(64, 64).png().toBuffer());
    expect(await refused.clone().json()).toMatchObject({ detail: expect.stringMatching(/39 MiB/) });
    expect(await codeOf(refused)).toEqual([503, "no_node"]);
    await world.visionDatabase.execute(
      sql`UPDATE model SET bytes = ${model.weights.bytes}::bigint WHERE id = ${model.model_id}::uuid`,
    );
  });

  it("the edge looks at no more pixels than a model was trained at", async () => {
    const small = await registerModel(world, workspaceId, {
      classes: ["disc", "plate"],
      image_size: 160,
    });
    const file = await photo(300, 200).jpeg().toBuffer();
    const [expected = []] = await foundByNode(small, [file]);
    expect(expected.length).toBeGreaterThan(3);
    const found = await foundAtEdge(file, `?confidence=${CONFIDENCE}&model_id=${small.model_id}`);
    expect([unlike(expected, found), unlike(found, expected)]).toEqual([[], []]);
    await activate(small);
    const { edge } = ServeStatus.parse(await admin.ok("GET", "/serve/status"));
    expect(edge).toEqual({ able: true, image_size: 160, reason: null });
    await activate(model);
  });

  it("a video waits for a node", async () => {
    expect(await admin.refused("POST", "/predict/video", form({ content: png() }))).toEqual([
      503,
      "no_node",
    ]);
  });

  it("a segmentation model gives its boxes, and a model by its id or alias is served", async () => {
    const masks = await registerModel(world, workspaceId, {
      task: "segmentation",
      image_size: SIDE,
    });
    const file = await photo(300, 200).jpeg().toBuffer();
    const [expected = []] = await foundByNode(masks, [file]);
    const query = `?confidence=${CONFIDENCE}&model_id=${masks.model_id}`;
    const found = await foundAtEdge(file, query);
    expect([unlike(expected, found), unlike(found, expected)]).toEqual([[], []]);
    await admin.ok("POST", `/models/${masks.model_id}/promote`, { alias: "canary" });
    expect(await foundAtEdge(file, `?confidence=${CONFIDENCE}&alias=canary`)).toEqual(found);
    // Boxes alone are no answer to whoever asks for masks.
    const masked = `/predict/image${query}&mask=rle`;
    expect(await admin.refused("POST", masked, form({ content: new Uint8Array(file) }))).toEqual([
      503,
      "no_node",
    ]);
  });
});

describe("an image", () => {
  it.each([
    ["of too many pixels", () => png(EDGE_PIXELS_MAX / 1_000 + 1, 1_000), [413, "file_too_large"]],
    ["that is a bomb by its header", () => jpeg(60_000, 60_000), [413, "file_too_large"]],
    ["of a header alone, PNG", () => png(64, 48), [415, "unsupported_media"]],
    ["of a header alone, JPEG", () => jpeg(64, 48), [415, "unsupported_media"]],
    ["of no size", () => png(0, 48), [415, "unsupported_media"]],
    [
      "that is none",
      () => new TextEncoder().encode("no image ".repeat(9)),
      [415, "unsupported_media"],
    ],
  ] as const)("%s is refused", async (_, file, expected) => {
    const response = await send(file());
    expect(await codeOf(response)).toEqual(expected);
  });

  it("that is larger than the edge takes is refused, and leaves nothing behind", async () => {
    const large = new Uint8Array(9 * 1024 * 1024);
    large.set(png(64, 48));
    expect(await codeOf(await send(large))).toEqual([413, "file_too_large"]);
    const { objects } = await world.media.list({ prefix: `ws/${workspaceId}/predictions/` });
    expect(objects).toEqual([]);
  });

  it("with a size for us and another one for the decoder is refused", async () => {
    const [small, large] = await Promise.all(
      [photo(64, 48), photo(4_000, 3_000)].map((one) => one.jpeg().toBuffer()),
    );
    // A marker that is none: whoever takes it for a segment passes over the large image's header.
    const lie = Buffer.concat([
      Buffer.from([0xff, 0xd8, 0xff, 0x00, 0xff, 0xff]),
      Buffer.concat([large?.subarray(2) ?? Buffer.alloc(0), Buffer.alloc(65_535)]).subarray(
        0,
        65_533,
      ),
      small?.subarray(2) ?? Buffer.alloc(0),
    ]);
    expect(await codeOf(await send(lie))).toEqual([415, "unsupported_media"]);
  });

  it("of more scans than any camera writes is refused before it is decoded", async () => {
    const file = await photo(320, 240).jpeg({ progressive: true }).toBuffer();
    expect((await send(file)).status).toBe(200);
    const scan = Buffer.from([0xff, 0xda, 0, 8, 1, 1, 0, 0, 0x3f, 0, 0x7f]);
    const scans = Array.from({ length: 200 }, () => scan);
    const many = Buffer.concat([file.subarray(0, -2), ...scans, file.subarray(-2)]);
    const response = await send(many);
    expect(response.status).toBe(415);
    expect(((await response.json()) as { detail: string }).detail).toMatch(/has 2\d\d scans/);
  });

  it("that is cut off or spoilt is refused wherever, and the next one is answered", async () => {
    const sound = photo(320, 240);
    for (const format of ["jpeg", "png", "webp"] as const) {
      const file = await sound.clone().toFormat(format).toBuffer();
      for (const part of [0.3, 0.6, 0.95]) {
        const cut = file.subarray(0, Math.floor(file.length * part));
        expect([format, part, ...(await codeOf(await send(cut)))]).toEqual([
          ...[format, part],
          ...[415, "unsupported_media"],
        ]);
      }
      // What a decoder makes of flipped bits is its own: an answer or a refusal, and no more.
      for (let seed = 1; seed <= 8; seed++) {
        const spoilt = Buffer.from(file);
        for (let flip = 0; flip < 40; flip++) {
          const at = 40 + ((seed * 7_919 + flip * 104_729) % (spoilt.length - 44));
          spoilt[at] = (spoilt[at] ?? 0) ^ (1 << (flip % 8));
        }
        expect([200, 413, 415]).toContain((await send(spoilt)).status);
      }
      await foundAtEdge(file);
    }
  });

  it("whose header says another size than its data is refused", async () => {
    const lying = await (await transparent(photo(64, 64))).webp().toBuffer();
    expect(lying.toString("latin1", 12, 16)).toBe("VP8X");
    lying[24] = 31;
    expect(await codeOf(await send(lying))).toEqual([415, "unsupported_media"]);
  });
});

describe("a model", () => {
  const image = () => photo(64, 64).png().toBuffer();

  it.each([
    ["whose file is not the registry's", { sha256: "0".repeat(64) }, "sha256 differs"],
    ["whose file is broken", { file: Buffer.from("no weights at all") }, "cannot be opened"],
    [
      "whose file is another variant's",
      { variant: "det26s" as const, of: "n" },
      "of another model",
    ],
  ])(
    "%s is refused, and others go on",
    async (_, { of, ...more }: Record<string, unknown>, why) => {
      const file = of ? await weightsOf(model) : undefined;
      const spoilt = await registerModel(world, workspaceId, { ...(file && { file }), ...more });
      const response = await send(await image(), `?model_id=${spoilt.model_id}`);
      expect(await response.clone().json()).toMatchObject({ detail: expect.stringContaining(why) });
      expect(await codeOf(response)).toEqual([502, "task_failed"]);
      await foundAtEdge(await image());
    },
  );

  it("whose file is gone is refused", async () => {
    const gone = await registerModel(world, workspaceId);
    await world.media.delete(gone.weights.key);
    const response = await send(await image(), `?model_id=${gone.model_id}`);
    expect(await codeOf(response)).toEqual([502, "task_failed"]);
  });

  it("of another workspace is not there, and its own is served", async () => {
    const other = await newTenant(world.urls.vision, founder, "annotator");
    const file = await photo(120, 90).png().toBuffer();
    const ask = (query: string) =>
      other.member.ask("POST", `/predict/image${query}`, form({ content: new Uint8Array(file) }));
    for (const id of [model.model_id, crypto.randomUUID()]) {
      const { status, body } = await ask(`?model_id=${id}`);
      expect([status, body.code]).toEqual([404, "not_found"]);
    }
    expect((await ask("")).body.code).toBe("state_conflict");
    const own = await registerModel(world, other.workspaceId, { seed: 8 });
    const answered = await ask(`?model_id=${own.model_id}`);
    expect([answered.status, answered.headers.get("X-Served-By")]).toEqual([200, "edge"]);
    const third = await newTenant(world.urls.vision, founder, "engineer");
    const strange = await third.member.ask(
      ...(["POST", `/predict/image?model_id=${own.model_id}`] as const),
      form({ content: new Uint8Array(file) }),
    );
    expect([strange.status, strange.body.code]).toEqual([404, "not_found"]);
  });

  it("after model takes turns in the edge's memory", async () => {
    const file = await photo(200, 120).jpeg().toBuffer();
    const models: RegisteredModel[] = [];
    for (const seed of [2, 3, 4, 5]) {
      models.push(await registerModel(world, workspaceId, { seed, image_size: SIDE }));
    }
    const of = ({ model_id }: RegisteredModel) => `?confidence=${CONFIDENCE}&model_id=${model_id}`;
    const first: Prediction[][] = [];
    for (const one of models) first.push(await foundAtEdge(file, of(one)));
    for (const [index, one] of models.entries()) {
      expect(await foundAtEdge(file, of(one))).toEqual(first[index]);
    }
    // At once: one is opened after the other, whoever waits too long for that comes again, and each
    // answer is of its model.
    const patient = async (one: RegisteredModel): Promise<Prediction[]> => {
      const response = await send(file, of(one));
      const body: unknown = await response.json();
      if (response.status === 429) return patient(one);
      expect([response.status, response.headers.get("X-Served-By")]).toEqual([200, "edge"]);
      return Prediction.array().parse(body);
    };
    expect(await Promise.all(models.map(patient))).toEqual(first);
  });
});

async function weightsOf({ weights }: RegisteredModel): Promise<Buffer<ArrayBuffer>> {
  const object = await world.media.get(weights.key);
  return Buffer.from((await object?.arrayBuffer()) as ArrayBuffer);
}

describe("many at once", () => {
  it("are answered or told to come again, and each is answered then", async () => {
    const file = await photo(1280, 720).jpeg().toBuffer();
    const [expected] = [await foundAtEdge(file)];
    const responses = await Promise.all(Array.from({ length: 40 }, () => send(file)));
    const statuses = responses.map(({ status }) => status);
    expect(statuses.filter((status) => status !== 200 && status !== 429)).toEqual([]);
    expect(statuses.includes(200)).toBe(true);
    for (const response of responses) {
      if (response.status === 200) expect(await response.json()).toEqual(expected);
      else expect(response.headers.get("Retry-After")).toBe("1");
    }
    expect(await foundAtEdge(file)).toEqual(expected);
  });

  it("of 8 MiB are more than the edge holds", async () => {
    const large = new Uint8Array(8 * 1024 * 1024 - 1_000);
    large.set(await photo(64, 64).png().toBuffer());
    const statuses = (await Promise.all(Array.from({ length: 12 }, () => send(large)))).map(
      ({ status }) => status,
    );
    expect(statuses).toContain(429);
    await foundAtEdge(await photo(64, 64).png().toBuffer());
  });
});

describe("with a node", () => {
  it("the node answers, where it has room; else the edge does", async () => {
    const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
    const url = world.urls.vision;
    const capabilities = { ...CAPABILITIES, kinds: ["predict"] };
    const { node_id, node_token } = await introduce(url, { code, name: "n", capabilities });
    const { send: tell } = apiAs(url, node_token);
    const socket = new WebSocket(`${url}/api/v1/node/line`.replace(/^http/, "ws"), {
      headers: { Authorization: `Bearer ${node_token}` },
      perMessageDeflate: false,
    });
    let life = 0;
    const asked: number[] = [];
    socket.on("message", (data: Buffer) => {
      const frame = decodeFrame(data);
      if (frame?.kind === "hello") life = frame.life;
      if (frame?.kind === "ask" && frame.last) asked.push(frame.id);
    });
    const ping = setInterval(
      () => socket.readyState === WebSocket.OPEN && socket.send("ping"),
      5_000,
    );
    try {
      await expect.poll(() => life).toBeGreaterThan(0);
      socket.send(encodeFrame({ kind: "grant", value: 1 }));
      const opened = openModels([model.model_id], [SIDE]);
      await tell("POST", "/node/heartbeat", { tasks: [], line: true, ...opened });
      const file = await photo(300, 200).jpeg().toBuffer();
      const first = send(file);
      await expect.poll(() => asked.length).toBe(1);
      // Its one place is taken.
      await foundAtEdge(file);
      const body = { predictions: [], width: 300, height: 200, batch: 1, cold: false };
      const payload = Buffer.from(JSON.stringify(body));
      const [id = 0] = asked;
      socket.send(
        encodeFrame({ kind: "answer", last: true, life, id, value: LINE_STATUS.done, payload }),
      );
      const answer = await first;
      expect([answer.headers.get("X-Served-By"), await answer.json()]).toEqual(["node/n", []]);
      // It falls over with a request in its hands.
      const second = send(file);
      await expect.poll(() => asked.length).toBe(2);
      socket.terminate();
      expect((await second).headers.get("X-Served-By")).toBe("edge");
    } finally {
      clearInterval(ping);
      socket.terminate();
      await admin.ok("DELETE", `/admin/nodes/${node_id}`);
    }
  });
});
