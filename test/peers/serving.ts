// The group `serving`, by hand because it only says something on an idle machine: the same model
// behind FastAPI with onnxruntime and Pillow, asked in turn with the service and a node, whose
// database is beside it, then elsewhere.

import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { freePorts } from "../../edge/local/ports.ts";
import { deployedModel } from "../../gpu-node/export/deployed-model.ts";
import { writeOnnx } from "../../gpu-node/export/detector-onnx.ts";
import { readTensors } from "../../gpu-node/export/weights-file.ts";
import type { Prediction } from "../../shared/tasks/tasks.ts";
import { postImage } from "../bench/image-client.ts";
import { atOnce, quantile } from "../bench/load.ts";
import { processorTime, spentSince } from "../bench/processor-time.ts";
import { photograph, type ServingWorld, startServing } from "../bench/serving-world.ts";
import type { Group, GroupContext } from "./group.ts";
import type { Outcome } from "./known.ts";

const SIZE = 320;
const ROUNDS = 3;
const SECONDS = 6;
/** How far a database in another building is. */
const ELSEWHERE_MS = 10;
const READY_MS_MAX = 60_000;
const POLL_MS = 200;
/** By the number of requests at once: their p50, or their answers a second, over ours, at least. */
const GOALS = [
  { concurrency: 1, figure: "p50", goal: 1 },
  { concurrency: 8, figure: "a second", goal: 1.5 },
] as const;

/** Starts the server of Python on the model's file; `stop` ends it. */
async function startFastApi({ python, folder }: GroupContext, { model, weights }: ServingWorld) {
  const path = join(folder, "model.onnx");
  const size: [number, number] = [SIZE, SIZE];
  const options = { output: "detections" as const, size, batch: 1, metadata: {} };
  writeFileSync(path, writeOnnx(deployedModel(model, readTensors(weights)), options));
  const [port] = await freePorts(1);
  const script = join(import.meta.dirname, "serving/fastapi_server.py");
  const args = [script, path, port, SIZE, cpus().length].map(String);
  const child = spawn(python, args, { stdio: ["ignore", "ignore", "pipe"] });
  let words = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    words = (words + text).slice(-4_000);
  });
  const stop = () => void child.kill("SIGKILL");
  process.once("exit", stop);
  const url = `http://127.0.0.1:${port}/`;
  for (const deadline = performance.now() + READY_MS_MAX; ; ) {
    const ready = await fetch(url).catch(() => null);
    if (ready?.ok) return { url: `${url}predict`, stop };
    if (child.exitCode !== null || performance.now() > deadline) {
      stop();
      throw new Error(`the server of Python does not answer: ${words}`);
    }
    await new Promise((next) => setTimeout(next, POLL_MS));
  }
}

export const serving: Group = {
  async run(context) {
    return [...(await compareAt(context, 0)), ...(await compareAt(context, ELSEWHERE_MS))];
  },
};

async function compareAt(context: GroupContext, databaseMs: number): Promise<Outcome[]> {
  const world = await startServing("det26n", SIZE, { databaseMs });
  try {
    const theirs = await startFastApi(context, world);
    try {
      return await compare(world, theirs.url, databaseMs);
    } finally {
      theirs.stop();
    }
  } finally {
    await world.stop();
  }
}

/** Sides of the image that both are sent. */
const [WIDTH, HEIGHT] = [1_280, 720];

async function compare(world: ServingWorld, url: string, databaseMs: number): Promise<Outcome[]> {
  const suffix = databaseMs > 0 ? `, a database ${databaseMs} ms away` : "";
  const image = await photograph(WIDTH, HEIGHT, { quality: 92 });
  const ours = () => world.predict(image);
  const theirs = () => postImage(url, image);
  // What lies in the grey beside the image we leave out, and the twenty lines do not.
  const isSeen = ({ bbox: [x1, y1, x2, y2] }: Prediction) =>
    Math.min(x2, WIDTH) > Math.max(x1, 0) && Math.min(y2, HEIGHT) > Math.max(y1, 0);
  const [own, other] = [await ours(), await theirs()].map(({ text }) =>
    (JSON.parse(text) as Prediction[]).filter(isSeen),
  );
  const counts = `${own?.length} and ${other?.length} objects`;
  const isLike = Math.abs((own?.length ?? 0) - (other?.length ?? 0)) <= 0.1 * (own?.length ?? 0);
  const outcomes: Outcome[] = [
    {
      case: `serving/fastapi/objects${suffix}`,
      outcome: isLike ? "passed" : "failed",
      detail: counts,
    },
  ];
  for (const { concurrency, figure, goal } of GOALS) {
    const sides = [ours, theirs].map((ask) => ({
      send: async () => (await ask()).status,
      figures: [] as number[],
      spent: "",
    }));
    for (const { send } of sides) await atOnce(concurrency, 1, send);
    for (let round = 0; round < ROUNDS; round++) {
      for (const side of sides) {
        const before = processorTime();
        const load = await atOnce(concurrency, SECONDS, side.send);
        side.figures.push(figure === "p50" ? quantile(load, 0.5) : load.perSecond);
        const spent = [...spentSince(before, load.times.length)];
        side.spent = spent.map(([name, ms]) => `${name} ${ms.toFixed(1)}`).join(", ");
      }
    }
    const [we = Number.NaN, they = Number.NaN] = sides.map(
      ({ figures }) => figures.toSorted((a, b) => a - b)[ROUNDS >> 1],
    );
    const ratio = figure === "p50" ? they / we : we / they;
    const said = `${we.toFixed(1)} and ${they.toFixed(1)} (${figure}): ${ratio.toFixed(2)}×`;
    outcomes.push({
      case: `serving/fastapi/${concurrency} at once${suffix}`,
      outcome: ratio >= goal ? "passed" : "failed",
      detail: `ours and FastAPI ${said}, goal ${goal}; processor ms of an answer: ${sides
        .map(({ spent }) => spent)
        .join(" and ")}`,
    });
  }
  return outcomes;
}
