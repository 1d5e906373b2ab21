// A real node predicts for the real service: a model with generated weights is activated, looks at
// images and a clip, and is opened again when the node's process was killed.

import { readFileSync } from "node:fs";
import sharp from "sharp";
import { beforeAll, expect, it } from "vitest";
import { HEARTBEAT_SECONDS } from "../../../../shared/tasks/node-protocol.ts";
import { Prediction } from "../../../../shared/tasks/tasks.ts";
import { ServeStatus, VideoPrediction } from "../../../../shared/wire/serving.ts";
import { rectangles, toolsOrSay } from "../../../support/clips.ts";
import { type NodeProcess, startNode } from "../../../support/gpu-node.ts";
import { form } from "../../../support/media.ts";
import { registerModel } from "../../../support/registered-model.ts";
import { type Person, register } from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

/** A node tells at once what its processes have open: its next heartbeat would come later. */
const BEFORE_HEARTBEAT_MS = (HEARTBEAT_SECONDS * 1_000) / 2;

const found = toolsOrSay();
let world: World;
let admin: Person;
let workspaceId: string;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
});

const warmUp = async () => ServeStatus.parse(await admin.ok("GET", "/serve/status")).warm_up;

/** A red disc on grey. */
const drawn = () =>
  sharp({ create: { width: 200, height: 120, channels: 3, background: "#777" } })
    .composite([
      {
        input: Buffer.from(
          '<svg width="60" height="60"><circle cx="30" cy="30" r="28" fill="red"/></svg>',
        ),
      },
    ])
    .png()
    .toBuffer();

async function begun(): Promise<NodeProcess> {
  const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
  const node = startNode({ VANTAGE_URL: world.urls.vision, VANTAGE_NODE_CODE: code });
  await expect
    .poll(async () => (await admin.ok<ServeStatus>("GET", "/serve/status")).nodes.able)
    .toBe(1);
  return node;
}

it.skipIf(!found)("opens, activates, predicts, and comes back after a crash", async () => {
  const node = await begun();
  const spoilt = await registerModel(world, workspaceId, { sha256: "0".repeat(64) });
  expect(await admin.refused("POST", `/models/${spoilt.model_id}/activate`)).toEqual([
    502,
    "task_failed",
  ]);
  expect(await admin.refused("GET", "/serve/classes")).toEqual([409, "state_conflict"]);

  const model = await registerModel(world, workspaceId, { classes: ["disc", "plate"] });
  await admin.ok("POST", `/models/${model.model_id}/activate`);
  await expect.poll(warmUp, { timeout: BEFORE_HEARTBEAT_MS }).toBe("warm");
  expect(await admin.ok("GET", "/serve/classes")).toEqual(["disc", "plate"]);

  const content = new Uint8Array(await drawn());
  const predict = async () => {
    const answer = await admin.send("POST", "/predict/image?confidence=0.3", form({ content }));
    expect(answer.status).toBe(200);
    // By the direct line, not by the queue.
    expect(answer.headers.get("X-Served-By")).toMatch(/^node\/./);
    return Prediction.array().parse(await answer.json());
  };
  const detections = await predict();
  expect(detections.length).toBeGreaterThan(0);
  for (const { class: name, bbox } of detections) {
    expect(["disc", "plate"]).toContain(name);
    const [x1, y1, x2, y2] = bbox;
    expect(x1 >= 0 && y1 >= 0 && x2 <= 200 && y2 <= 120 && x2 > x1 && y2 > y1).toBe(true);
  }

  const clip = new Uint8Array(readFileSync(rectangles()));
  const video = VideoPrediction.parse(
    await admin.ok("POST", "/predict/video?fps=5&frames_max=4", form({ content: clip })),
  );
  expect(video).toMatchObject({ status: "completed", width: 160, height: 120, left_out: 6 });
  expect(video.frames?.map(({ frame_index, time }) => [frame_index, time])).toEqual([
    [0, 0],
    [2, 0.2],
    [4, 0.4],
    [6, 0.6],
  ]);

  for (const pid of node.below()) process.kill(pid, "SIGKILL");
  await expect.poll(warmUp, { timeout: BEFORE_HEARTBEAT_MS }).toBe("cold");
  expect(await predict()).toEqual(detections);
  await expect.poll(warmUp, { timeout: BEFORE_HEARTBEAT_MS }).toBe("warm");
  const left = await world.media.list({ prefix: `ws/${workspaceId}/predictions/` });
  expect(left.objects).toEqual([]);
});
