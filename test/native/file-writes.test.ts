// Files that an engine writes beside its calls. Goal: what is in a file is the state as of its
// call, whatever was trained before it could be written; a failure is the call's alone; no file is
// lost by closing. A pipe in the place of the engine's temporary file holds a write until somebody
// reads it.

import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ADDON, ENGINE_ENVIRONMENT } from "../../native/load.ts";
import { native } from "./engine.ts";
import { PLAIN } from "./plain-training.ts";
import { graph } from "./training-world.ts";

const SIZE = 64;
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "vantage-file-writes-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Runs a script in a process of its own, in which files are numbered from 1; what it says. */
async function scripted(script: string): Promise<unknown> {
  const source = `const native = require(${JSON.stringify(ADDON)});
    const fs = require("node:fs");
    const { graph, training, folder, size } = JSON.parse(process.env.WORLD);
    const options = { graph, device: "cpu", seed: 7, threads: 1, training };
    const images = Float32Array.from({ length: 3 * size * size }, (_, index) => (index % 7) / 7);
    const boxes = Float32Array.of(0, 0, 8, 8, 40, 40);
    const batch = { images, boxes, count: 1, height: size, width: size };
    const path = folder + "/file";
    const order = [];
    const noted = (name, call) =>
      call.then(() => order.push(name), ({ code }) => order.push(name + " " + code));
    const pipeOf = (path, number) => {
      const pipe = path + ".partial." + process.pid + "." + number;
      require("node:child_process").execFileSync("mkfifo", [pipe]);
      return pipe;
    };
    (async () => {
      const engine = new native.Engine(options);
      const step = (iteration) => engine.step(batch, { epoch: 0, iteration });
      await step(0);
      const said = await (async () => { ${script} })();
      await engine.close();
      process.stdout.write(JSON.stringify(said));
    })();`;
  const world = { graph, training: PLAIN, folder, size: SIZE };
  const { stdout } = await promisify(execFile)(process.execPath, ["-e", source], {
    env: { PATH: process.env.PATH, ...ENGINE_ENVIRONMENT, WORLD: JSON.stringify(world) },
    timeout: 120_000,
  });
  return JSON.parse(stdout);
}

describe.skipIf(!native)("a file of an engine", () => {
  it.each(["checkpoint", "save"])(
    "holds the state as of its call, though steps were made before it was written: %s",
    async (write) => {
      const said = await scripted(`
        await engine.${write}(path, { run: "one" });
        const pipe = pipeOf(path + "2", 2);
        const written = noted("written", engine.${write}(path + "2", { run: "one" }));
        for (const iteration of [1, 2]) await noted("step", step(iteration));
        const copied = await new Response(fs.createReadStream(pipe)).arrayBuffer();
        const isEqual = fs.readFileSync(path).equals(Buffer.from(copied));
        await written;
        await engine.${write}(path, { run: "one" });
        const isChanged = !fs.readFileSync(path).equals(Buffer.from(copied));
        return { order, isEqual, isChanged, files: fs.readdirSync(folder).length };`);
      // A pipe cannot be synced: for the engine that is a disk that fails.
      const order = ["step", "step", "written io_failed"];
      expect(said).toEqual({ order, isEqual: true, isChanged: true, files: 1 });
    },
  );

  it("appears after those of earlier calls, and before the engine is closed", async () => {
    const said = await scripted(`
      const pipe = pipeOf(path, 1);
      const calls = [
        noted("best", engine.save(path, {})),
        noted("checkpoint", engine.checkpoint(path + "2", {})),
        noted("step", step(1)),
      ];
      await calls[2];
      const before = fs.existsSync(path + "2");
      calls.push(noted("closed", engine.close()));
      fs.createReadStream(pipe).resume();
      await Promise.all(calls);
      return { order, before, after: fs.existsSync(path + "2") };`);
    const order = ["step", "best io_failed", "checkpoint", "closed"];
    expect(said).toEqual({ order, before: false, after: true });
  });
});
