// Objects of the bucket that a workspace may link: its own ones, and those that an operator maps to
// it. Goal: whoever reads the documents alone finds them; nobody sees or links another workspace's
// objects, or the service's own.

import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { parseConfig } from "../../../../edge/vision/config.ts";
import { linkPrefixesOf } from "../../../../edge/vision/media/uploads/link.ts";
import { SERVICE_FOLDERS } from "../../../../edge/vision/media/videos/videos.ts";
import type { Failure } from "../../../../shared/errors.ts";
import { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { ObjectSource } from "../../../../shared/tasks/tasks.ts";
import { TokenPair, VideoBatch } from "../../../../shared/wire/vision.ts";
import { mp4, text } from "../../../support/media.ts";
import { registerTestNode } from "../../../support/nodes.ts";
import { code, newProject } from "../../../support/upload-world.ts";
import {
  ask,
  newMember,
  newTenant,
  PASSWORD,
  type Person,
  register,
} from "../../../support/vision.ts";
import { createWorld, type World } from "../../../support/world.ts";

/** The workspace that the operator maps prefixes to. */
const MAPPED = "0b5f8c1e-6a0d-4c53-9d39-6f0a4c1d7e21";
const OWN = `ws/${MAPPED}/`;

let world: World;
let admin: Person;
let engineer: Person;
let stranger: Person;
let strangers: string;

beforeAll(async () => {
  const LINK_PREFIXES = `footage/north/=${MAPPED}, footage/north/old/=${MAPPED}`;
  world = await createWorld({ services: ["vision"], environment: { vision: { LINK_PREFIXES } } });
  admin = await register(world.urls.vision);
  await world.visionDatabase.execute(sql`
    WITH made AS (INSERT INTO workspace (id, name) VALUES (${MAPPED}::uuid, 'north') RETURNING id)
    INSERT INTO membership (workspace_id, account_id, role)
    SELECT id, ${admin.id}::uuid, 'admin' FROM made`);
  // The service knows the memberships of a new session.
  const again = { body: { email: admin.email, password: PASSWORD } };
  admin.tokens = TokenPair.parse((await ask(world.urls.vision, "POST", "/auth/login", again)).body);
  engineer = await newMember(world.urls.vision, admin, MAPPED, "engineer");
  ({ member: stranger, workspaceId: strangers } = await newTenant(
    ...([world.urls.vision, admin, "engineer"] as const),
  ));
  const keys = [
    ...[`${OWN}in/a.mp4`, `${OWN}in/b.mp4`, `${OWN}z.mp4`, `${OWN}videos`],
    ...[...SERVICE_FOLDERS].flatMap((folder) => [`${OWN}${folder}/x/1`, `${OWN}${folder}/x/2`]),
    ...["footage/north/2026/c.mp4", "footage/north/old/d.mp4", "footage/south/e.mp4"],
    ...["imports/archive.zip", `ws/${strangers}/in/f.mp4`, `${OWN}in//g.mp4`],
  ];
  for (const key of keys) await world.media.put(key, mp4());
});

const Page = z.object({
  prefixes: z.array(z.string()),
  items: z.array(
    z.object({
      storage_key: z.string(),
      filename: z.string(),
      bytes: z.number(),
      uploaded_at: z.iso.datetime(),
    }),
  ),
  next: z.string().nullable(),
});
type Page = z.infer<typeof Page>;
const list = async (query = "", who = engineer) => {
  const reply = await who.ask("GET", `/link-videos${query}`);
  expect(reply.status).toBe(200);
  return Page.parse(reply.body);
};
const keysOf = ({ items }: Page) => items.map(({ storage_key }) => storage_key);
const LINKABLE = [
  ...["footage/north/2026/c.mp4", "footage/north/old/d.mp4"],
  ...[`${OWN}in/a.mp4`, `${OWN}in/b.mp4`, `${OWN}videos`, `${OWN}z.mp4`],
];

describe("GET /link-videos", () => {
  it("lists the workspace's own objects and those mapped to it, and no other", async () => {
    const page = await list();
    expect(page.prefixes).toEqual(["footage/north/", OWN]);
    expect(keysOf(page)).toEqual(LINKABLE);
    expect(page.next).toBeNull();
    expect(page.items[0]).toMatchObject({ filename: "c.mp4", bytes: mp4().length });
    expect(keysOf(await list("", stranger))).toEqual([`ws/${strangers}/in/f.mp4`]);
  });

  it("is read page by page, without gaps", async () => {
    const read: string[] = [];
    for (let cursor: string | null = ""; cursor !== null; ) {
      const page: Page = await list(`?limit=1${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
      expect(page.items).toHaveLength(1);
      read.push(...keysOf(page));
      cursor = page.next;
    }
    expect(read).toEqual(LINKABLE);
  });

  it.each([
    [`${OWN}in/`, [`${OWN}in/a.mp4`, `${OWN}in/b.mp4`]],
    [`${OWN}in/b`, [`${OWN}in/b.mp4`]],
    ["footage/", ["footage/north/2026/c.mp4", "footage/north/old/d.mp4"]],
    ["footage/south/", []],
    [`${OWN}videos/`, []],
    [`${OWN}run/x/`, []],
    ["imports/", []],
    ["ws/", LINKABLE.slice(2)],
  ])("narrows to the prefix %s", async (prefix, expected) => {
    expect(keysOf(await list(`?prefix=${encodeURIComponent(prefix)}`))).toEqual(expected);
  });

  it("is empty for another workspace's prefix, and for one that is no key's", async () => {
    for (const prefix of [`ws/${strangers}/`, `${OWN}${"é".repeat(1_000)}`]) {
      expect(keysOf(await list(`?prefix=${encodeURIComponent(prefix)}`))).toEqual([]);
    }
  });

  it("is for engineers of the workspace, and takes no cursor of another list", async () => {
    const annotator = await newMember(world.urls.vision, admin, MAPPED, "annotator");
    const path = "/link-videos";
    expect(code(await annotator.ask("GET", path))).toEqual([403, "forbidden"]);
    const foreign = await stranger.ask("GET", `${path}?workspace_id=${MAPPED}`);
    expect(code(foreign)).toEqual([404, "not_found"]);
    for (const cursor of [`ws/${strangers}/in/f.mp4`, "imports/a", "é".repeat(2_000)]) {
      const reply = await engineer.ask("GET", `${path}?cursor=${encodeURIComponent(cursor)}`);
      expect(code(reply)).toEqual([422, "invalid_request"]);
    }
  });
});

describe("POST /link-videos", () => {
  it("takes objects as they are listed, and a node reads a mapped one", async () => {
    const project_id = await newProject(engineer, { workspace_id: MAPPED });
    const { items } = await list();
    const reply = await engineer.ask("POST", "/link-videos", { project_id, objects: items });
    expect(reply.status).toBe(201);
    const { videos, failed } = VideoBatch.parse(reply.body);
    expect(failed).toEqual([]);
    expect(videos.map(({ filename }) => filename)).toEqual(items.map(({ filename }) => filename));
    const node = await registerTestNode(world.urls.vision, admin, { kinds: ["probe"] });
    const claimed = await node.post("/node/claim", { kinds: ["probe"] });
    const { payload } = ClaimedTask.parse(await claimed.json());
    const { key, url } = ObjectSource.parse(payload.video);
    expect(key).toBe(LINKABLE[0]);
    const read = await fetch(url);
    expect([read.status, (await read.bytes()).length]).toEqual([200, mp4().length]);
  });

  it("refuses the service's own objects, and what is mapped to another workspace", async () => {
    const own = await newProject(engineer, { workspace_id: MAPPED });
    const other = await newProject(stranger);
    await world.media.put("footage/north/notes.txt", text());
    const cases: [Person, string, string][] = [
      ...[...SERVICE_FOLDERS].map((folder): [Person, string, string] => [
        ...([engineer, own, `${OWN}${folder}/x/1`] as const),
      ]),
      ...["imports/archive.zip", "footage/south/e.mp4", "footage/north/../south/e.mp4"].map(
        (key): [Person, string, string] => [engineer, own, key],
      ),
      [stranger, other, "footage/north/2026/c.mp4"],
    ];
    for (const [who, project_id, storage_key] of cases) {
      const objects = [{ storage_key, filename: "x" }];
      const reply = await who.ask("POST", "/link-videos", { project_id, objects });
      expect([storage_key, ...code(reply)]).toEqual([storage_key, 422, "storage_key_refused"]);
    }
    const notes = [{ storage_key: "footage/north/notes.txt", filename: "x" }];
    const reply = await engineer.ask("POST", "/link-videos", { project_id: own, objects: notes });
    expect(code(reply)).toEqual([415, "unsupported_media"]);
  });
});

describe("the service's own folders", () => {
  it("are all that its sources write under a workspace's prefix", () => {
    const root = join(import.meta.dirname, "../../../..");
    const folders = globSync("edge/vision/**/*.ts", { cwd: root }).flatMap((file) => {
      const source = readFileSync(join(root, file), "utf8");
      const keys = source.matchAll(/`(?:ws\/\$\{\w+\}\/|\$\{workspacePrefix\(\w+\)\})([\w-]+)\//g);
      // A node's objects lie in a folder of its task's subject.
      const subjects = source.matchAll(/(?:subject: |subjectOf = .*\n? *)`(\w+):\$\{/g);
      return [...keys, ...subjects].map(([, folder]) => folder ?? "");
    });
    expect(new Set(folders).size).toBeGreaterThan(10);
    expect([...new Set(folders)].filter((folder) => !SERVICE_FOLDERS.has(folder))).toEqual([]);
  });
});

it.each([
  ["no workspace", "footage/"],
  ["no folder", `footage=${MAPPED}`],
  ["all of the bucket", `/=${MAPPED}`],
  ["workspaces", `ws/${MAPPED}/=${MAPPED}`],
  ["archives of imports", `imports/=${MAPPED}`],
  ["a step upwards", `a/../ws/=${MAPPED}`],
  ["two workspaces", `a/=${MAPPED},a/b/=${MAPPED.replace(/^0/, "1")}`],
])("a mapping of %s is refused at the door", (_, LINK_PREFIXES) => {
  try {
    parseConfig({ LINK_PREFIXES });
    expect.unreachable();
  } catch (thrown) {
    expect((thrown as Failure).data.keys).toContain("LINK_PREFIXES");
  }
});

it("takes a prefix that an operator mapped twice once", () => {
  const mapped = { prefix: "footage/", workspaceId: "w" };
  const prefixes = linkPrefixesOf({ linkPrefixes: [mapped, mapped] }, "w");
  expect(prefixes).toEqual(["footage/", "ws/w/"]);
});
