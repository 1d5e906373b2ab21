// The binding of the engine to Node, used wrongly. Goal: whatever a caller passes, drops, throws
// or closes, a call fails with a code and the engine goes on; nothing ends the process.

import { execFile } from "node:child_process";
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import type { Engine, EngineOptions } from "../../native/index.d.ts";
import { ADDON, ENGINE_ENVIRONMENT } from "../../native/load.ts";
import { native } from "./engine.ts";
import { PLAIN } from "./plain-training.ts";
import {
  batchOf,
  CLASSES,
  dice,
  fingerprint,
  graph,
  randomImage,
  splitOf,
  withEngine,
} from "./training-world.ts";

const SIZE = 64;
const CODES = [
  ...["bad_argument", "bad_weights", "bad_dataset", "gpu_unavailable", "gpu_out_of_memory"],
  ...["out_of_memory", "not_finite", "io_failed", "interrupted", "closed", "internal"],
];
const two = batchOf([randomImage(1, SIZE), randomImage(2, SIZE)], SIZE);
const options: EngineOptions = {
  graph,
  device: "cpu",
  seed: 7,
  threads: 1,
  training: PLAIN,
};
const hostile = (): never => {
  throw new RangeError("a getter's own");
};

const WRONG: readonly unknown[] = [
  ...[undefined, null, true, "", "x", "1", -1, 0.5, 31, 1e9, 1e300, -0, 2 ** 53, 10n],
  ...[Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Symbol("s"), () => 1],
  ...[{}, [], [1], [[]], [null], new Array(2 ** 32 - 1), new Float32Array(1), new Uint8Array(12)],
  ...[new Float32Array(60).fill(Number.NaN), Object.create(null), new Map(), "\0", "é".repeat(999)],
  new Proxy({}, { get: hostile, ownKeys: hostile }),
];

/** Paths of all parts of a value, the value itself first; of long arrays a few items. */
function pathsOf(value: unknown, path: readonly (string | number)[] = []): (string | number)[][] {
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return [[...path]];
  const entries = Object.entries(value);
  const some = entries.length > 30 ? entries.filter((_, index) => index % 29 === 7) : entries;
  return [[...path], ...some.flatMap(([key, inner]) => pathsOf(inner, [...path, key]))];
}

/** A copy with another value at the path. */
function withAt(value: unknown, [key, ...rest]: readonly (string | number)[], wrong: unknown) {
  if (key === undefined) return wrong;
  // Values of any type, wrong ones too: only the keys that were found in them are read.
  const copy = (Array.isArray(value) ? [...value] : { ...(value as object) }) as never;
  // As above.
  (copy as Record<string, unknown>)[key] = withAt((value as never)[key], rest, wrong);
  return copy;
}

const isCoded = (thrown: unknown) =>
  (thrown as RangeError).message === "a getter's own" ||
  CODES.includes((thrown as { code: string }).code);

/** Runs a script in a process of its own, with the addon as `native`; resolves to what it says. */
async function scripted(script: string, shell = "", args: readonly string[] = []) {
  const source = `const native = require(${JSON.stringify(ADDON)});
    const { graph, training } = JSON.parse(process.env.WORLD);
    const options = { graph, device: "cpu", seed: 7, threads: 1, training };
    const say = (...words) => process.stdout.write(words.join(" "));
    ${script}`;
  const run = promisify(execFile);
  const command = `${shell} exec "$0" "$@"`;
  const { stdout } = await run("sh", ["-c", command, process.execPath, "-e", source, ...args], {
    env: {
      ...process.env,
      ...ENGINE_ENVIRONMENT,
      WORLD: JSON.stringify({ graph, training: PLAIN }),
    },
    timeout: 300_000,
  });
  return stdout.trim();
}

describe.skipIf(!native)("the binding of the engine", () => {
  it("refuses wrong options of every kind with a code", async () => {
    const random = dice(5);
    const paths = pathsOf({ ...options, precision: "fp32" });
    for (const path of paths) {
      for (const wrong of [WRONG[random(WRONG.length)], WRONG[random(WRONG.length)]]) {
        let engine: Engine | undefined;
        try {
          engine = new native.Engine(withAt(options, path, wrong) as EngineOptions);
          await engine.ready;
        } catch (thrown) {
          expect(isCoded(thrown), `${path.join(".")} = ${String(thrown)}`).toBe(true);
        } finally {
          await engine?.close();
        }
      }
    }
    expect(native.alive().engines).toBe(0);
  });

  it("refuses graphs and sizes beyond reason", () => {
    const refused = (change: Partial<EngineOptions>) =>
      expect(() => new native.Engine({ ...options, ...change })).toThrow(
        expect.objectContaining({ code: "bad_argument" }),
      );
    const node = (index: number, change: object) => ({
      graph: withAt(graph, ["nodes", index], { ...graph.nodes[index], ...change }) as typeof graph,
    });
    refused({ graph: { ...graph, classes: 0 } });
    refused({ graph: { ...graph, classes: 1e6 } });
    refused({ graph: { ...graph, nodes: [] } });
    refused(node(1, { input: 5 }));
    refused(node(1, { input: 1 }));
    refused(node(1, { channels: -16 }));
    refused(node(1, { stride: 2 ** 30 }));
    refused(node(1, { groups: 0 }));
    refused({ training: { ...PLAIN, batch: 1e9 } });
    refused({ training: { ...PLAIN, imageSize: 31 } });
    refused({ threads: 1e9 });
  });

  it("refuses wrong arguments of every call with a code, and goes on", async () => {
    await withEngine({}, async (engine, folder) => {
      const dataset = splitOf(folder, 4, SIZE);
      await engine.setDataset("train", dataset);
      const path = join(folder, "model");
      await engine.save(path, {});
      const before = await fingerprint(engine, "model");
      const calls: Record<string, unknown[]> = {
        load: [join(folder, "none")],
        save: [join(folder, "none/model"), { a: "b" }],
        checkpoint: [join(folder, "none/model"), { a: "b" }],
        restore: [path],
        setDataset: ["val", { ...dataset, images: [...dataset.images, { offset: 1e9 }] }],
        trainEpoch: [{ epoch: -1, from: 0 }, () => {}],
        evaluate: [{ split: "train", batch: 0, imageSize: SIZE }, () => {}],
        predict: [{ ...two, count: 3 }, 0.5],
        render: [{ epoch: 0, batch: 9 }],
        probe: [{ batch: 1e9, imageSize: SIZE }],
        forward: [{ ...two, height: SIZE + 1 }, { training: false }],
        losses: [{ ...two, boxes: new Float32Array(5) }, { o2mShare: 0.5 }],
        step: [
          { ...two, boxes: new Float32Array(7) },
          { epoch: 0, iteration: 0 },
        ],
        tensor: ["none", "model"],
      };
      const random = dice(6);
      for (const [name, given] of Object.entries(calls)) {
        const call = (args: unknown[]) =>
          // Methods by name, with arguments that the types would refuse.
          (engine as unknown as Record<string, (...all: unknown[]) => Promise<unknown>>)[name]?.(
            ...args,
          ) as Promise<unknown>;
        const tries = [
          given,
          [],
          ...pathsOf(given)
            .slice(1)
            .flatMap((path) =>
              [0, 1, 2].map(() => withAt(given, path, WRONG[random(WRONG.length)]) as unknown[]),
            ),
        ];
        for (const args of tries) {
          // Each has one thing wrong at least: what was, or what was put in.
          const thrown = await call(args).then(
            () => null,
            (error) => error,
          );
          if (thrown) expect(isCoded(thrown), `${name}: ${String(thrown)}`).toBe(true);
        }
      }
      expect(await fingerprint(engine, "model")).toBe(before);
    });
  });

  it("refuses wrong detections and targets with a code", () => {
    const random = dice(7);
    const detections = {
      classes: 3,
      detections: [new Float32Array([1, 2, 3, 4, 0.5, 1])],
      truths: [new Float32Array([1, 1, 2, 3, 4])],
    };
    const anchors = 21;
    const targets = {
      classes: 3,
      height: 32,
      width: 32,
      oneToOne: false,
      images: 1,
      boxes: new Float32Array(4 * anchors),
      logits: new Float32Array(3 * anchors),
      truths: new Float32Array([0, 1, 1, 20, 20]),
    };
    native.assignTargets(targets);
    for (const [call, given] of [
      [native.evaluateDetections, detections],
      [native.assignTargets, targets],
    ] as const) {
      for (const path of pathsOf(given)) {
        for (let turn = 0; turn < 8; turn++) {
          try {
            // A wrong argument is the point.
            call(withAt(given, path, WRONG[random(WRONG.length)]) as never);
          } catch (thrown) {
            expect(isCoded(thrown), `${path.join(".")}: ${String(thrown)}`).toBe(true);
          }
        }
      }
    }
  });

  it("fails the call with what its progress threw, and goes on", async () => {
    await withEngine({}, async (engine, folder) => {
      await engine.setDataset("train", splitOf(folder, 40, SIZE));
      const odd = new Error("of the caller");
      const throwing = () => {
        throw odd;
      };
      await expect(engine.trainEpoch({ epoch: 0, from: 0 }, throwing)).rejects.toBe(odd);
      const options = { split: "train", batch: 40, imageSize: SIZE } as const;
      await expect(engine.evaluate(options, throwing)).rejects.toBe(odd);
      expect((await engine.evaluate(options)).images).toBe(40);
    });
  });

  it("does not mind that a batch's memory is given away meanwhile", async () => {
    await withEngine({}, async (engine) => {
      const wanted = await engine.losses(two, { o2mShare: 0.5 });
      const given = { ...two, images: two.images.slice(), boxes: two.boxes.slice() };
      const losses = engine.losses(given, { o2mShare: 0.5 });
      structuredClone(given.images, { transfer: [given.images.buffer] });
      expect(await losses).toEqual(wanted);
    });
  });

  it("reports a dataset's file that became shorter instead of dying of it", async () => {
    await withEngine({}, async (engine, folder) => {
      const dataset = splitOf(folder, 8, SIZE);
      await engine.setDataset("train", dataset);
      truncateSync(dataset.path, 100);
      const before = await fingerprint(engine, "model");
      for (const call of [
        () => engine.trainEpoch({ epoch: 0, from: 0 }, () => {}),
        () => engine.evaluate({ split: "train", batch: 8, imageSize: SIZE }),
        () => engine.render({ epoch: 0, batch: 0 }),
      ]) {
        await expect(call()).rejects.toMatchObject({ code: "bad_dataset" });
      }
      expect(await fingerprint(engine, "model")).toBe(before);
      for (const path of ["/dev/zero", folder]) {
        const refused = engine.setDataset("train", { ...dataset, path });
        await expect(refused).rejects.toMatchObject({ code: "io_failed" });
      }
    });
  });

  it("loads all of a file or nothing of it", async () => {
    await withEngine({}, async (engine, folder) => {
      const path = join(folder, "model");
      await engine.save(path, {});
      const bytes = readFileSync(path);
      // The last value of the last tensor.
      bytes.writeFloatLE(Number.NaN, bytes.length - 4);
      writeFileSync(path, bytes);
      await engine.step(two, { epoch: 0, iteration: 0 });
      const before = await fingerprint(engine, "model");
      await expect(engine.load(path)).rejects.toMatchObject({ code: "bad_weights" });
      expect(await fingerprint(engine, "model")).toBe(before);
    });
  });

  it("leaves the old file, and no other, where the disk is full", async () => {
    const folder = mkdtempSync(join(tmpdir(), "vantage-binding-"));
    try {
      const path = join(folder, "checkpoint");
      writeFileSync(path, "the old one");
      const script = `(async () => {
        const engine = new native.Engine(options);
        const codes = [];
        for (const write of ["save", "checkpoint"])
          codes.push(await engine[write](process.argv[1], {}).catch(({ code }) => code));
        await engine.close();
        say(JSON.stringify(codes));
      })();`;
      // No file may grow beyond so many blocks of half a kibibyte: as on a full disk.
      const said = await scripted(script, "ulimit -f 1000;", [path]);
      expect(JSON.parse(said)).toEqual(["io_failed", "io_failed"]);
      expect(readdirSync(folder)).toEqual(["checkpoint"]);
      expect(readFileSync(path, "utf8")).toBe("the old one");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  // Root may write anywhere.
  const isRoot = process.getuid?.() === 0;
  it.skipIf(isRoot)("leaves nothing in a folder that is not to be written to", async () => {
    await withEngine({}, async (engine, folder) => {
      chmodSync(folder, 0o500);
      const saved = engine.save(join(folder, "model"), {});
      await expect(saved).rejects.toMatchObject({ code: "io_failed" });
      chmodSync(folder, 0o700);
      expect(readdirSync(folder)).toEqual([]);
    });
  });

  it("ends with its process, dropped, in workers, and closed twice", async () => {
    const folder = mkdtempSync(join(tmpdir(), "vantage-binding-"));
    try {
      const dataset = splitOf(folder, 60, SIZE);
      const images = dataset.images.map((image) => ({ ...image, boxes: [...image.boxes] }));
      const path = join(folder, "dataset.json");
      writeFileSync(path, JSON.stringify({ ...dataset, images }));
      const open = `
        const { readFileSync } = require("node:fs");
        const dataset = JSON.parse(readFileSync(process.argv[1], "utf8"));
        for (const image of dataset.images) image.boxes = Float32Array.from(image.boxes);
        const begin = (onProgress) => {
          const engine = new native.Engine(options);
          engine.setDataset("train", dataset).catch(() => {});
          return { engine, epoch: engine.trainEpoch({ epoch: 0, from: 0 }, onProgress) };
        };`;
      const exits = `${open} begin(() => { say("under way"); process.exit(0); });`;
      expect(await scripted(exits, "", [path])).toBe("under way");
      const drops = `${open}
        (async () => {
          for (let turn = 0; turn < 4; turn++) {
            let { engine, epoch } = begin(() => engine.interrupt());
            await epoch;
            engine = undefined;
            global.gc();
          }
          for (let turn = 0; native.alive().engines > 0 && turn < 1000; turn++) {
            global.gc();
            await new Promise(setImmediate);
          }
          say(native.alive().engines);
        })();`;
      expect(
        await scripted(
          `require("node:v8").setFlagsFromString("--expose-gc");
        global.gc ??= require("node:vm").runInNewContext("gc"); ${drops}`,
          "",
          [path],
        ),
      ).toBe("0");
      const works = `${open}
        const { Worker } = require("node:worker_threads");
        const source = ${JSON.stringify(`
          const { parentPort, workerData } = require("node:worker_threads");
          const native = require(workerData.addon);
          const engine = new native.Engine(workerData.options);
          engine.setDataset("train", workerData.dataset);
          engine.trainEpoch({ epoch: 0, from: 0 }, () => parentPort.postMessage("under way"));
        `)};
        (async () => {
          for (let turn = 0; turn < 2; turn++) {
            const workerData = { addon: ${JSON.stringify(ADDON)}, options, dataset };
            const worker = new Worker(source, { eval: true, workerData });
            await new Promise((resolve) => worker.once("message", resolve));
            await worker.terminate();
          }
          const { engine, epoch } = begin(() => {});
          const codes = [epoch.catch(({ code }) => code), engine.step({}, {}).catch((e) => e.code)];
          await Promise.all([engine.close(), engine.close()]);
          codes.push(engine.probe({ batch: 1, imageSize: 64 }).catch(({ code }) => code));
          say(JSON.stringify(await Promise.all(codes)), native.alive().engines);
        })();`;
      const said = await scripted(works, "", [path]);
      expect(said).toBe('["closed","bad_argument","closed"] 0');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it("leaves no engine behind", () => {
    expect(CLASSES).toBe(graph.classes);
    expect(native.alive().engines).toBe(0);
  });
});
