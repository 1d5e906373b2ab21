// `npm run device`: a device in the foreground, until SIGTERM ends it in order.

import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { Secret } from "../../shared/secret.ts";
import { type Clock, systemClock } from "../../shared/time.ts";
import { createLog, type Log, outliveFullDisk, toStandardOutput } from "../base/log.ts";
import { findTools } from "../media/ffmpeg.ts";
import { pause } from "../objects/transfer.ts";
import { runtimeName } from "../onnx/runtime.ts";
import { Agent } from "./agent.ts";
import { type DeviceConfig, parseDeviceConfig } from "./device-config.ts";
import { enrol, ServiceAway } from "./device-service.ts";
import type { OnStep } from "./device-state.ts";
import {
  type Enrolment,
  lockDevice,
  nonceFor,
  readEnrolment,
  replaceEnrolment,
} from "./enrolment.ts";

/** What `bootstrap.mjs` prints too, before anything is installed. */
const USAGE = readFileSync(join(import.meta.dirname, "device.txt"), "utf8");
const ENROL_MS = 5_000;

/** What tests run otherwise. */
export interface DeviceParts {
  onStep?: OnStep;
  clock?: Clock;
  /** Between two writings of what was seen to the disk. */
  flushMs?: number;
}

/** Runs a device until it is ended; resolves then. */
export async function runDevice(
  environment: Readonly<Record<string, string | undefined>>,
  args: readonly string[] = [],
  { onStep = () => {}, clock = systemClock, flushMs }: DeviceParts = {},
): Promise<void> {
  const config = parseDeviceConfig(environment, args);
  const log = createLog(toStandardOutput, { service: "device" });
  const unlock = lockDevice(config.dir);
  const early = new AbortController();
  let agent: Agent | null = null;
  const onSignal = (signal: string) => {
    log.info("signal", { signal });
    if (agent) agent.stop();
    else early.abort(new Error(`ended by ${signal}`));
  };
  const signals = ["SIGTERM", "SIGINT", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, onSignal);
  try {
    const tools = await findTools(config.path, availableParallelism());
    if (!tools) log.warning("missing", { sentence: "no ffmpeg: folders of images only" });
    const agentVersion = versionOf();
    const enrolment = await introduce(config, { agentVersion, clock, log }, early.signal);
    early.signal.throwIfAborted();
    const parts = { config, enrolment, agentVersion, tools, clock, log, onStep, flushMs };
    agent = new Agent(parts);
    log.info("device_started", { device_id: enrolment.deviceId, url: config.url, agentVersion });
    await agent.work();
    log.info("device_ended");
  } catch (thrown) {
    if (!early.signal.aborted) throw thrown;
  } finally {
    for (const signal of signals) process.off(signal, onSignal);
    unlock();
  }
}

function versionOf(): string {
  const text = readFileSync(join(import.meta.dirname, "../../package.json"), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}

/** Who this device is: as its folder knows, else by trading its code, until that is answered. */
async function introduce(
  config: DeviceConfig,
  { agentVersion, clock, log }: { agentVersion: string; clock: Clock; log: Log },
  signal: AbortSignal,
): Promise<Enrolment> {
  const { dir, url, code } = config;
  const kept = readEnrolment(dir, url);
  if (kept) return kept;
  if (!code) {
    throw new Error(
      `the device is not enrolled at ${url}: give it the code of an engineer (POST ` +
        "/api/v1/devices) as VANTAGE_DEVICE_CODE or --code",
    );
  }
  const body = {
    code: code.reveal(),
    agent_version: agentVersion,
    platform: `${process.platform}-${process.arch}`,
    runtime: runtimeName(),
    nonce: nonceFor(dir, url, code),
  };
  for (;;) {
    try {
      const made = await enrol(url, body, signal);
      const enrolment: Enrolment = {
        deviceId: made.device_id,
        token: new Secret(made.token),
        tokenSince: clock(),
        intervalSeconds: made.interval_s,
        keys: made.manifest_keys,
      };
      replaceEnrolment(dir, url, enrolment);
      log.info("device_enrolled", { device_id: made.device_id });
      return enrolment;
    } catch (thrown) {
      signal.throwIfAborted();
      if (!(thrown instanceof ServiceAway)) throw thrown;
      log.warning("service_away", { reason: thrown.message });
      await pause(Math.max(ENROL_MS, thrown.afterMs ?? 0), signal);
    }
  }
}

if (import.meta.main) {
  const args = process.argv.slice(2);
  if (args.includes("--help")) process.stdout.write(USAGE);
  else {
    outliveFullDisk();
    runDevice(process.env, args).then(
      () => process.exit(0),
      (thrown: unknown) => {
        process.stderr.write(`${(thrown as Error).message}\n`);
        process.exit(1);
      },
    );
  }
}
