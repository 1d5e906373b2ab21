// `npm run gpu-node`: a node in the foreground, until SIGTERM drains it or its token is refused.

import { readFileSync } from "node:fs";
import { availableParallelism, hostname } from "node:os";
import { join } from "node:path";
import { Secret } from "../shared/secret.ts";
import type { Capabilities, InstalledWeights } from "../shared/tasks/node-protocol.ts";
import { systemClock } from "../shared/time.ts";
import { createLog, type Log, outliveFullDisk, toStandardOutput } from "./base/log.ts";
import { findTools, type Tools } from "./media/ffmpeg.ts";
import { coresOfSlot, describeNode, offeredModels } from "./node/capabilities.ts";
import { type Config, parseConfig } from "./node/config.ts";
import { type Identity, lockFolder, readIdentity, writeIdentity } from "./node/identity.ts";
import { nodeMetrics } from "./node/metrics.ts";
import { Offer } from "./node/offer.ts";
import { connect, NodeRefusal, register, type Service } from "./node/service.ts";
import { type StatusPage, serveStatus } from "./node/status.ts";
import { startWorker, type Worker } from "./node/worker.ts";
import type { WorkerOptions } from "./node/worker-state.ts";
import { probeProvider } from "./onnx/provider-probe.ts";
import { listSegmenters } from "./segmenters/registry.ts";
import type { SegmenterInfo } from "./segmenters/segmenter.ts";
import { listWeights } from "./segmenters/weights.ts";
import { type EngineDescription, probeEngine } from "./training/engine-probe.ts";

/** What `bootstrap.mjs` prints too, before anything is installed. */
const USAGE = readFileSync(join(import.meta.dirname, "main.txt"), "utf8");

/** Exit status when the service does not know the node: starting again is of no use. */
const EXIT_REFUSED = 3;

export interface NodeParts {
  /** Program of the child processes. */
  childEntry: string;
  listSegmenters(modelsDir: string): Promise<SegmenterInfo[]>;
  /** What the training engine is here. */
  probeEngine(environment: Readonly<Record<string, string>>): Promise<EngineDescription>;
  /** What models are opened on, and why that is not a GPU. Default: what is tried. */
  probeProvider?: typeof probeProvider;
  /** Shorter times, for tests. */
  worker?: Pick<WorkerOptions, "heartbeatMs" | "idleMs" | "stallMs">;
  grace?: WorkerOptions["slot"]["grace"];
}

const REAL: NodeParts = {
  childEntry: join(import.meta.dirname, "node/child-main.ts"),
  listSegmenters,
  probeEngine,
};

/** Runs a node until it is stopped; returns the process's exit status. */
export async function runNode(
  environment: Readonly<Record<string, string | undefined>>,
  parts: NodeParts = REAL,
): Promise<number> {
  const config = parseConfig(environment, hostname());
  const log = createLog(toStandardOutput);
  const unlock = lockFolder(config.dir);
  const early = new AbortController();
  let worker: Worker | undefined;
  let page: StatusPage | null = null;
  let asked = 0;
  const onSignal = (signal: string) => {
    asked += 1;
    log.info("signal", { signal, asked });
    if (!worker) early.abort(new Error(`ended by ${signal}`));
    else if (asked === 1) worker.drain(config.drainSeconds * 1_000);
    else void worker.kill();
  };
  const signals = ["SIGTERM", "SIGINT", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, onSignal);
  try {
    const tools = await findTools(config.path, availableParallelism());
    const provider = await (parts.probeProvider ?? probeProvider)(config.childEnvironment);
    const capabilities = await capabilitiesOf(config, parts, { tools, provider });
    for (const sentence of capabilities.missing) log.warning("missing", { sentence });
    const { identity, service } = await introduce(config, capabilities, log, early.signal);
    const offer = new Offer(capabilities, async () =>
      offeredModels(
        await parts.listSegmenters(config.modelsDir),
        await listWeights(config.modelsDir),
      ),
    );
    const { name, url } = config;
    const node_id = identity.nodeId || null;
    // Nobody asks before the worker is there: it is started before anything else can happen.
    const read = () => ({
      name,
      node_id,
      url,
      capabilities: offer.capabilities,
      worker: (worker as Worker).status(),
    });
    const slot = slotOptions(config, parts, { tools, provider, capabilities });
    const metrics = nodeMetrics({
      capabilities,
      settings: slot.settings,
      environment: config.childEnvironment,
      elapsed: () => performance.now(),
      worker: () => worker as Worker,
    });
    page = config.statusPort ? await serveStatus(config.statusPort, { read, metrics }) : null;
    early.signal.throwIfAborted();
    worker = startWorker({
      service,
      offer,
      log,
      clock: systemClock,
      slot,
      ...parts.worker,
    });
    const { kinds, engine = null } = capabilities;
    log.info("node_started", { name, node_id, url, kinds, engine });
    const why = await worker.stopped;
    log.info("node_ended", { why });
    if (why === null) return 0;
    process.stderr.write(`The node stopped: ${why}\n`);
    return EXIT_REFUSED;
  } catch (thrown) {
    if (early.signal.aborted) return 0;
    if (!(thrown instanceof NodeRefusal)) throw thrown;
    process.stderr.write(`The service refused this node: ${thrown.message}\n`);
    return EXIT_REFUSED;
  } finally {
    page?.close();
    for (const signal of signals) process.off(signal, onSignal);
    unlock();
  }
}

function versionOf(): string {
  const text = readFileSync(join(import.meta.dirname, "../package.json"), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}

/** What was found out about the machine. */
interface Findings {
  tools: Tools | null;
  provider: Awaited<ReturnType<typeof probeProvider>>;
}

async function capabilitiesOf(config: Config, parts: NodeParts, { tools, provider }: Findings) {
  let segmenters: SegmenterInfo[] = [];
  let weights: InstalledWeights[] = [];
  let segmenterProblem: string | null = null;
  try {
    segmenters = await parts.listSegmenters(config.modelsDir);
    weights = await listWeights(config.modelsDir);
  } catch (thrown) {
    segmenterProblem = (thrown as Error).message;
  }
  const { slots, childEnvironment } = config;
  const version = versionOf();
  return describeNode({
    version,
    tools,
    segmenters,
    weights,
    segmenterProblem,
    slots,
    environment: childEnvironment,
    modelsBytesMax: config.modelsBytesMax,
    cudaProblem: provider.problem,
    engine: await parts.probeEngine(childEnvironment),
  });
}

function slotOptions(
  config: Config,
  parts: NodeParts,
  { tools, provider, capabilities }: Findings & { capabilities: Capabilities },
): WorkerOptions["slot"] {
  const setpriv = tools?.wrap.find((word) => word.endsWith("/setpriv")) ?? null;
  return {
    entry: parts.childEntry,
    environment: config.childEnvironment,
    setpriv,
    settings: {
      cacheDir: join(config.dir, "cache"),
      cacheBytesMax: config.cacheBytesMax,
      modelsDir: config.modelsDir,
      modelsBytesMax: capabilities.models_bytes_max,
      trainingDir: join(config.dir, "training"),
      cpuThreads: coresOfSlot(capabilities.cores, config.slots),
      device: capabilities.device.kind,
      modelDevice: provider.device,
      tools,
    },
    ...(parts.grace ? { grace: parts.grace } : {}),
  };
}

/**
 * Who this node is: by its token, else as this folder is known to the service, else by exchanging
 * the code, which is also tried when the service does not know the folder's identity any more.
 */
async function introduce(
  config: Config,
  capabilities: Capabilities,
  log: Log,
  signal: AbortSignal,
): Promise<{ identity: Identity; service: Service }> {
  const { url, dir, code, name, token } = config;
  const as = (identity: Identity) => ({
    identity,
    service: connect({ url, token: identity.token, log }),
  });
  if (token) return as({ nodeId: "", token });
  const kept = readIdentity(dir, url);
  if (kept && (!code || (await isKnown(as(kept).service)))) return as(kept);
  if (!code) {
    throw new Error(
      `the node is not registered at ${url}: set VANTAGE_NODE_CODE to a code of an admin ` +
        "(POST /api/v1/admin/nodes/codes)",
    );
  }
  const made = await register({ url, code, name, capabilities, log }, signal);
  const identity = { nodeId: made.node_id, token: new Secret(made.node_token) };
  writeIdentity(dir, url, identity);
  log.info("node_registered", { node_id: made.node_id });
  return as(identity);
}

/** False only when the service says so; one that is away is asked again by the worker. */
async function isKnown(service: Service): Promise<boolean> {
  try {
    await service.heartbeat({ tasks: [] });
    return true;
  } catch (thrown) {
    return !(thrown instanceof NodeRefusal);
  }
}

if (import.meta.main) {
  const [argument] = process.argv.slice(2);
  if (argument === "--help") process.stdout.write(USAGE);
  else if (argument !== undefined) {
    process.stderr.write(`it takes no ${argument}: the environment configures it; see --help\n`);
    process.exitCode = 2;
  } else {
    outliveFullDisk();
    runNode(process.env).then(
      (status) => process.exit(status),
      (thrown: unknown) => {
        process.stderr.write(`${(thrown as Error).message}\n`);
        process.exit(1);
      },
    );
  }
}
