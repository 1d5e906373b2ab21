// A run that asks for several devices, with the real engine and real processes. Goal: what is left
// of them after a death brings the run to its end, and a node that has fewer trains on what it has.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { drawnDataset } from "../../support/drawn-dataset.ts";
import { followers } from "../../support/followers.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { engineOrSay, machine, resultOf } from "../../support/training.ts";

const native = engineOrSay();
let service: NodeService;
let trainingDir: string;
beforeAll(async () => {
  service = await startNodeService();
  trainingDir = mkdtempSync(join(tmpdir(), "vantage-team-"));
});
afterAll(async () => {
  rmSync(trainingDir, { recursive: true, force: true });
  await service.close();
});

const few = { train: 6, val: 3 };
/** A machine of two cores, whatever this one has. */
const twoCores = () => ({ machine: { device: "cpu" as const, cpuThreads: 2, trainingDir } });

describe.skipIf(!native)("a run on two devices", () => {
  it("goes on from its checkpoint to its end when one of the two is killed", async () => {
    const here = machine(service, twoCores());
    const { payload } = await drawnDataset(service, { epochs: 5, devices: 2 }, few);
    let killed = 0;
    const outcome = await here.attempt(payload, ({ detail }) => {
      if (killed > 0 || detail.epoch < 2) return;
      killed = followers()[0] ?? expect.fail("no process trains beside this one");
      process.kill(killed, "SIGKILL");
    });
    expect(killed).toBeGreaterThan(0);
    const { history, model } = resultOf(outcome);
    expect(history.map(({ epoch }) => epoch)).toEqual([1, 2, 3, 4, 5]);
    expect(model?.metrics).toEqual(history[(model?.epoch ?? 0) - 1]?.metrics);
    const log = here.lines().join("\n");
    expect(log).toMatch(/2 processes of 1 thread each train as one; batch norm by each one's part/);
    expect(log).toMatch(/Of 2 processes 1 is left: a process ended by SIGKILL/);
    expect(log).toMatch(/Resumed at epoch (?!1\b)\d/);
    await expect.poll(followers).toEqual([]);
  });

  it("ends in what it was asked to: a stop hands in a model, and leaves no process", async () => {
    const here = machine(service, twoCores());
    const { payload } = await drawnDataset(service, { epochs: 50, devices: 2 }, few);
    const outcome = await here.attempt(payload, ({ detail, cancel }) => {
      if (detail.epoch >= 1) cancel();
    });
    expect(resultOf(outcome)).toMatchObject({
      stopped: true,
      model: { parameters: expect.any(Number) },
    });
    await expect.poll(followers).toEqual([]);
  });

  it("is trained by one process where two are there and cannot meet", async () => {
    const here = machine(service, twoCores());
    const { payload } = await drawnDataset(service, { epochs: 1, devices: 2 }, few);
    // The file by which they meet would lie there.
    vi.stubEnv("TMPDIR", "/proc/nowhere");
    try {
      expect((await here.finish(payload)).history.length).toBe(1);
    } finally {
      vi.unstubAllEnvs();
    }
    expect(here.lines().join("\n")).toMatch(/Of 2 processes 1 is left: they have nowhere to meet/);
  });

  it("is trained on what a node of one core has", async () => {
    const here = machine(service);
    const { payload } = await drawnDataset(service, { epochs: 1, devices: 2 }, few);
    const result = await here.finish(payload);
    expect(result.history.length).toBe(1);
    expect(here.lines().join("\n")).toMatch(/2 devices were asked for, and this node trains on 1/);
  });
});
