// From what is wanted of the device to what it runs: pending → downloading → verifying → staged →
// active → confirmed, or failed before it was switched to, or rolled_back after. Each move is on
// the disk first (device-state.ts). The model that predicts is replaced only by one that was tried
// here, and stays in its slot until the new one is confirmed.

import * as fs from "node:fs";
import { join } from "node:path";
import { setTimeout as later } from "node:timers";
import type { DesiredModel, ReportedModel } from "../../shared/wire/fleet.ts";
import { isRecent, type Manifest } from "../../shared/wire/rollouts.ts";
import { sha256OfFile } from "../base/file-hash.ts";
import type { Log } from "../base/log.ts";
import { DeviceModel, type Opening } from "./device-model.ts";
import type { DeviceService } from "./device-service.ts";
import {
  type DeviceStateFile,
  freeSlot,
  isEnd,
  type OnStep,
  type Slot,
  type Update,
} from "./device-state.ts";
import { downloadFile } from "./download.ts";
import { renameDurably } from "./durable-file.ts";
import type { Enrolment } from "./enrolment.ts";
import type { Hang } from "./hang-watchdog.ts";
import type { RunningModel } from "./running-model.ts";
import { believed, ModelRefusal } from "./signed-manifest.ts";
import { trialImage } from "./trial-image.ts";

/** Starts on an unconfirmed model that may end badly. */
const STARTS_MAX = 3;
/** Failed inferences in a row by which an unconfirmed model is given up. */
const FAILURES_MAX = 3;
const PART_BYTES_TOLD = 1024 * 1024;
/** Milliseconds that a timer can wait: 24 days. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** What updates work with. */
export interface UpdateParts {
  dir: string;
  agentVersion: string;
  opening: Opening;
  modelBytesMax: number;
  enrolment(): Enrolment;
  /** Keeps the keys of a manifest. */
  learn(keys: Manifest["keys"]): void;
  service: DeviceService;
  state: DeviceStateFile;
  running: RunningModel;
  log: Log;
  onStep: OnStep;
  /** The state is one that the service should hear of now. */
  onNews(): void;
}

/** A manifest that was refused before it became an update. */
interface Refusal {
  desired: DesiredModel;
  failure: string;
}

export class Updates {
  readonly #parts: UpdateParts;
  #work: { version: string; abort: AbortController; done: Promise<void> } | null = null;
  #refusal: Refusal | null = null;
  /** Moves from the inference loop come one after another. */
  #turning: Promise<void> = Promise.resolve();
  #isTurning = false;
  /** Ends the time in which the model that is active has to be confirmed. */
  #confirmation: NodeJS.Timeout | undefined;

  constructor(parts: UpdateParts) {
    this.#parts = parts;
    fs.mkdirSync(this.#slotsDir, { recursive: true, mode: 0o700 });
  }

  get #slotsDir(): string {
    return join(this.#parts.dir, "slots");
  }

  #slotFile = (slot: Slot) => join(this.#slotsDir, `${slot}.onnx`);
  #partFile = (manifest: Manifest) =>
    join(this.#slotsDir, `${manifest.file.sha256.slice(0, 16)}.part`);

  /** What heartbeats say of the model. */
  report(): ReportedModel | null {
    const { update } = this.#parts.state.models;
    if (this.#refusal) {
      const { desired, failure } = this.#refusal;
      const { rollout_id, model_id, export_id, version } = desired;
      return { rollout_id, model_id, export_id, version, slot: null, status: "failed", failure };
    }
    if (!update) return null;
    const { rollout_id, model_id, export_id, version } = update.manifest;
    const isRunning = update.state === "active" || update.state === "confirmed";
    return {
      rollout_id,
      model_id,
      export_id,
      version,
      slot: update.slot,
      status: update.state,
      failure: update.failure,
      crashes: Math.max(0, update.starts - 1),
      ...(isRunning ? this.#parts.running.figures() : {}),
    };
  }

  /** Opens what the device had, and takes up what was cut short; for the agent's start. */
  async start(): Promise<void> {
    const { state, log, opening } = this.#parts;
    const { watchdog } = opening;
    const hang = watchdog.hang();
    if (hang) log.error("model_hung", hang);
    if (state.spoilt) log.error("state_spoilt", { dir: this.#parts.dir });
    const { update } = state.models;
    if (update && (update.state === "staged" || update.state === "active")) {
      if (hang?.version === update.manifest.version) await this.#giveUp(update, hungModel(hang));
      else if (update.starts >= STARTS_MAX) await this.#giveUp(update, CRASHED);
      else if (update.state === "active") await this.#openActive(update);
    }
    watchdog.forget();
    await this.#openCurrent();
    const next = state.models.update;
    if (next && !isEnd(next.state) && next.state !== "active") this.#begin(next.manifest.version);
  }

  /** Ends what is under way; what is on the disk goes on at the next start. */
  async stop(): Promise<void> {
    const { state, running } = this.#parts;
    this.#work?.abort.abort(new Error("the agent stops"));
    await this.#work?.done;
    clearTimeout(this.#confirmation);
    await this.#turning;
    const { update } = state.models;
    // This start ended in order: it is no crash.
    if (update && !isEnd(update.state) && update.starts > 0) {
      state.keepInAnyCase({ update: { ...update, starts: update.starts - 1 } }, "stopped");
    }
    await running.use(null);
  }

  /** Brings to the disk what found no room there. */
  catchUp(): void {
    this.#parts.state.catchUp();
  }

  /** Follows what is wanted, as a heartbeat said. Returns at once. */
  follow(desired: DesiredModel | null): void {
    const { state } = this.#parts;
    if (this.#refusal && this.#refusal.desired.version !== desired?.version) this.#refusal = null;
    if (!desired || this.#refusal || this.#work?.version === desired.version) return;
    const { update } = state.models;
    const isDone = update && (isEnd(update.state) || update.state === "active");
    if (isDone && update.manifest.version === desired.version) return;
    this.#work?.abort.abort(new Error("another version is wanted"));
    this.#begin(desired.version, desired);
  }

  /** Fetches the manifest again, since keys may have come to it. */
  async refresh(signal: AbortSignal): Promise<void> {
    const { service, state, enrolment } = this.#parts;
    const { deviceId, keys } = enrolment();
    const signed = await service.manifest(signal);
    const { seen } = state.models;
    this.#parts.learn(believed(signed, { deviceId, keys, seen }).keys);
  }

  #begin(version: string, desired?: DesiredModel) {
    const abort = new AbortController();
    const before = this.#work?.done ?? Promise.resolve();
    const work = { version, abort, done: Promise.resolve() };
    work.done = before
      .then(() => this.#update(desired, abort.signal))
      .catch((thrown: unknown) => this.#parts.log.error("update_failed", { error: thrown }))
      .finally(() => {
        if (this.#work === work) this.#work = null;
      });
    this.#work = work;
  }

  /** Brings the device to a version; every end but an abort is kept and told. */
  async #update(desired: DesiredModel | undefined, signal: AbortSignal): Promise<void> {
    const { state, log, onNews } = this.#parts;
    try {
      if (desired) await this.#take(desired, signal);
      await this.#proceed(signal);
    } catch (thrown) {
      if (signal.aborted) return;
      const { update } = state.models;
      const isOf =
        update && !isEnd(update.state) && (!desired || update.manifest.version === desired.version);
      if (thrown instanceof ModelRefusal) {
        log.warning("model_refused", { failure: thrown.message });
        if (isOf) state.moveInAnyCase("failed", { failure: thrown.message });
        else if (desired) this.#refusal = { desired, failure: thrown.message };
        onNews();
        // Nothing was switched: it goes on with what it has.
      } else {
        // Such as no answer: the next heartbeat that wants it begins again.
        log.warning("update_cut_short", { error: thrown });
      }
    }
  }

  /** Takes the manifest of what is wanted, if it can be believed. */
  async #take(desired: DesiredModel, signal: AbortSignal): Promise<void> {
    const { service, state, enrolment, log, running } = this.#parts;
    const signed = await service.manifest(signal);
    const { seen, update } = state.models;
    const { deviceId, keys } = enrolment();
    const manifest = believed(signed, { deviceId, keys, seen });
    this.#parts.learn(manifest.keys);
    const { version, rollout_id } = manifest;
    if (version === update?.manifest.version) return;
    log.info("manifest_taken", { version, wanted: desired.version, rollout_id });
    // An unconfirmed model is left before another one is tried: there are two slots.
    if (update?.state === "active") await this.#goBack(update, "left: another version is wanted");
    const { current } = state.models;
    const common = { manifest, failure: null, starts: 0, in_parts: false, again: false };
    if (running.model && current?.manifest.file.sha256 === manifest.file.sha256) {
      // The same file under another manifest, such as when the service called a rollout off.
      const { slot } = current;
      const own: Update = { ...common, slot, state: "confirmed" };
      state.keep({ seen: version, current: { slot, manifest }, update: own }, "adopted");
      running.rename(manifest);
      this.#parts.onNews();
      return;
    }
    const next: Update = { ...common, slot: freeSlot(state.models), state: "pending" };
    state.keep({ seen: version, update: next }, "pending");
  }

  /** Goes on from where the update is. */
  async #proceed(signal: AbortSignal): Promise<void> {
    const { state } = this.#parts;
    for (;;) {
      const { update } = state.models;
      if (!update || isEnd(update.state) || update.state === "active") return;
      signal.throwIfAborted();
      if (update.state === "pending") await this.#prepare(update);
      else if (update.state === "downloading") await this.#download(update, signal);
      else if (update.state === "verifying") await this.#verify(update);
      else await this.#try(update, signal);
    }
  }

  async #prepare({ manifest, slot }: Update): Promise<void> {
    const { state, agentVersion, modelBytesMax } = this.#parts;
    const { min_agent: min, file } = manifest;
    if (!isRecent(agentVersion, min)) {
      const detail = `this agent is of release ${agentVersion}, and ${min} is asked for`;
      throw new ModelRefusal("agent_too_old", detail);
    }
    const keep = new Set([this.#partFile(manifest), this.#slotFile("a"), this.#slotFile("b")]);
    for (const name of fs.readdirSync(this.#slotsDir)) {
      const path = join(this.#slotsDir, name);
      if (!keep.has(path)) fs.rmSync(path, { force: true });
    }
    if (await this.#holds(slot, manifest)) return state.move("staged");
    const { current } = state.models;
    const others = current ? current.manifest.file.size : 0;
    if (others + file.size > modelBytesMax) {
      const detail = `models may take ${modelBytesMax} bytes; with this one they would ${others + file.size}`;
      throw new ModelRefusal("disk_full", detail);
    }
    state.move("downloading");
  }

  /** Whether a slot has the very file of a manifest. */
  async #holds(slot: Slot, { file }: Manifest): Promise<boolean> {
    const path = this.#slotFile(slot);
    const size = fs.statSync(path, { throwIfNoEntry: false })?.size;
    return size === file.size && (await sha256OfFile(path)) === file.sha256;
  }

  async #download({ manifest, slot }: Update, signal: AbortSignal): Promise<void> {
    const { state, service, log, onStep } = this.#parts;
    // The slot's former file is of no use any more, and its room may be needed.
    if (state.models.former?.slot === slot) state.keep({ former: null }, "former_forgotten");
    fs.rmSync(this.#slotFile(slot), { force: true });
    let told = 0;
    const inParts = await downloadFile({
      address: () => service.artifact(manifest.version, signal),
      path: this.#partFile(manifest),
      size: manifest.file.size,
      signal,
      onPart: (bytes) => {
        if (bytes - told < PART_BYTES_TOLD) return;
        told = bytes;
        onStep("part");
      },
      onFault: (reason) => log.warning("download_cut_short", { reason }),
    });
    state.move("verifying", { in_parts: inParts });
  }

  async #verify({ manifest, slot, in_parts: inParts, again }: Update): Promise<void> {
    const { state, log, onStep } = this.#parts;
    const part = this.#partFile(manifest);
    if (!fs.existsSync(part) && (await this.#holds(slot, manifest))) return state.move("staged");
    const size = fs.statSync(part, { throwIfNoEntry: false })?.size ?? 0;
    if (size !== manifest.file.size || (await sha256OfFile(part)) !== manifest.file.sha256) {
      fs.rmSync(part, { force: true });
      if (inParts && !again) {
        log.warning("download_damaged", { version: manifest.version });
        return state.move("downloading", { again: true });
      }
      const detail = "the file is not the one of the manifest's SHA-256";
      throw new ModelRefusal("hash_mismatch", detail);
    }
    renameDurably(part, this.#slotFile(slot));
    onStep("renamed");
    state.move("staged");
  }

  /** Tries the model on a stored image; what it takes down with it is counted first. */
  async #try(update: Update, signal: AbortSignal): Promise<void> {
    const { state, dir, opening } = this.#parts;
    const { manifest, slot } = update;
    if (update.starts >= STARTS_MAX) throw new ModelRefusal(CRASHED.code, CRASHED.detail);
    state.move("staged", { starts: update.starts + 1 });
    let model: DeviceModel | null = null;
    try {
      model = await DeviceModel.open(this.#slotFile(slot), manifest, opening);
      await model.look(await trialImage(dir));
    } catch (thrown) {
      await model?.close();
      const reason = (thrown as Error).message.split("\n")[0] ?? "";
      throw new ModelRefusal("trial_failed", reason, { cause: thrown });
    }
    if (signal.aborted) {
      await model.close();
      signal.throwIfAborted();
    }
    const { current } = state.models;
    const { starts } = state.models.update as Update;
    state.move("active", { starts }, { current: { slot, manifest }, former: current });
    await this.#activate(model);
  }

  /** Predicts with the new model, and watches it until it is confirmed. */
  async #activate(model: DeviceModel): Promise<void> {
    const { running, log, onNews } = this.#parts;
    const { confirm, version } = model.manifest;
    let good = 0;
    let wrong = 0;
    let first: number | null = null;
    // Also where nothing more is looked at, or fewer images come than are asked for.
    const leave = () => {
      const failure = `not_confirmed: ${good} good inferences in ${confirm.seconds} s`;
      this.#turn(() => this.#rollBack(version, failure));
    };
    await running.use(model, (isGood) => {
      if (first === null) {
        first = performance.now();
        this.#confirmation = later(leave, Math.min(confirm.seconds * 1_000, TIMER_MS_MAX));
      }
      const seconds = (performance.now() - first) / 1_000;
      // An inference that keeps the thread busy ends before the timer is heard.
      if (seconds > confirm.seconds) return leave();
      good += isGood ? 1 : 0;
      wrong = isGood ? 0 : wrong + 1;
      if (good >= confirm.inferences) this.#turn(() => this.#confirm(version));
      else if (wrong >= FAILURES_MAX) {
        const failure = `inference_failed: ${wrong} inferences in a row failed`;
        this.#turn(() => this.#rollBack(version, failure));
      }
    });
    log.info("model_active", { version });
    onNews();
  }

  /** Makes a move of the inference loop once; what follows meanwhile is of the same cause. */
  #turn(move: () => Promise<void>) {
    if (this.#isTurning) return;
    this.#isTurning = true;
    this.#turning = move()
      .catch((thrown: unknown) => this.#parts.log.error("move_failed", { error: thrown }))
      .finally(() => {
        this.#isTurning = false;
      });
  }

  async #confirm(version: string): Promise<void> {
    const { state, running, log, onNews } = this.#parts;
    const { update } = state.models;
    if (update?.manifest.version !== version || update.state !== "active") return;
    clearTimeout(this.#confirmation);
    running.listen(() => {});
    state.moveInAnyCase("confirmed", { starts: 0 });
    log.info("model_confirmed", { version });
    onNews();
  }

  async #rollBack(version: string, failure: string): Promise<void> {
    const { state, onNews } = this.#parts;
    const { update } = state.models;
    if (update?.manifest.version !== version || update.state !== "active") return;
    await this.#goBack(update, failure);
    onNews();
  }

  /** Leaves an unconfirmed model for the one before it. */
  async #goBack(update: Update, failure: string): Promise<void> {
    const { state, log } = this.#parts;
    const { former } = state.models;
    clearTimeout(this.#confirmation);
    log.warning("model_rolled_back", { version: update.manifest.version, failure });
    state.moveInAnyCase(
      "rolled_back",
      { failure: failure.slice(0, 500) },
      { current: former, former: null },
    );
    await this.#openCurrent();
  }

  /** Gives up on a model on which the agent kept ending. */
  async #giveUp(update: Update, { code, detail }: typeof CRASHED): Promise<void> {
    const { state } = this.#parts;
    const failure = `${code}: ${detail}`;
    if (update.state === "active") await this.#goBack(update, failure);
    else state.moveInAnyCase("failed", { failure });
    this.#parts.onNews();
  }

  /** Opens the unconfirmed model again after a restart, which is counted first. */
  async #openActive(update: Update): Promise<void> {
    const { state, opening } = this.#parts;
    const { manifest, slot } = update;
    state.moveInAnyCase("active", { starts: update.starts + 1 });
    try {
      if (!(await this.#holds(slot, manifest))) throw new Error("its file was changed");
      await this.#activate(await DeviceModel.open(this.#slotFile(slot), manifest, opening));
    } catch (thrown) {
      const failure = `trial_failed: ${(thrown as Error).message}`;
      await this.#goBack({ ...update, starts: update.starts + 1 }, failure);
    }
  }

  /**
   * Opens what predicts, unless it is open; a file that was spoilt is left for the other slot's.
   */
  async #openCurrent(): Promise<void> {
    const { state, running, opening, log } = this.#parts;
    const { current, former } = state.models;
    const wanted = current?.manifest.version;
    if (wanted !== undefined && running.model?.manifest.version === wanted) return;
    for (const one of [current, former]) {
      if (!one) continue;
      try {
        if (!(await this.#holds(one.slot, one.manifest))) throw new Error("its file was changed");
        const model = await DeviceModel.open(this.#slotFile(one.slot), one.manifest, opening);
        if (one === former) state.keepInAnyCase({ current: former, former: null }, "former_taken");
        return await running.use(model);
      } catch (thrown) {
        log.error("model_not_opened", { version: one.manifest.version, error: thrown });
        if (one === current) this.#fetchAgain();
      }
    }
    await running.use(null);
  }

  /** A confirmed model whose file is spoilt is fetched again, as if it had just been wanted. */
  #fetchAgain() {
    const { state } = this.#parts;
    const { update, current } = state.models;
    if (!current || update?.manifest.version !== current.manifest.version) return;
    if (update.state === "confirmed") {
      const again: Update = { ...update, state: "pending", starts: 0 };
      state.keepInAnyCase({ current: null, update: again }, "spoilt");
    }
  }
}

const CRASHED = {
  code: "crash_loop",
  detail: `the agent ended ${STARTS_MAX} times before the model was confirmed`,
};

const hungModel = ({ seconds }: Hang): typeof CRASHED => ({
  code: "model_hung",
  detail: `the model gave no answer within ${seconds} s, and the agent ended itself`,
});
