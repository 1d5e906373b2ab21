// The node as it runs: the real program and its child processes against a service that speaks the
// protocol and misbehaves on demand. Goal: every task ends once whatever dies, nothing is reported
// that was not seen, and nothing is left behind.

import {
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { groupLives } from "../../../gpu-node/base/processes.ts";
import { installBundle } from "../../../gpu-node/segmenters/install.ts";
import { detectorGraph } from "../../../shared/detector/detector.ts";
import type { TaskResult } from "../../../shared/tasks/tasks.ts";
import { longGop, rectangles, toolsOrSay } from "../../support/clips.ts";
import { type NodeProcess, processesOf, startNode } from "../../support/gpu-node.ts";
import {
  type NodeService,
  type ServedTask,
  startNodeService,
  until,
} from "../../support/node-service.ts";
import { randomWeights, tensorFile } from "../../support/weights.ts";

const found = toolsOrSay();
let service: NodeService;

/** Where tasks say that they wait. */
let folder: string;

beforeEach(async () => {
  service = await startNodeService();
  folder = mkdtempSync(join(tmpdir(), "vantage-signs-"));
});
afterEach(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

const start = (more: Record<string, string> = {}) =>
  startNode({ VANTAGE_URL: service.url, VANTAGE_NODE_TOKEN: service.token, ...more });

const text = (word: string, className = "thing") => ({
  kind: "text",
  class_name: className,
  text: word,
});

function label(prompts: unknown[], frames = [0, 5, 10], clip = rectangles()): ServedTask {
  return service.enqueue("label", {
    video: service.source(`v/${clip}`, readFileSync(clip)),
    video_id: "v",
    job_id: "j",
    prompts,
    frames,
    resolution: null,
    images: frames.map(() => null),
    segmenter: null,
    model: null,
  });
}

/** A task whose child waits at its first frame; `pid` is the child's, `go` lets it on. */
async function held(frames?: number[], clip?: string) {
  const path = join(folder, crypto.randomUUID());
  const task = label([text(`hold ${path}`), text("red")], frames, clip);
  await until("the child waits", () => existsSync(path) && readFileSync(path, "utf8") !== "");
  const pid = Number(readFileSync(path, "utf8"));
  return { task, pid, path, go: () => writeFileSync(`${path}.go`, "") };
}

const ended = (task: ServedTask) => until("the task ends", () => task.state === "ended");
const framesOf = (task: ServedTask) => {
  const outcome = task.outcomes.at(-1);
  if (outcome?.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  return (outcome.result as TaskResult<"label">).frames;
};
const childStarts = (node: NodeProcess) =>
  node.lines().filter(({ event }) => event === "child_started").length;

describe.skipIf(!found)("a node", () => {
  it("registers by a one-time code once, and keeps its token to itself", async () => {
    const first = startNode({ VANTAGE_URL: service.url, VANTAGE_NODE_CODE: service.code });
    await until("it is registered", () => service.heartbeats.length > 0);
    expect(service.capabilities).toMatchObject({
      ffmpeg: found?.version,
      slots: 1,
      device: { kind: "cpu" },
      segmenters: [{ name: "rectangles", text: "closed", vocabulary: ["red", "green", "blue"] }],
    });
    const kept = join(first.dir, "identity.json");
    expect(statSync(kept).mode & 0o777).toBe(0o600);
    first.signal("SIGTERM");
    expect(await first.ended).toMatchObject({ code: 0 });
    const beats = service.heartbeats.length;
    const more = { VANTAGE_NODE_CODE: service.code, VANTAGE_NODE_DIR: first.dir };
    const second = startNode({ VANTAGE_URL: service.url, ...more });
    await until("it is back", () => service.heartbeats.length > beats + 1);
    expect(service.registrations).toBe(1);
    const said = first.output() + second.output();
    expect(said).not.toContain(service.token);
    expect(said).not.toContain(service.code);
    expect(said).not.toContain("X-Amz-Signature");
  });

  it("does its tasks one after the other in one child, woken as they come", async () => {
    const node = start();
    // The end is told again, a while after the first report of progress was: it may overtake that.
    service.fault(/\/finish$/, 500);
    const one = label([text("red")]);
    await ended(one);
    const other = label([text("green")]);
    await ended(other);
    expect(framesOf(one)).toHaveLength(3);
    expect(framesOf(other)[0]?.detections).toHaveLength(1);
    // It may overtake the last one all the same.
    expect(one.progress.at(-1)).toMatchObject({ done: expect.any(Number), total: 3 });
    expect(childStarts(node)).toBe(1);
    expect(service.reads.get(`v/${rectangles()}`)).toBe(1);
  });

  it("works on as many tasks at once as it has slots", async () => {
    const node = start({ VANTAGE_NODE_SLOTS: "2" });
    const [one, other] = [await held(), await held()];
    expect(one.pid).not.toBe(other.pid);
    await until("both are renewed", () => service.heartbeats.at(-1)?.tasks.length === 2);
    one.go();
    other.go();
    await Promise.all([ended(one.task), ended(other.task)]);
    expect(childStarts(node)).toBe(2);
  });

  it("probes an upload while a long labeling job has its only general slot", async () => {
    start();
    const { task: long, go } = await held();
    const waiting = label([text("red")]);
    const clip = rectangles();
    const upload = service.enqueue("probe", {
      video: service.source(`v/${clip}`, readFileSync(clip)),
      video_id: "v",
      filename: "clip.mp4",
      still: false,
      pts: service.target("pts.bin"),
      thumbnail: service.target("thumbnail.jpg"),
    });
    await ended(upload);
    expect(upload.outcomes).toMatchObject([{ outcome: "finished", result: { broken: null } }]);
    expect([long.state, waiting.state]).toEqual(["running", "queued"]);
    go();
    await Promise.all([ended(long), ended(waiting)]);
  });

  it("says what failed, and whether to try again", async () => {
    const node = start();
    const unknown = label([text("walrus")]);
    await ended(unknown);
    expect(unknown.outcomes).toMatchObject([
      { outcome: "failed", code: "prompt_unknown", retryable: false },
    ]);
    const fault = label([text("exit")]);
    await ended(fault);
    expect(fault.outcomes).toMatchObject([
      { outcome: "failed", code: "node_crashed", retryable: true },
    ]);
    expect(fault.outcomes[0]).toHaveProperty(
      "detail",
      expect.stringMatching(/status 7: cuda fault/),
    );
    expect(JSON.stringify(fault.outcomes)).not.toContain("abcdef");
    const crash = label([text("crash")]);
    await ended(crash);
    expect(crash.outcomes[0]).toHaveProperty("detail", expect.stringMatching(/SIGSEGV/));
    const good = label([text("red")]);
    await ended(good);
    expect(framesOf(good)).toHaveLength(3);
    expect(childStarts(node)).toBe(3);
  });

  it("loses nothing but an attempt when its child is killed", async () => {
    start();
    const undisturbed = label([text("red"), text("blue")], [0, 4, 8]);
    await ended(undisturbed);
    const { task, pid, go } = await held([0, 4, 8]);
    process.kill(pid, "SIGKILL");
    await ended(task);
    expect(task.outcomes).toMatchObject([
      { outcome: "failed", code: "node_crashed", retryable: true },
    ]);
    go();
    service.requeue(task);
    task.payload = undisturbed.payload;
    const again = label([text("red"), text("blue")], [0, 4, 8]);
    await ended(again);
    expect(framesOf(again)).toEqual(framesOf(undisturbed));
  });

  it("leaves no process behind when it is killed itself", async () => {
    const node = start();
    // The reader waits, so ffmpeg waits too.
    const { path } = await held([0, 1, 2, 3, 100, 300], longGop());
    await until("ffmpeg runs", () => node.below().length >= 1);
    const below = node.below();
    node.signal("SIGKILL");
    await node.ended;
    const gone = () => processesOf(node.dir).length === 0 && !below.some(groupLives);
    await until("all is gone", gone);
    expect(existsSync(path)).toBe(true);
    const again = start({ VANTAGE_NODE_DIR: node.dir });
    const task = label([text("red")]);
    await ended(task);
    expect(again.pid).toBeGreaterThan(0);
  });

  it("leaves no process behind when it is killed while its child is busy for ever", async () => {
    const node = start();
    const path = join(folder, "hang");
    label([text(`hang ${path}`)]);
    await until("the child hangs", () => existsSync(path));
    node.signal("SIGKILL");
    await node.ended;
    await until("all is gone", () => processesOf(node.dir).length === 0);
  });

  it("ends a task that shows no sign of life, and takes the next one", async () => {
    start({ TEST_STALL_MS: "20000" });
    const path = join(folder, "hang");
    const stalled = label([text(`hang ${path}`)]);
    await ended(stalled);
    expect(stalled.outcomes).toMatchObject([
      { outcome: "failed", code: "node_stalled", retryable: true },
    ]);
    const next = label([text("red")]);
    await ended(next);
    expect(next.outcomes).toMatchObject([{ outcome: "finished" }]);
  });

  it("leaves no process behind without the kernel's help either", async () => {
    // Nothing but ffmpeg is on the path: no setpriv, no namespace, no limits.
    for (const program of ["ffmpeg", "ffprobe"] as const) {
      symlinkSync(found?.[program] ?? "", join(folder, program));
    }
    const node = start({ PATH: folder, VANTAGE_NODE_SLOTS: "2" });
    await held([0, 1, 2, 3, 100, 300], longGop());
    const path = join(folder, "hang");
    label([text(`hang ${path}`)]);
    await until("the other child hangs", () => existsSync(path));
    expect(service.capabilities?.missing[0]).toMatch(/unshare --net/);
    node.signal("SIGKILL");
    await node.ended;
    await until("all is gone", () => processesOf(node.dir).length === 0);
  });

  it("keeps what is done when a task is cancelled", async () => {
    start();
    const { task, path, go } = await held();
    task.verdict = "cancel";
    await until("the child heard", () => existsSync(`${path}.told`));
    go();
    await ended(task);
    const [outcome] = task.outcomes;
    if (outcome?.outcome !== "cancelled") throw new Error(JSON.stringify(outcome));
    expect((outcome.result as TaskResult<"label">).frames).toHaveLength(1);
    const next = label([text("red")]);
    await ended(next);
    expect(framesOf(next)).toHaveLength(3);
  });

  it("ends a child that does not heed a cancel", async () => {
    const node = start({ TEST_CANCEL_MS: "500" });
    const path = join(folder, "hang");
    const task = label([text(`hang ${path}`)]);
    await until("the child hangs", () => existsSync(path) && readFileSync(path, "utf8") !== "");
    const pid = Number(readFileSync(path, "utf8"));
    task.verdict = "cancel";
    await ended(task);
    expect(task.outcomes).toEqual([{ outcome: "cancelled", result: null }]);
    expect(groupLives(pid)).toBe(false);
    const next = label([text("red")]);
    await ended(next);
    expect(childStarts(node)).toBe(2);
  });

  it("reports a revoke only when nothing of the task runs any more", async () => {
    start();
    const { task, pid } = await held([0, 1, 2, 3, 100, 300], longGop());
    task.verdict = "revoke";
    await ended(task);
    expect(task.outcomes).toEqual([{ outcome: "revoked", exited: true }]);
    expect(groupLives(pid)).toBe(false);
  });

  it("ends a task that is another's by now, and reports nothing of it", async () => {
    start();
    const { task, pid } = await held();
    // Rescued and claimed by another node.
    task.fence += 1;
    await until("the child is gone", () => !groupLives(pid));
    const next = label([text("red")]);
    await ended(next);
    expect(task.outcomes).toEqual([]);
  });

  it("ends each task once though answers are lost and the service stumbles", async () => {
    const node = start();
    service.fault(/\/claim$/, 500, "drop", 429);
    service.fault(/\/finish$/, "drop", "page", 500, "drop_after");
    service.fault(/\/progress$/, "drop", 500);
    const task = label([text("red")]);
    await ended(task);
    const next = label([text("red")]);
    await ended(next);
    expect(task.outcomes).toHaveLength(1);
    expect(framesOf(task)).toEqual(framesOf(next));
    expect(childStarts(node)).toBe(1);
  });

  it("leaves a task to the nodes that have its segmenter", async () => {
    start();
    const task = label([text("red")], [0]);
    task.payload.segmenter = "elsewhere";
    await until("it gave it back", () => task.outcomes.length > 0);
    expect(task.outcomes[0]).toEqual({ outcome: "snoozed", seconds: 10 });
    task.payload.segmenter = null;
    await ended(task);
    expect(framesOf(task)).toHaveLength(1);
  });

  it("finds work without the socket", async () => {
    service.deaf = true;
    const node = start();
    await until("it is there", () => service.heartbeats.length > 0);
    const task = label([text("red")]);
    await ended(task);
    expect(node.lines().some(({ event }) => event === "task_ended")).toBe(true);
  });

  it("stops with a clear word when its token is refused", async () => {
    const node = start({ VANTAGE_NODE_TOKEN: "wrong" });
    expect(await node.ended).toMatchObject({ code: 3 });
    expect(node.output()).toMatch(/The node stopped: unauthorized/);
    expect(node.below()).toEqual([]);
  });

  it("names every bad key, and says how to be known", async () => {
    const bad = startNode({ VANTAGE_URL: "ftp://x", VANTAGE_NODE_SLOTS: "none" });
    expect(await bad.ended).toMatchObject({ code: 1 });
    expect(bad.output()).toMatch(/VANTAGE_URL: .*VANTAGE_NODE_SLOTS: /);
    const told = startNode({ VANTAGE_URL: service.url.replace("//", "//me:hunter2@") });
    expect(await told.ended).toMatchObject({ code: 1 });
    expect(told.output()).toMatch(/VANTAGE_URL: must .* without a user/);
    expect(told.output()).not.toContain("hunter2");
    const off = startNode({
      VANTAGE_URL: `${service.url}/objects`,
      VANTAGE_NODE_CODE: service.code,
    });
    expect(await off.ended).toMatchObject({ code: 1 });
    expect(off.output()).toMatch(/no vision service at VANTAGE_URL/);
    const unknown = startNode({ VANTAGE_URL: service.url });
    expect(await unknown.ended).toMatchObject({ code: 1 });
    expect(unknown.output()).toMatch(/set VANTAGE_NODE_CODE to a code of an admin/);
  });

  it("lets no second node into its folder", async () => {
    const node = start();
    await until("it is there", () => service.heartbeats.length > 0);
    const second = start({ VANTAGE_NODE_DIR: node.dir });
    expect(await second.ended).toMatchObject({ code: 1 });
    expect(second.output()).toMatch(/already runs on/);
  });
});

describe.skipIf(!found)("a drain", () => {
  it("lets running tasks end, claims no more, and leaves nothing behind", async () => {
    const node = start();
    const { task, go } = await held();
    node.signal("SIGTERM");
    await until("it says so", () => service.heartbeats.at(-1)?.draining === true);
    const late = label([text("red")]);
    go();
    expect(await node.ended).toMatchObject({ code: 0 });
    expect(framesOf(task)).toHaveLength(3);
    expect(late).toMatchObject({ state: "queued", fence: 0 });
    expect(processesOf(node.dir)).toEqual([]);
  });

  it("gives back what does not end in time", async () => {
    const node = start({ VANTAGE_NODE_DRAIN_SECONDS: "0" });
    const { task, pid } = await held();
    node.signal("SIGTERM");
    expect(await node.ended).toMatchObject({ code: 0 });
    expect(task.outcomes).toEqual([{ outcome: "snoozed", seconds: 0 }]);
    expect(task.state).toBe("queued");
    expect(groupLives(pid)).toBe(false);
  });

  it("ends at once at the second signal", async () => {
    const node = start();
    const { task } = await held();
    node.signal("SIGTERM");
    await until("it drains", () => service.heartbeats.at(-1)?.draining === true);
    node.signal("SIGTERM");
    await node.ended;
    expect(task.state).toBe("running");
    expect(processesOf(node.dir)).toEqual([]);
  });
});

describe("what lies in a node's folder of models", () => {
  it("is offered while it is there, without another start", async () => {
    const modelsDir = join(folder, "models");
    start({ VANTAGE_MODELS: modelsDir });
    const sets = () => service.capabilities?.weights?.map(({ dataset }) => dataset);
    await until("it says what it has", () => service.capabilities !== null);
    expect(sets()).toEqual([]);
    const file = join(folder, "cells.safetensors");
    writeFileSync(file, tensorFile(randomWeights(detectorGraph("det26n", 1))));
    const weights = { name: "cells", licence: "MIT", source: "a drawing" };
    const bundle = await installBundle(file, { modelsDir, weights });
    await until("it offers the set", () => sets()?.includes("cells") === true);
    rmSync(bundle.folder, { recursive: true });
    await until("it offers none", () => sets()?.length === 0);
    expect(service.capabilities).toMatchObject({ segmenters: [{ name: "rectangles" }] });
  });
});

describe("a node without ffmpeg", () => {
  it("runs, says what it lacks, and takes no task", async () => {
    const node = start({ PATH: "/nonexistent" });
    await until("it says so", () => service.capabilities !== null);
    expect(service.capabilities).toMatchObject({ ffmpeg: null, kinds: [] });
    expect(service.capabilities?.missing[0]).toMatch(/install it \(apt-get install ffmpeg\)/);
    const task = label([text("red")], [0], import.meta.filename);
    const beats = service.heartbeats.length;
    await until("it lives on", () => service.heartbeats.length > beats + 3);
    expect(task.state).toBe("queued");
    node.signal("SIGTERM");
    expect(await node.ended).toMatchObject({ code: 0 });
  });
});
