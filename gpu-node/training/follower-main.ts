// The program of a process that trains as one with the process that started it (`team.ts`). It
// holds nothing that would be lost, and ends with that process.

import type { Engine } from "../../native/index.d.ts";
import { loadEngine } from "../../native/load.ts";
import { engineCode } from "./engine-failure.ts";
import type { FromFollower, ToFollower } from "./team.ts";

let engine: Engine | undefined;

async function work(message: ToFollower) {
  if (message.type === "open") {
    const loaded = loadEngine();
    if ("missing" in loaded) throw new Error(loaded.missing);
    engine = new loaded.native.Engine(message.options);
    await engine.ready;
    await engine.setDataset("train", message.dataset);
    return;
  }
  if (!engine) throw new Error("the engine was not opened");
  if (message.type === "join") await engine.join(message.group);
  else await engine.trainEpoch({ epoch: message.epoch, from: message.from }, () => {});
}

const say = (answer: FromFollower) => process.send?.(answer);

process.on("disconnect", () => process.kill(process.pid, "SIGKILL"));
process.on("SIGINT", () => {});
process.on("message", (message: ToFollower) => {
  work(message).then(
    () => say({ type: "done" }),
    (thrown: unknown) =>
      say({
        type: "failed",
        code: engineCode(thrown) ?? "internal",
        message: thrown instanceof Error ? thrown.message : String(thrown),
      }),
  );
});
