// A vision world in which segmenters are asked about uploaded files: who asks, nodes with a line
// whose answers the test gives, and what they found.

import { sql } from "drizzle-orm";
import { decodeAsk, type LineHeadOf } from "../../shared/tasks/line.ts";
import { type Capabilities, SEGMENTER_PREFIX } from "../../shared/tasks/node-protocol.ts";
import type { SamFinding, SamResult } from "../../shared/tasks/sam.ts";
import { type LineEnd, type LineEndOptions, lineNode, openLineEnd } from "./line-end.ts";
import { form, png, type SentFile } from "./media.ts";
import { CAPABILITIES } from "./nodes.ts";
import { apiAs, colleague, type Person } from "./scripted-node.ts";
import { newTenant, register } from "./vision.ts";
import { createWorld, type World } from "./world.ts";

export const MIB = 1024 * 1024;
export const WORKSPACE_MAX = 12 * MIB;
export const [WIDTH, HEIGHT] = [64, 48];

/** Two segmenters; `spare` takes any text. */
export const SEGMENTING: Capabilities = {
  ...CAPABILITIES,
  kinds: ["predict", "sam", "sam_video"],
  segmenters: [
    {
      name: "scripted",
      title: "Scripted",
      text: "closed",
      exemplar: "any_image",
      vocabulary: ["person", "car", "taxi"],
      meanings: { taxi: { classes: ["car"], narrower: true } },
      licence: "none",
    },
    {
      name: "spare",
      title: "Spare",
      text: "open",
      exemplar: "none",
      vocabulary: [],
      meanings: {},
      licence: "none",
    },
  ],
};

/** A part of a form. */
export type Part = [name: string, value: string] | SentFile;

/** A file of an image's header and so many bytes. */
export const image = (bytes = 0): SentFile => {
  const content = new Uint8Array(Math.max(bytes, png(WIDTH, HEIGHT).length));
  content.set(png(WIDTH, HEIGHT));
  return { content };
};
export const json = (name: string, value: unknown): Part => [name, JSON.stringify(value)];
export const PERSON: Part = ["prompts", "person"];

/** Status, code and detail of a refusal. */
export const codeOf = async (response: Response) => {
  const { code, detail } = (await response.json()) as { code?: string; detail?: string };
  return [response.status, code, detail];
};

/** What a request of the line asks. */
export const headOf = (end: LineEnd, id: number) => {
  const { head, image: file } = decodeAsk(end.bytesOf(id));
  return { head: head as LineHeadOf<"sam">, file };
};
/** How many requests have come to a segmenter. */
export const requestsOf = ({ frames }: LineEnd) =>
  frames.filter(({ kind, last }) => kind === "sam_ask" && last).length;

export const RLE = {
  size: [HEIGHT, WIDTH] as [number, number],
  counts: [0, 10, WIDTH * HEIGHT - 10],
};
export const finding = (more: Partial<SamFinding> = {}): SamFinding => ({
  prompt: 0,
  confidence: 0.9,
  bbox: [0, 0, 1, 10],
  mask: { rle: RLE },
  ...more,
});
export const resultOf = (findings: SamFinding[], more: Partial<SamResult> = {}): SamResult => ({
  segmenter: "scripted",
  warnings: [],
  width: WIDTH,
  height: HEIGHT,
  frames: [{ frame_index: 0, time: 0, findings }],
  left_out: { frames: 0, objects: 0, masks: 0 },
  seconds: 0.2,
  ...more,
});

export interface SamWorld {
  world: World;
  admin: Person;
  annotator: Person;
  viewer: Person;
  workspaceId: string;
  /** A workspace of somebody else's. */
  foreign: string;
  /** The annotator asks about a form. */
  ask(...parts: Part[]): Promise<Response>;
  /** As if there were no node, from now on. */
  alone(): Promise<void>;
  /** A node that has a line and the segmenter open, and claims nothing. */
  opened(
    options?: LineEndOptions & { capabilities?: Capabilities; name?: string },
  ): Promise<LineEnd>;
  /** Keys of files of requests. */
  stored(): Promise<string[]>;
}

export async function createSamWorld(): Promise<SamWorld> {
  const environment = { vision: { WORKSPACE_BYTES_MAX: String(WORKSPACE_MAX) } };
  const world = await createWorld({ services: ["vision"], environment });
  const { vision } = world.urls;
  const first = await register(vision);
  const token = first.tokens.access_token;
  const admin = { ...apiAs(vision, token), id: first.id, email: first.email };
  const annotator = await colleague(world, admin, "annotator");
  const viewer = await colleague(world, admin, "viewer");
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  const workspaceId = me.workspaces[0]?.workspace_id ?? "";
  const { workspaceId: foreign } = await newTenant(vision, first, "admin");
  const ends: LineEnd[] = [];
  return {
    world,
    admin,
    annotator,
    viewer,
    workspaceId,
    foreign,
    ask: (...parts) => annotator.send("POST", "/predict/sam", form(...parts)),
    async alone() {
      for (const { socket } of ends.splice(0)) socket.terminate();
      await world.visionDatabase.execute(sql`UPDATE node SET revoked_at = now()`);
    },
    async opened({ capabilities = SEGMENTING, name, ...line } = {}) {
      const node = await lineNode(world, admin, { name, capabilities });
      const loaded = [`${SEGMENTER_PREFIX}scripted`];
      const end = await openLineEnd(world, node, { kind: "sam", loaded, ...line });
      ends.push(end);
      return end;
    },
    async stored() {
      const { objects } = await world.media.list({ prefix: `ws/${workspaceId}/predictions/` });
      return objects.map(({ key }) => key);
    },
  };
}
