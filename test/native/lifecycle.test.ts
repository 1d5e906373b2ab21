// Engines that come and go. Goal: nothing of them stays, calls that wait are told, errors say where
// the caller was, and a process that has engines ends like every other.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ENGINE_ENVIRONMENT } from "../../native/load.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { native } from "./engine.ts";

const graph = detectorGraph("det26n", 3);
const make = () => new native.Engine({ graph, device: "cpu", seed: 1, threads: 1 });
const batch = (side: number) => ({
  images: new Float32Array(3 * side * side),
  count: 1,
  height: side,
  width: side,
});
const residentMiB = () =>
  Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1]) / 1024;

describe.skipIf(!native)("an engine", () => {
  it("leaves nothing when it is closed", async () => {
    const before = native.alive().engines;
    const run = async () => {
      const engine = make();
      await engine.forward(batch(160), { training: true });
      expect(native.alive().engines).toBe(before + 1);
      await engine.close();
    };
    for (let warm = 0; warm < 5; warm++) await run();
    const resident = residentMiB();
    for (let engines = 0; engines < 20; engines++) await run();
    expect(native.alive()).toEqual({ engines: before, gpuBytes: 0 });
    // Twenty would hold 200 MiB of weights alone; measured up to +15, and +60 on torch 2.13.
    expect(residentMiB() - resident).toBeLessThan(100);
  });

  it("tells calls that wait and calls that come that it was closed", async () => {
    const engine = make();
    await engine.ready;
    const calls = [1, 2, 3].map(() => engine.forward(batch(320), { training: false }));
    const closing = engine.close();
    const late = engine.forward(batch(64), { training: false });
    const [first, ...others] = await Promise.allSettled([...calls, late]);
    if (first?.status === "rejected") expect(first.reason.code).toBe("closed");
    for (const call of others) {
      expect(call).toMatchObject({ status: "rejected", reason: { code: "closed" } });
    }
    await closing;
    await engine.close();
    expect(() => engine.interrupt()).not.toThrow();
  });

  it("says where the call was that failed, in its thread or in an argument", async () => {
    const engine = make();
    async function callerOfTheEngine() {
      await engine.tensor("nothing", "model");
    }
    async function callerWithoutArguments() {
      // A call without its batch is the point.
      await engine.forward(undefined as never, { training: true });
    }
    for (const caller of [callerOfTheEngine, callerWithoutArguments]) {
      const error = await caller().catch((reason) => reason);
      expect(error).toBeInstanceOf(Error);
      expect(error).toMatchObject({ name: "EngineError", code: "bad_argument" });
      expect(error.stack).toMatch(new RegExp(`^EngineError: .+\n[^]*at ${caller.name} `));
    }
    await engine.close();
  });

  it("names the argument that is wrong", async () => {
    const options = { graph, device: "cpu", seed: 1, threads: 1 } as const;
    const wrong: [object, RegExp][] = [
      [{ device: "tpu" }, /^device is cpu or cuda/],
      [{ threads: 0 }, /^threads is out of its range/],
      [{ seed: -1 }, /^seed is out of its range/],
      [{ precision: "fp8" }, /^precision is fp32, bf16 or fp16/],
      [{ graph: undefined }, /^graph must be an object/],
      [{ training: { optimizer: "lion" } }, /^training\.optimizer is adamw, sgd or musgd/],
    ];
    for (const [change, message] of wrong) {
      // Wrong options are the point.
      const call = () => new native.Engine({ ...options, ...change } as never);
      expect(call).toThrow(expect.objectContaining({ code: "bad_argument" }));
      expect(call).toThrow(message);
    }
    const engine = make();
    // Metadata of another type than text is the point.
    await expect(engine.save("/tmp/x", { a: 1 } as never)).rejects.toThrow(/^metadata\.a must be/);
    await engine.close();
  });

  it.each([
    ["lets the process end with it open", "open", 0, "done\n"],
    ["lets the process exit while it computes", "busy", 7, ""],
    ["harms nobody who does not ask whether it is ready", "unawaited", 0, "done\n"],
    ["is freed when nobody holds it", "collected", 0, "done\n"],
  ])("%s", async (_, way, code, output) => {
    const child = spawn(
      process.execPath,
      ["--expose-gc", join(import.meta.dirname, "engine-child.ts"), way],
      { env: { PATH: process.env.PATH, ...ENGINE_ENVIRONMENT }, timeout: 300_000 },
    );
    const said: string[] = [];
    const errors: string[] = [];
    child.stdout.on("data", (part) => said.push(String(part)));
    child.stderr.on("data", (part) => errors.push(String(part)));
    const ended = await once(child, "close");
    expect({ ended, said: said.join(""), errors: errors.join("") }).toEqual({
      ended: [code, null],
      said: output,
      errors: "",
    });
  });
});
