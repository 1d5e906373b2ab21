// What one account may take of an installation: so many workspaces, and so many bytes in all of
// them together.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { form, mp4 } from "../../support/media.ts";
import { colleague, type Person, register } from "../../support/scripted-node.ts";
import { createWorld, type World } from "../../support/world.ts";

const WORKSPACES_MAX = 3;
const LIMITS = {
  ACCOUNT_WORKSPACES_MAX: String(WORKSPACES_MAX),
  ACCOUNT_BYTES_MAX: "20000",
  WORKSPACE_BYTES_MAX: "15000",
};

let world: World;
let admin: Person;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"], environment: { vision: LIMITS } });
  // The first to register is admin of the default workspace, which nobody made.
  admin = await register(world);
});

const make = (person: Person, name: string) => person.send("POST", "/admin/workspaces", { name });
/** A new admin with so many workspaces of its own, and a project in each. */
async function maker(workspaces: number): Promise<{ person: Person; projects: string[] }> {
  const person = await colleague(world, admin, "admin");
  const projects: string[] = [];
  for (let n = 0; n < workspaces; n++) {
    const made = (await (await make(person, `own ${n}`)).json()) as { workspace_id: string };
    const body = { name: "clips", workspace_id: made.workspace_id };
    projects.push((await person.ok<{ project_id: string }>("POST", "/projects", body)).project_id);
  }
  return { person, projects };
}

describe("workspaces of an account", () => {
  it("are as many as it may make, also of several that are made at once", async () => {
    const { person } = await maker(WORKSPACES_MAX - 1);
    const answers = await Promise.all(["a", "b", "c"].map((name) => make(person, name)));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 413, 413]);
    const refused = answers.find(({ status }) => status === 413);
    expect(await refused?.json()).toMatchObject({
      code: "quota_exceeded",
      detail: "you have made as many workspaces as an account may",
      workspaces_max: WORKSPACES_MAX,
    });
    const { rows } = await world.visionDatabase.execute(sql`
      SELECT FROM audit_entry WHERE action = 'makeWorkspace' AND actor_id = ${person.id}::uuid`);
    expect(rows).toHaveLength(WORKSPACES_MAX);
    // Those of others do not count.
    const { person: other } = await maker(0);
    expect((await make(other, "another's")).status).toBe(201);
  });
});

describe("storage of an account", () => {
  const upload = (person: Person, project_id: string | undefined, bytes: number) =>
    person.send("POST", "/upload", form(["project_id", project_id ?? ""], { content: mp4(bytes) }));

  it("is counted over all workspaces that it made, whoever uploads to them", async () => {
    const { person, projects } = await maker(2);
    const [first, second] = projects;
    expect((await upload(person, first, 12_000)).status).toBe(201);
    const refused = await upload(person, second, 9_000);
    expect([refused.status, await refused.json()]).toMatchObject([
      413,
      {
        code: "quota_exceeded",
        detail: expect.stringMatching(
          /^the storage of all workspaces that one account made is full/,
        ),
        bytes_used: 12_000,
        bytes_max: 20_000,
      },
    ]);
    // A workspace's own limit is told as its own.
    const own = await upload(person, first, 4_000);
    expect(await own.json()).toMatchObject({
      detail: expect.stringMatching(/^the workspace's storage is full/),
      bytes_max: 15_000,
    });
    expect((await upload(person, second, 7_000)).status).toBe(201);
    // Neither does another's count, nor what lies in the default workspace.
    const other = await maker(1);
    expect((await upload(other.person, other.projects[0], 12_000)).status).toBe(201);
  });

  it("is not exceeded by uploads to two of them at once", async () => {
    const { person, projects } = await maker(2);
    const begin = (project_id: string) =>
      person.send("POST", "/uploads", { project_id, filename: "a.mp4", bytes: 11_000 });
    const answers = await Promise.all(projects.map(begin));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 413]);
  });
});
