// The whole stack on a disk that gets full, and with a Postgres that hangs. Goal: it says so, goes
// on reading, loses nothing that it said was written, and recovers by itself; a start without room
// ends with the reason.

import * as fs from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { stateAt } from "../../edge/local/state.ts";
import { mountSmallDisk } from "../support/small-disk.ts";
import {
  allGone,
  processesOf,
  type StackProcess,
  startStackProcess,
} from "../support/stack-process.ts";
import { steadyPorts } from "../support/steady-ports.ts";
import { type Person, register } from "../support/vision.ts";

const MB = 1024 ** 2;
const READY = /Vantage runs/;
const disk = mountSmallDisk(700 * MB);
if (!disk) console.warn("SKIPPED: a full disk needs the right to mount one");

describe.skipIf(!disk)("a stack on a small disk", () => {
  const dir = disk?.dir ?? "";
  const state = stateAt(dir);
  let ports: number[];
  let stack: StackProcess;
  let person: Person;
  /** Names of projects whose creation was answered 201. */
  const made: string[] = [];

  const url = (index: number) => `http://127.0.0.1:${ports[index]}`;
  const start = () => startStackProcess(dir, ports, ["--no-sandbox", "--no-gpu-node"]);
  beforeAll(async () => {
    ports = await steadyPorts(3);
    stack = start();
    await stack.printed(READY);
    person = await register(url(2));
  });
  afterAll(async () => {
    for (const { pid } of processesOf(dir)) process.kill(pid, "SIGKILL");
    await allGone(dir);
    disk?.unmount();
  });

  async function makeProject() {
    const name = `project ${made.length} ${crypto.randomUUID()}`;
    const reply = await person.ask("POST", "/projects", { name });
    if (reply.status === 201) made.push(name);
    return reply;
  }
  async function projectNames(): Promise<string[]> {
    const reply = await person.ask("GET", "/projects");
    expect(reply.status).toBe(200);
    return Object.values(reply.body as Record<string, { name: string }>).map(({ name }) => name);
  }
  const serverPid = () =>
    Number(fs.readFileSync(join(state.postgres, "postmaster.pid"), "utf8").split("\n")[0]);
  const health = async (index: number) =>
    (await (await fetch(`${url(index)}/healthz`)).json()) as Record<string, unknown>;

  it("refuses writes and answers reads while it is full, says so once, and goes on after", async () => {
    for (let count = 0; count < 5; count++) expect((await makeProject()).status).toBe(201);
    disk?.fill(20 * MB);
    await stack.printed(/The disk of \S+ is full: \d+ MB free; nothing is written until/);
    const refused = await makeProject();
    expect([refused.status, refused.body.code]).toEqual([503, "store_unavailable"]);
    expect(refused.body.detail).toContain("disk is full");
    expect(await projectNames()).toEqual(expect.arrayContaining(made));
    expect((await fetch(`${url(0)}/libraries`)).status).toBe(200);
    expect(await health(0)).toMatchObject({ status: "ok" });
    for (const index of [1, 2]) {
      expect(await health(index)).toMatchObject({
        status: "degraded",
        detail: expect.stringContaining("disk is full"),
      });
    }
    expect(stack.output().match(/is full/g)).toHaveLength(1);
    disk?.empty();
    await expect.poll(async () => (await makeProject()).status, { timeout: 60_000 }).toBe(201);
    expect(await health(2)).toEqual({ status: "ok" });
    await stack.printed(/\d+ MB free; writing goes on/);
  });

  it("keeps all that was acknowledged where the disk fills faster than anybody looks", async () => {
    let writing = true;
    const writers = Array.from({ length: 4 }, async () => {
      while (writing) await makeProject().catch(() => {});
    });
    disk?.fill(0);
    await expect.poll(async () => (await health(2)).status, { timeout: 60_000 }).toBe("degraded");
    disk?.empty();
    const before = made.length;
    await expect.poll(() => made.length, { timeout: 120_000 }).toBeGreaterThan(before + 5);
    writing = false;
    await Promise.all(writers);
    expect(new Set(await projectNames()).isSupersetOf(new Set(made))).toBe(true);
  });

  it("answers 503 while Postgres is stopped, and goes on when it is continued", async () => {
    const server = serverPid();
    const children = fs.readFileSync(`/proc/${server}/task/${server}/children`, "utf8");
    const pids = [server, ...children.trim().split(" ").map(Number)];
    // Between two signals one of its workers may have come to its end.
    const signal = (name: NodeJS.Signals) => {
      for (const pid of pids) if (fs.existsSync(`/proc/${pid}`)) process.kill(pid, name);
    };
    signal("SIGSTOP");
    try {
      const asked = [
        makeProject().then(({ status }) => status),
        person.ask("GET", "/projects").then(({ status }) => status),
        fetch(`${url(0)}/libraries`).then(({ status }) => status),
      ];
      for (const index of [0, 1, 2]) {
        expect(await health(index)).toMatchObject({ status: "degraded" });
      }
      expect(await Promise.all(asked)).toEqual([503, 503, 503]);
    } finally {
      signal("SIGCONT");
    }
    await expect.poll(async () => (await makeProject()).status, { timeout: 60_000 }).toBe(201);
    const names = await projectNames();
    expect(new Set(names).isSupersetOf(new Set(made))).toBe(true);
    expect(new Set(names).size).toBe(names.length);
  });

  it("starts Postgres again after each kill, and loses nothing that was acknowledged", async () => {
    const told = (words: RegExp) => stack.output().match(words)?.length ?? 0;
    for (let kills = 1; kills <= 2; kills++) {
      process.kill(serverPid(), "SIGKILL");
      // Sessions may outlive the server for a moment, and it may be back before the next request.
      const answers = new Set<unknown>();
      while (told(/Postgres runs again/g) < kills) {
        const { status, body } = await makeProject();
        answers.add(status === 201 ? status : `${status} ${body.code}`);
      }
      expect(new Set([201, "503 store_unavailable"]).isSupersetOf(answers)).toBe(true);
      await expect.poll(async () => (await makeProject()).status, { timeout: 60_000 }).toBe(201);
      expect(told(/Postgres ended \(ended by SIGKILL\)/g)).toBe(kills);
    }
    expect(new Set(await projectNames()).isSupersetOf(new Set(made))).toBe(true);
  });

  it("starts Postgres again once a full disk has room", async () => {
    disk?.fill(5 * MB);
    process.kill(serverPid(), "SIGKILL");
    await stack.printed(/is full: \d MB free; Postgres is started again once there is room/);
    for (const index of [0, 1, 2])
      expect(await health(index)).toMatchObject({ status: "degraded" });
    expect((await makeProject()).status).toBe(503);
    disk?.empty();
    await expect.poll(async () => (await makeProject()).status, { timeout: 60_000 }).toBe(201);
    expect(new Set(await projectNames()).isSupersetOf(new Set(made))).toBe(true);
  });

  it("does not start on a full disk, and ends in order while it waits for room", async () => {
    disk?.fill(5 * MB);
    process.kill(serverPid(), "SIGKILL");
    await stack.printed(/once there is room[\s\S]*runs again[\s\S]*once there is room/);
    stack.child.kill("SIGTERM");
    expect(await stack.ended).toBe(0);
    await allGone(dir);
    const refused = start();
    expect(await refused.ended).toBe(1);
    expect(refused.output()).toMatch(/the disk of \S+ is full: \d MB free; a start needs 128 MB/);
    await allGone(dir);
    disk?.empty();
    stack = start();
    await stack.printed(READY);
    expect(new Set(await projectNames()).isSupersetOf(new Set(made))).toBe(true);
    stack.child.kill("SIGTERM");
    expect(await stack.ended).toBe(0);
    await allGone(dir);
  });
});
