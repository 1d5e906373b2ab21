// A child process: works on the tasks that the supervisor gives it, predictions beside each other
// and one of any other kind, and on requests of the direct line beside them. Whatever it does to
// itself is the supervisor's to see: a crash costs an attempt of what it worked on. It ends at
// once, with everything it started, when the supervisor is gone.

import { setPriority } from "node:os";
import { Worker } from "node:worker_threads";
import { SEGMENTER_PREFIX, type WriteAddress } from "../../shared/tasks/node-protocol.ts";
import type { SamRequest, SamResult } from "../../shared/tasks/sam.ts";
import type { ObjectSource } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { createLog, outliveFullDisk, toStandardOutput } from "../base/log.ts";
import { tellCounts } from "../base/tally.ts";
import { Turns } from "../base/turns.ts";
import type { RgbImage } from "../media/image.ts";
import { openCache, renewingCache } from "../objects/cache.ts";
import { ResidentSegmenter } from "../segmenters/resident.ts";
import type { OpenOptions, Segmenter } from "../segmenters/segmenter.ts";
import { answerDirectly, encodeReply, type LineWork } from "../serving/direct.ts";
import { type OpenModels, Predictors } from "../serving/predictors.ts";
import { Encodings } from "../tasks/encodings.ts";
import type { RunnerContext } from "../tasks/runner-context.ts";
import { runTask } from "../tasks/runners.ts";
import { lookAtImage } from "../tasks/sam-objects.ts";
import { answerLine } from "../workflows/line-runs.ts";
import type { ChildSettings, FromChild, ObjectReply, ObjectRequest, ToChild } from "./messages.ts";

/** Opens a segmenter by name; null is the default. */
export type Opener = (name: string | null, options: OpenOptions) => Promise<Segmenter>;

/** Below whatever people do on the machine. */
const PRIORITY = 10;
const PROGRESS_MS = 250;
/**
 * Images of the direct line that a segmenter looks at at once: each takes hundreds of megabytes,
 * and while one is looked at the next is decoded.
 */
const LOOKS_AT_ONCE = 2;
/** More than a stack on the same disk needs to go on writing. */
const RESERVE_BYTES = 256 * 1024 ** 2;

const say = (message: FromChild) => {
  process.send?.(message);
};

/** Kills this process's whole group, itself included. */
function endGroup(): never {
  try {
    process.kill(-process.pid, "SIGKILL");
  } catch {
    // Not the group's leader: then it ends alone.
  }
  process.exit(1);
}

/** Serves the supervisor until one of the two ends. */
export function serve(open: Opener) {
  process.on("disconnect", endGroup);
  // A busy main thread would not hear that; a thread of its own sees the parent change.
  new Worker(new URL("./watchdog.ts", import.meta.url), { workerData: process.ppid }).unref();
  // Ctrl-C is the supervisor's to handle; it tells its children what it wants.
  process.on("SIGINT", () => {});
  outliveFullDisk();
  setPriority(PRIORITY);
  const log = createLog(toStandardOutput, { pid: process.pid });
  const tellCountsNow = tellCounts((series) => say({ type: "counts", series }));
  let parts: Promise<Parts> | undefined;
  /** What ends each task in this process, by the task's id. */
  const working = new Map<string, Record<"cancel" | "pause", AbortController>>();
  process.on("message", (message: ToChild) => {
    if (message.type === "settings") parts = openParts(message.settings, open, log);
    if (message.type === "cancel" || message.type === "pause") {
      working.get(message.taskId)?.[message.type].abort();
    }
    if (message.type === "ask") void ask(message, parts, log);
    if (message.type === "drop") asked.get(message.id)?.abort();
    if (message.type === "reply") waiting.get(message.id)?.(message.reply);
    if (message.type !== "task") return;
    const [cancel, pause] = [new AbortController(), new AbortController()];
    working.set(message.taskId, { cancel, pause });
    work(message, parts, { cancel: cancel.signal, pause: pause.signal })
      .then((outcome) => {
        working.delete(message.taskId);
        tellCountsNow();
        say({ type: "outcome", taskId: message.taskId, outcome });
      })
      .catch((thrown: unknown) => {
        log.error("child_failed", { error: thrown });
        process.exit(1);
      });
  });
  say({ type: "ready" });
}

/** What ends each request of the direct line in this process, by its number. */
const asked = new Map<number, AbortController>();

const looks = new Turns(LOOKS_AT_ONCE);

async function ask(
  { id, body, ms }: Extract<ToChild, { type: "ask" }>,
  parts: Promise<Parts> | undefined,
  log: RunnerContext["log"],
) {
  if (!parts) throw new Error("a request came before the settings");
  const drop = new AbortController();
  asked.set(id, drop);
  const signal = AbortSignal.any([drop.signal, AbortSignal.timeout(ms)]);
  const { predictors, segmenters } = await parts;
  const sam = (
    readImage: () => Promise<RgbImage>,
    wanted: SamRequest,
    ended = signal,
  ): Promise<SamResult> =>
    looks.take(async () => {
      ended.throwIfAborted();
      return lookAtImage(await readImage(), wanted, {
        useSegmenter: (name, work) => segmenters.use(name, work, ended),
        signal: ended,
      });
    });
  const workflow: LineWork["workflow"] = (files, head) =>
    answerLine(files, head, { predictors, sam, log }, signal);
  const isSegmenterOpen = (name: string | null) => segmenters.isOpen(name);
  const work = { predictors, sam, isSegmenterOpen, workflow, log };
  const answer = await answerDirectly(body, work, signal);
  asked.delete(id);
  say({ type: "answer", id, answer: answer && encodeReply(answer) });
}

/** Who waits for the supervisor's reply, by the number of the request. */
const waiting = new Map<number, (reply: ObjectReply) => void>();
let requests = 0;

/** Asks the service, through the supervisor, which alone has the node's token. */
async function request(taskId: string, asked: ObjectRequest) {
  const id = ++requests;
  const reply = await new Promise<ObjectReply>((resolve) => {
    waiting.set(id, resolve);
    say({ type: "request", taskId, id, request: asked });
  });
  waiting.delete(id);
  if ("object" in reply) return reply.object;
  throw new TaskFailure("store_unavailable", reply.problem, { retryable: true });
}

interface Parts
  extends Pick<RunnerContext, "cache" | "tools" | "encodings" | "predictors" | "machine" | "log"> {
  segmenters: ResidentSegmenter;
}

async function openParts(
  settings: ChildSettings,
  opener: Opener,
  log: RunnerContext["log"],
): Promise<Parts> {
  const { cacheDir, cacheBytesMax, modelsDir, modelsBytesMax } = settings;
  const { cpuThreads, device, modelDevice, tools } = settings;
  const { trainingDir } = settings;
  const machine = { device, modelDevice, cpuThreads, modelsDir, trainingDir };
  const cache = await openCache({
    dir: cacheDir,
    bytesMax: cacheBytesMax,
    reserveBytes: RESERVE_BYTES,
    log,
  });
  const encodings = new Encodings();
  let open: OpenModels = { modelIds: [], sizes: {}, bytes: 0 };
  let segmenter: string[] = [];
  const tell = () => {
    const { modelIds, sizes, bytes } = open;
    say({ type: "loaded", models: [...modelIds, ...segmenter], sizes, bytes });
  };
  const predictors = new Predictors(
    cache,
    { cpuThreads, device: modelDevice, bytesMax: modelsBytesMax },
    log,
    (models) => {
      open = models;
      tell();
    },
  );
  const segmenters = new ResidentSegmenter({
    open: (name) =>
      opener(name, {
        modelsDir,
        cpuThreads,
        device: modelDevice,
        log: (level, event, fields) => log[level](event, fields),
      }),
    onClose: () => encodings.clear(),
    onChange: (name) => {
      segmenter = name === null ? [] : [SEGMENTER_PREFIX + name];
      tell();
    },
  });
  return { cache, tools, segmenters, encodings, predictors, machine, log };
}

async function work(
  { taskId, kind, payload }: Extract<ToChild, { type: "task" }>,
  parts: Promise<Parts> | undefined,
  signals: Pick<RunnerContext, "cancel" | "pause">,
) {
  if (!parts) throw new Error("a task came before the settings");
  const { segmenters, ...opened } = await parts;
  const log = createLog(toStandardOutput, { pid: process.pid, task_id: taskId });
  let saidAt = Number.NEGATIVE_INFINITY;
  return runTask(kind, payload, {
    ...opened,
    ...signals,
    log,
    useSegmenter: (name, work) => segmenters.use(name, work),
    cache: renewingCache(
      opened.cache,
      async (key) => (await request(taskId, { what: "source", key })) as ObjectSource,
    ),
    address: async (written, content) =>
      (await request(taskId, { what: "target", written, ...content })) as WriteAddress,
    progress: (progress, must = progress.done === progress.total) => {
      const now = performance.now();
      if (now - saidAt < PROGRESS_MS && !must) return;
      saidAt = now;
      say({ type: "progress", taskId, progress });
    },
  });
}
