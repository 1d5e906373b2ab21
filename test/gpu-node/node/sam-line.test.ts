// A node that is asked on its direct line about images, while its processes do tasks. Goal: nobody
// who is asked for at once waits behind a batch, a child that dies costs its requests their place
// and nothing else, and the service hears where a segmenter is open.

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { WebSocket } from "ws";
import {
  decodeFrame,
  encodeAsk,
  encodeFrame,
  type Frame,
  LINE_STATUS,
  type LineHead,
} from "../../../shared/tasks/line.ts";
import { SEGMENTER_PREFIX } from "../../../shared/tasks/node-protocol.ts";
import { SamResult } from "../../../shared/tasks/sam.ts";
import { rectangles, toolsOrSay } from "../../support/clips.ts";
import { startNode } from "../../support/gpu-node.ts";
import { type NodeService, startNodeService, until } from "../../support/node-service.ts";

const LIFE = 9;
const OPEN = `${SEGMENTER_PREFIX}rectangles`;

const found = toolsOrSay();
let service: NodeService;
let line: WebSocket | null;
let frames: Frame[];
let image: Buffer;
/** Where prompts say that they wait. */
let folder: string;

beforeEach(async () => {
  service = await startNodeService();
  folder = mkdtempSync(join(tmpdir(), "vantage-sam-line-"));
  [line, frames] = [null, []];
  service.onLine = (socket) => {
    line = socket;
    socket.on("message", (data: Buffer, binary) => {
      const frame = binary ? decodeFrame(data) : null;
      if (frame) frames.push(frame);
    });
    socket.send(encodeFrame({ kind: "hello", life: LIFE }));
  };
  const size = { width: 32, height: 24, channels: 3, background: "#f00" } as const;
  image = await sharp({ create: size }).png().toBuffer();
});
afterEach(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

async function started() {
  const node = startNode({ VANTAGE_URL: service.url, VANTAGE_NODE_TOKEN: service.token });
  await until("it grants places", () => frames.some(({ kind }) => kind === "sam_grant"));
  return node;
}
const text = (word: string) => ({ kind: "text" as const, class_name: word, text: word });
function ask(id: number, ...words: string[]) {
  const prompts = words.map(text);
  const head = { kind: "sam", prompts, threshold: 0.5, mask: "rle", segmenter: null } as const;
  const payload = encodeAsk(head, [image]);
  const own = { kind: "sam_ask" as const, last: true, life: LIFE, id, value: 60_000 };
  line?.send(encodeFrame({ ...own, payload }));
}
const endOf = (id: number) =>
  frames.find((frame) => frame.id === id && /^(answer|released)$/.test(frame.kind));
async function answerTo(id: number): Promise<Frame> {
  await until(`the request ${id} ends`, () => endOf(id) !== undefined);
  return endOf(id) as Frame;
}
const resultOf = (frame: Frame) =>
  SamResult.parse(JSON.parse(Buffer.from(frame.payload).toString()));
const waits = (path: string) =>
  until("it waits", () => existsSync(path) && readFileSync(path, "utf8") !== "");

describe.skipIf(!found)("a node", () => {
  it("answers while a batch has its general slot, and tells what is open", async () => {
    await started();
    const path = join(folder, "label");
    const clip = rectangles();
    const task = service.enqueue("label", {
      video: service.source("clip", readFileSync(clip)),
      video_id: "v",
      job_id: "j",
      prompts: [text(`hold ${path}`)],
      frames: [0],
      resolution: null,
      images: [null],
      segmenter: null,
      model: null,
    });
    await waits(path);
    // The batch's own segmenter is not one that the line could ask.
    expect(service.heartbeats.some(({ loaded }) => loaded?.includes(OPEN))).toBe(false);
    ask(1, "red");
    const answer = await answerTo(1);
    expect([answer.kind, answer.value]).toEqual(["answer", LINE_STATUS.done]);
    expect(resultOf(answer).frames[0]?.findings).toMatchObject([{ bbox: [0, 0, 32, 24] }]);
    expect(task.state).toBe("running");
    await until("it is told", () => service.heartbeats.at(-1)?.loaded?.includes(OPEN) === true);
    writeFileSync(`${path}.go`, "");
    await until("the batch ends", () => task.state === "ended");
  });

  it("runs workflows on places of their own, and says so for their kind alone", async () => {
    await started();
    const granted = () => frames.find(({ kind }) => kind === "workflow_grant")?.value;
    await until("it grants places", () => granted() !== undefined);
    const head: LineHead = {
      kind: "workflow",
      definition: {
        version: "1.0",
        inputs: [{ name: "image", kind: "image" }],
        steps: [
          {
            id: "red",
            type: "segmenter@1",
            parameters: { image: "$inputs.image", prompts: ["red"] },
          },
        ],
        outputs: [{ name: "count", value: "$steps.red.count" }],
      },
      inputs: {},
      models: {},
      state: {},
      workspace: "w",
      images: [{ name: "image", bytes: image.length }],
      now: 0,
    };
    const own = { kind: "workflow_ask" as const, last: true, life: LIFE, id: 1, value: 60_000 };
    line?.send(encodeFrame({ ...own, payload: encodeAsk(head, [image]) }));
    const answer = await answerTo(1);
    expect(answer.value).toBe(LINE_STATUS.done);
    expect(JSON.parse(Buffer.from(answer.payload).toString())).toMatchObject({
      failure: null,
      outputs: { count: 1 },
    });
  });

  it("gives back the places of requests whose process died, and answers the next", async () => {
    await started();
    const path = join(folder, "ask");
    ask(1, `hold ${path}`);
    await waits(path);
    process.kill(Number(readFileSync(path, "utf8")), "SIGKILL");
    expect((await answerTo(1)).kind).toBe("released");
    ask(2, "red");
    expect((await answerTo(2)).value).toBe(LINE_STATUS.done);
  });

  it("refuses in words what nobody could answer", async () => {
    await started();
    ask(1, "kangaroo");
    const answer = await answerTo(1);
    expect(answer.value).toBe(LINE_STATUS.refused);
    expect(JSON.parse(Buffer.from(answer.payload).toString())).toMatchObject({
      code: "prompt_unknown",
      detail: expect.stringContaining('Nearest are "red"'),
    });
    image = Buffer.from("no image");
    ask(2, "red");
    const unread = await answerTo(2);
    expect(JSON.parse(Buffer.from(unread.payload).toString())).toMatchObject({
      code: "unsupported_media",
    });
  });

  it("lets a canceled request go, and a drain waits for one that is asked", async () => {
    const node = await started();
    const path = join(folder, "drain");
    ask(1, `hold ${path}`, "red");
    await waits(path);
    ask(2, "red");
    line?.send(encodeFrame({ kind: "cancel", life: LIFE, id: 2 }));
    expect((await answerTo(2)).kind).toMatch(/answer|released/);
    node.signal("SIGTERM");
    await until("it grants no more", () =>
      frames.some(({ kind, value }) => kind === "sam_grant" && value === 0),
    );
    writeFileSync(`${path}.go`, "");
    expect((await answerTo(1)).value).toBe(LINE_STATUS.done);
    expect(await node.ended).toMatchObject({ code: 0 });
  });
});
