// The vision service as its users and its GPU nodes meet it: accounts with tokens, and a node that
// speaks the real protocol over HTTP with answers that the test decides.

import { createHash } from "node:crypto";
import { expect } from "vitest";
import {
  type Capabilities,
  type ClaimedTask,
  type Outcome,
  WriteAddress,
} from "../../shared/tasks/node-protocol.ts";
import {
  type Detection,
  TASK_KINDS,
  type TaskKind,
  type TaskPayload,
} from "../../shared/tasks/tasks.ts";
import type { Project, Role, Video } from "../../shared/wire/vision.ts";
import { CAPABILITIES, introduce } from "./nodes.ts";
import { type Person as AnyPerson, register as registerPerson } from "./vision.ts";
import type { World } from "./world.ts";

export interface Api {
  token: string;
  /** A request with the token; the body is JSON unless it is a form or bytes. */
  send(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<Response>;
  /** The JSON of an answer of a status; fails with the body of any other. */
  ok<Reply>(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<Reply>;
  /** The status and code of a refusal. */
  refused(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<[number, string]>;
}

/** The service's routes under a token. */
export function apiAs(baseUrl: string, token: string): Api {
  const send: Api["send"] = (method, path, body, headers = {}) => {
    const whole = body instanceof FormData || body instanceof Uint8Array;
    const authorization: Record<string, string> = token ? { Authorization: `Bearer ${token}` } : {};
    const json: Record<string, string> =
      body === undefined || whole ? {} : { "Content-Type": "application/json" };
    return fetch(`${baseUrl}/api/v1${path}`, {
      method,
      redirect: "manual",
      headers: { ...authorization, ...json, ...headers },
      // Bytes and forms are bodies to fetch; their types of Node and of the DOM differ.
      ...(body === undefined ? {} : { body: (whole ? body : JSON.stringify(body)) as never }),
    });
  };
  return {
    token,
    send,
    async ok<Reply>(
      method: string,
      path: string,
      body?: unknown,
      headers?: Record<string, string>,
    ) {
      const response = await send(method, path, body, headers);
      const text = await response.text();
      expect([method, path, response.status < 300, text]).toEqual([method, path, true, text]);
      return (text === "" ? null : JSON.parse(text)) as Reply;
    },
    async refused(method, path, body, headers) {
      const response = await send(method, path, body, headers);
      const { code } = (await response.json()) as { code: string };
      return [response.status, code];
    },
  };
}

export interface Person extends Api {
  id: string;
  email: string;
}

const personOf = (world: World, { id, email, tokens }: AnyPerson): Person => ({
  ...apiAs(world.urls.vision, tokens.access_token),
  id,
  email,
});

/** A new account with its tokens; the first of a world is its administrator. */
export const register = async (world: World): Promise<Person> =>
  personOf(world, await registerPerson(world.urls.vision));

/** Another account with a role in the administrator's workspace. */
export async function colleague(world: World, admin: Person, role: Role): Promise<Person> {
  const person = await registerPerson(world.urls.vision);
  await admin.ok("PATCH", `/admin/users/${person.id}`, { role });
  await person.renew();
  return personOf(world, person);
}

export const newProject = (api: Api, name = "Project") =>
  api.ok<Project>("POST", "/projects", { name });

export const SCRIPTED: Capabilities = {
  ...CAPABILITIES,
  kinds: Object.keys(TASK_KINDS),
  segmenters: [
    {
      name: "scripted",
      title: "Scripted",
      text: "closed",
      exemplar: "any_image",
      vocabulary: ["person", "car", "dog", "taxi", "automobile", "animal", "traffic"],
      meanings: {
        taxi: { classes: ["car"], narrower: true },
        automobile: { classes: ["car"], narrower: false },
        animal: { classes: ["dog"], narrower: false },
        traffic: { classes: ["car", "person"], narrower: false },
      },
      licence: "none",
    },
  ],
};

type Answer = Record<string, unknown> | Outcome;

/** What a scripted node answers to a task: a result, or an outcome of any other kind. */
export type Script = Partial<
  Record<TaskKind, (task: ClaimedTask, node: ScriptedNode) => Answer | Promise<Answer>>
>;

export interface ScriptedNode {
  /** The protocol under the node's own token. */
  api: Api;
  script: Script;
  claim(kinds?: readonly string[]): Promise<ClaimedTask | null>;
  finish(task: ClaimedTask, outcome: Outcome): Promise<Response>;
  /** Writes what a task makes: a target of its payload, or a new object; gives its key. */
  write(
    task: ClaimedTask,
    written: { key: string } | { name: string; content_type: string },
    body: Uint8Array | string,
  ): Promise<string>;
  /** Does every task that is queued now, one after another; returns what it did. */
  work(): Promise<ClaimedTask[]>;
  /** Keeps working in the background until the returned function is called. */
  start(): () => Promise<void>;
}

const isOutcome = (answer: Answer): answer is Outcome => "outcome" in answer;

/** Between two questions for work: each costs the service and its database several milliseconds. */
const IDLE_MS = 100;

/** Registers a node with a one-time code of the administrator's. */
export async function scriptedNode(
  world: World,
  admin: Api,
  script: Script = {},
  capabilities: Capabilities = SCRIPTED,
): Promise<ScriptedNode> {
  const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
  const introduced = { code, name: "scripted", capabilities };
  const api = apiAs(world.urls.vision, (await introduce(world.urls.vision, introduced)).node_token);
  const finish: ScriptedNode["finish"] = (task, outcome) =>
    api.send("POST", `/node/tasks/${task.task_id}/finish`, { fence: task.fence, outcome });
  const node: ScriptedNode = {
    api,
    script: { probe: probeAs({}), ...script },
    finish,
    async claim(kinds = capabilities.kinds) {
      const response = await api.send("POST", "/node/claim", { kinds, wait_seconds: 0 });
      return response.status === 204 ? null : ((await response.json()) as ClaimedTask);
    },
    async write(task, written, body) {
      const bytes = Buffer.from(body);
      const md5 = createHash("md5").update(bytes).digest("hex");
      const asked = { fence: task.fence, ...written, bytes: bytes.length, md5 };
      const given = await api.ok("POST", `/node/tasks/${task.task_id}/target`, asked);
      const { url, key, headers } = WriteAddress.parse(given);
      expect((await fetch(url, { method: "PUT", headers, body: bytes })).status).toBe(200);
      return key;
    },
    async work() {
      const done: ClaimedTask[] = [];
      for (;;) {
        const task = await node.claim(Object.keys(node.script));
        if (!task) return done;
        const answer = await (node.script[task.kind as TaskKind] as NonNullable<Script["probe"]>)(
          task,
          node,
        );
        const outcome = isOutcome(answer)
          ? answer
          : { outcome: "finished" as const, result: answer };
        expect((await finish(task, outcome)).status).toBeLessThan(300);
        done.push(task);
      }
    },
    start() {
      let going = true;
      const loop = (async () => {
        while (going) {
          if ((await node.work()).length > 0) continue;
          await new Promise((next) => setTimeout(next, IDLE_MS));
        }
      })();
      return async () => {
        going = false;
        await loop;
      };
    },
  };
  return node;
}

interface Shape {
  frames?: number;
  width?: number;
  height?: number;
  fps?: number;
}

/** Answers a probe as if the file were a video of this shape, at a constant rate. */
export const probeAs =
  ({ frames = 10, width = 640, height = 360, fps = 10 }: Shape) =>
  async (task: ClaimedTask, node: ScriptedNode) => {
    const payload = TASK_KINDS.probe.payload.parse(task.payload);
    const pts = Int32Array.from({ length: frames }, (_, index) => index * 100);
    await node.write(task, { key: payload.pts.key }, new Uint8Array(pts.buffer));
    await node.write(task, { key: payload.thumbnail.key }, JPEG);
    return {
      broken: null,
      content_type: "video/mp4",
      width,
      height,
      fps,
      frame_count: frames,
      duration_seconds: frames / fps,
      time_base: [1, 100 * fps],
      probe: { codec: "scripted" },
    };
  };

type LabelTask = TaskPayload<"label">;

/** Answers a label task with what these are on each of its frames. */
export const labelAs =
  (detectionsOf: (frame: number, prompts: LabelTask["prompts"]) => Detection[]) =>
  (task: ClaimedTask) => {
    const { frames, prompts } = TASK_KINDS.label.payload.parse(task.payload);
    return {
      frames: frames.map((frame_index) => ({
        frame_index,
        detections: detectionsOf(frame_index, prompts),
      })),
      segmenter: "scripted",
      seconds: 0.1,
      warnings: [],
    };
  };

/** The smallest bytes that a JPEG reader and a magic-byte check take for one. */
export const JPEG = Uint8Array.from([0xff, 0xd8, 0xff, 0xe0, 0, 16, 0x4a, 0x46, 0x49, 0x46, 0]);
/** The head of an MP4 file, enough for its magic bytes. */
export const MP4 = new Uint8Array([
  ...[0, 0, 0, 24],
  ...new TextEncoder().encode("ftypisom"),
  ...[0, 0, 2, 0],
  ...new TextEncoder().encode("isomiso2mp41"),
]);

/** Uploads a file that the scripted node will take for a video. */
export async function uploadVideo(api: Api, projectId: string, filename = "clip.mp4") {
  const form = new FormData();
  form.append("project_id", projectId);
  form.append("file", new Blob([MP4]), filename);
  return api.ok<Video>("POST", "/upload", form);
}
