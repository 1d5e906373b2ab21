// A device at work: it predicts whatever the service does, beats when it can, follows what is
// wanted of it, and hands its log over when it is heard. Each of these goes on without the others.

import { setTimeout as later } from "node:timers";
import { type Clock, DAY, iso } from "../../shared/time.ts";
import type { HeartbeatAnswer } from "../../shared/wire/fleet.ts";
import type { Log } from "../base/log.ts";
import type { Tools } from "../media/ffmpeg.ts";
import { pause } from "../objects/transfer.ts";
import type { DeviceConfig } from "./device-config.ts";
import type { DeviceModel, Look } from "./device-model.ts";
import { DeviceService, ServiceAway, ServiceRefusal } from "./device-service.ts";
import { DeviceStateFile, type OnStep } from "./device-state.ts";
import { type Enrolment, writeEnrolment } from "./enrolment.ts";
import { FiguresFile } from "./figures-file.ts";
import { Watchdog } from "./hang-watchdog.ts";
import { ImageOutbox } from "./image-outbox.ts";
import { imagesOf, type SourceImage } from "./image-source.ts";
import { LogRing } from "./log-ring.ts";
import { LogSender } from "./log-sender.ts";
import { readingsOf } from "./machine-readings.ts";
import { RunningModel } from "./running-model.ts";
import { SeenFiles } from "./seen-files.ts";
import { keepTrialImage } from "./trial-image.ts";
import { Updates } from "./updates.ts";

/** What a device saw is written to its disk so often, unless it is told otherwise. */
const FLUSH_MS = 5_000;
/** How long an image of a folder waits before it looks for a model again. */
const WAIT_MS = 250;
/** Part of the time between two heartbeats after which no further batch is handed over. */
const SYNC_SHARE = 0.8;
const REST_MS_MIN = 50;
/** News of the model is told so long after at the soonest. */
const NEWS_MS = 500;
const TOKEN_MS_MAX = 30 * DAY;
const KEYS_MS_MAX = DAY;

/** What an agent works with. */
export interface AgentParts {
  config: DeviceConfig;
  enrolment: Enrolment;
  agentVersion: string;
  tools: Tools | null;
  clock: Clock;
  log: Log;
  /** Hears of each move when it is on the disk. */
  onStep?: OnStep;
  /** Between two writings of what was seen; five seconds when omitted. */
  flushMs?: number | undefined;
}

/** A running agent. */
export class Agent {
  readonly #parts: AgentParts;
  readonly #service: DeviceService;
  readonly #ring: LogRing;
  readonly #sender: LogSender;
  readonly #outbox: ImageOutbox;
  readonly #running: RunningModel;
  readonly #updates: Updates;
  readonly #end = new AbortController();
  #enrolment: Enrolment;
  /** Wakes the loop of heartbeats before its time. */
  #wake = () => {};
  #keysSince = 0;
  #hasAskedForKeys = false;

  constructor(parts: AgentParts) {
    const { config, enrolment, log, onStep = () => {} } = parts;
    this.#parts = parts;
    this.#enrolment = enrolment;
    this.#service = new DeviceService(config.url, enrolment.deviceId, enrolment.token);
    this.#ring = new LogRing(`${config.dir}/logs`, config.logBytesMax);
    this.#running = new RunningModel(new FiguresFile(`${config.dir}/figures.json`));
    this.#outbox = new ImageOutbox(`${config.dir}/images`, config.images, log);
    this.#sender = new LogSender(this.#ring, this.#service, log);
    this.#updates = new Updates({
      dir: config.dir,
      agentVersion: parts.agentVersion,
      opening: {
        threads: config.threads,
        watchdog: new Watchdog(config.dir, config.lookSeconds),
      },
      modelBytesMax: config.modelBytesMax,
      enrolment: () => this.#enrolment,
      learn: (keys) => {
        if (JSON.stringify(keys) === JSON.stringify(this.#enrolment.keys)) return;
        this.#keep({ keys });
      },
      service: this.#service,
      state: new DeviceStateFile(config.dir, onStep),
      running: this.#running,
      log,
      onStep,
      onNews: () => void later(() => this.#wake(), NEWS_MS),
    });
  }

  #keep(change: Partial<Enrolment>) {
    const { config } = this.#parts;
    const changed = { ...this.#enrolment, ...change };
    writeEnrolment(config.dir, config.url, changed);
    this.#enrolment = changed;
  }

  /** Works until it is stopped. */
  async work(): Promise<void> {
    await this.#updates.start();
    const { flushMs = FLUSH_MS } = this.#parts;
    const flush = setInterval(() => this.#flush(), flushMs);
    try {
      await Promise.all([this.#predict(), this.#beat()]);
    } finally {
      clearInterval(flush);
      await this.#updates.stop();
      this.#ring.close();
    }
  }

  #flush() {
    try {
      this.#ring.flush();
      this.#running.flush();
      this.#updates.catchUp();
    } catch (thrown) {
      this.#parts.log.error("not_flushed", { error: thrown });
    }
  }

  /** Ends the agent in order; `work` resolves then. */
  stop(): void {
    this.#end.abort(new Error("the agent stops"));
    this.#wake();
  }

  /**
   * Predicts what the source gives. A source that fails for good is told, and nothing else ends.
   */
  async #predict(): Promise<void> {
    const { config, tools, log } = this.#parts;
    const { signal } = this.#end;
    const { source, fps, repeat } = config;
    if (source === null) return;
    try {
      // Who begins again at the end begins again at a start too.
      const seen = new SeenFiles(repeat ? null : `${config.dir}/seen.ndjson`, source);
      for await (const one of imagesOf({ source, fps, repeat, tools, seen, log, signal })) {
        await this.#look(one);
      }
    } catch (thrown) {
      if (!signal.aborted) log.error("source_failed", { error: thrown });
    }
  }

  async #look({ image, source, frame, done }: SourceImage): Promise<void> {
    const { config, log } = this.#parts;
    await keepTrialImage(config.dir, image).catch((error: unknown) =>
      log.warning("trial_image_not_kept", { error }),
    );
    // A file can wait for a model; what moves on cannot.
    while (frame === null && !this.#running.model) await pause(WAIT_MS, this.#end.signal);
    const looked = await this.#running.look(image);
    if (looked) await this.#note(looked, { image, source, frame });
    done();
  }

  /** Writes down what was seen, and keeps the image where that is uncertain. */
  async #note(
    looked: { model: DeviceModel; look: Look },
    { image, source, frame }: Omit<SourceImage, "done">,
  ): Promise<void> {
    const { clock, log } = this.#parts;
    const { manifest } = looked.model;
    const seq = this.#ring.append({
      time: iso(clock()),
      kind: "prediction",
      source,
      frame,
      objects: looked.look.objects.map((one) => ({
        class: one.class,
        confidence: one.confidence,
        bbox: [...one.bbox],
      })),
      latency_ms: looked.look.latencyMs,
      model_id: manifest.model_id,
      version: manifest.version,
    });
    const { bootId } = this.#ring;
    await this.#outbox
      .offer({ bootId, seq }, image, looked.look.objects)
      .catch((error: unknown) => log.warning("image_not_kept", { error }));
  }

  /** Beats at the interval that the service gives, and by its own while that is away. */
  async #beat(): Promise<void> {
    const { log } = this.#parts;
    const { signal } = this.#end;
    for (let failures = 0; !signal.aborted; ) {
      const begun = performance.now();
      let seconds = this.#enrolment.intervalSeconds * (0.9 + Math.random() / 5);
      try {
        const answer = await this.#heartbeat(signal);
        failures = 0;
        seconds = answer.next_s;
        if (answer.desired) await this.#askForKeys(signal);
        this.#updates.follow(answer.desired);
        await this.#refresh(signal);
        const until = begun + SYNC_SHARE * seconds * 1_000;
        await this.#sender.sync(until, signal);
        await this.#outbox.send(this.#service, until, signal);
      } catch (thrown) {
        if (signal.aborted) return;
        if (thrown instanceof ServiceAway || thrown instanceof ServiceRefusal) {
          const { message: reason } = thrown;
          if (failures % 10 === 0) log.warning("service_away", { reason, failures });
        } else {
          // A fault of this machine's, such as a full disk: the service is to hear of the device.
          log.error("beat_failed", { error: thrown });
        }
        failures += 1;
        if (thrown instanceof ServiceAway && thrown.afterMs !== null) {
          seconds = Math.max(seconds, thrown.afterMs / 1_000);
        }
      }
      await this.#rest(Math.max(REST_MS_MIN, begun + seconds * 1_000 - performance.now()));
    }
  }

  /** Waits for so long, or until there is news. */
  async #rest(milliseconds: number): Promise<void> {
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    await pause(milliseconds, AbortSignal.any([woken.signal, this.#end.signal])).catch(() => {});
    this.#wake = () => {};
  }

  #heartbeat(signal: AbortSignal): Promise<HeartbeatAnswer> {
    const { config, agentVersion, clock } = this.#parts;
    return this.#service.heartbeat(
      {
        ...readingsOf(config.dir),
        inference_rate: this.#running.rate(),
        agent_version: agentVersion,
        boot_id: this.#ring.bootId,
        model: this.#updates.report(),
        time: iso(clock()),
        log_dropped: this.#ring.dropped,
      },
      signal,
    );
  }

  /**
   * A device that enrolled before the service had keys gets them with its next token: it could
   * believe no manifest. Keys that it has are replaced by manifests alone.
   */
  async #askForKeys(signal: AbortSignal): Promise<void> {
    if (this.#enrolment.keys.length > 0 || this.#hasAskedForKeys) return;
    await this.#rotate(signal);
    this.#hasAskedForKeys = true;
  }

  async #rotate(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#parts;
    const { token, keys } = await this.#service.nextToken(signal);
    const known = this.#enrolment.keys.length > 0 ? {} : { keys };
    // Kept before it is used: the former one opens until then.
    this.#keep({ token, tokenSince: clock(), ...known });
    this.#service.use(token);
    log.info("token_rotated");
  }

  /** Takes a new token once a month, and asks for new keys once a day. */
  async #refresh(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#parts;
    const now = clock();
    if (now - this.#enrolment.tokenSince > TOKEN_MS_MAX) await this.#rotate(signal);
    if (this.#keysSince === 0) this.#keysSince = now;
    if (now - this.#keysSince > KEYS_MS_MAX) {
      this.#keysSince = now;
      await this.#updates.refresh(signal).catch((error: unknown) => {
        log.warning("keys_not_refreshed", { error });
      });
    }
  }
}
