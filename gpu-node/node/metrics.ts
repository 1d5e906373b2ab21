// `/metrics` of the node: what its processes counted since it began, and how they stand now.

import { gauge, type Metric } from "../../shared/metrics.ts";
import type { Capabilities } from "../../shared/tasks/node-protocol.ts";
import { residentBytes } from "../base/processes.ts";
import { tally } from "../base/tally.ts";
import { cachedBytes } from "../objects/cache.ts";
import { type GpuMemory, readGpuMemory } from "./gpu-memory.ts";
import type { ChildSettings } from "./messages.ts";
import type { Worker } from "./worker.ts";
import type { WorkerGauges } from "./worker-figures.ts";

/** What looking costs a program or many reads of the disk is looked at no more often. */
const LOOK_MS_MIN = 5_000;

/** What the metrics tell of. */
export interface NodeMetricsOptions {
  capabilities: Capabilities;
  settings: Pick<ChildSettings, "cacheDir" | "cacheBytesMax" | "modelsBytesMax">;
  /** Environment of programs that are asked. */
  environment: Readonly<Record<string, string>>;
  /** Milliseconds of a clock that only goes on. */
  elapsed(): number;
  worker(): Pick<Worker, "gauges">;
}

/** Gives every metric of a node whenever it is called. */
export function nodeMetrics(options: NodeMetricsOptions): () => Promise<Metric[]> {
  const { capabilities, settings, environment, elapsed } = options;
  const hasGpu = capabilities.device.kind === "cuda";
  const gpus = lookedAt(elapsed, () => (hasGpu ? readGpuMemory(environment) : []));
  const cached = lookedAt(elapsed, () => cachedBytes(settings.cacheDir));
  return async () => {
    const stands = options.worker().gauges();
    return [
      ...tally.metrics(),
      ...workerMetrics(stands),
      gauge(
        "vantage_node_models_limit_bytes",
        "What the models of the serving process may take.",
        single(settings.modelsBytesMax),
      ),
      ...memoryMetrics(stands, await gpus()),
      ...objectMetrics(await cached(), settings.cacheBytesMax),
      gauge("vantage_node_build_info", "1, of the node's release, device and torch.", [
        {
          labels: {
            version: capabilities.version,
            device: capabilities.device.name,
            torch: capabilities.engine?.torch ?? "",
            torch_source: capabilities.engine?.source ?? "",
          },
          value: 1,
        },
      ]),
    ];
  };
}

/** A look that is remembered for a while. Who asks while one looks gets the same look. */
function lookedAt<Result>(elapsed: () => number, look: () => Result | Promise<Result>) {
  let last: { at: number; result: Promise<Result> } | undefined;
  return (): Promise<Result> => {
    const now = elapsed();
    if (!last || now - last.at >= LOOK_MS_MIN) {
      const mine = { at: now, result: (async () => look())() };
      last = mine;
      // What failed is looked at anew by whoever asks next.
      mine.result.catch(() => {
        if (last === mine) last = undefined;
      });
      return mine.result;
    }
    return last.result;
  };
}

const single = (value: number) => [{ value }];

function workerMetrics(stands: WorkerGauges): Metric[] {
  const { since, lastHeartbeatAt, draining, socketOpen, lineOpen } = stands;
  return [
    gauge(
      "vantage_node_tasks_running",
      "Tasks that run on this node.",
      [...stands.running].map(([kind, value]) => ({ labels: { kind }, value })),
    ),
    gauge(
      "vantage_node_models_resident",
      "Models that are open in its processes; one that is open in two of them counts twice.",
      single(stands.modelsResident),
    ),
    gauge(
      "vantage_node_models_resident_bytes",
      "What they take of the memory, or of the GPU's, by the estimate that keeps them.",
      single(stands.modelsResidentBytes),
    ),
    gauge("vantage_node_start_time_seconds", "When the node began.", single(since / 1_000)),
    gauge(
      "vantage_node_last_heartbeat_timestamp_seconds",
      "When the service last answered a heartbeat; none before the first.",
      lastHeartbeatAt === null ? [] : single(lastHeartbeatAt / 1_000),
    ),
    gauge(
      "vantage_node_draining",
      "1 while the node takes no more and ends what it has, else 0.",
      single(Number(draining)),
    ),
    gauge(
      "vantage_node_socket_open",
      "1 while the service can say that there is work, else 0.",
      single(Number(socketOpen)),
    ),
    gauge("vantage_node_line_open", "1 while its direct line is open, else 0.", [
      { value: Number(lineOpen) },
    ]),
  ];
}

function memoryMetrics({ children }: WorkerGauges, gpus: readonly GpuMemory[]): Metric[] {
  const byRole = Map.groupBy(children, ({ role }) => role);
  const bytesOf = (pids: readonly number[]) =>
    pids.reduce((sum, pid) => sum + residentBytes(pid), 0);
  return [
    gauge(
      "vantage_node_process_resident_memory_bytes",
      "Memory of the supervisor, and of the child processes of each role.",
      [
        { labels: { process: "supervisor" }, value: bytesOf([process.pid]) },
        ...[...byRole].map(([role, own]) => ({
          labels: { process: role },
          value: bytesOf(own.map(({ pid }) => pid)),
        })),
      ],
    ),
    gauge(
      "vantage_node_gpu_memory_used_bytes",
      "Memory of a GPU that is in use, by whichever program.",
      gpus.map(({ index, usedBytes }) => ({ labels: { gpu: index }, value: usedBytes })),
    ),
    gauge(
      "vantage_node_gpu_memory_total_bytes",
      "Memory that a GPU has.",
      gpus.map(({ index, totalBytes }) => ({ labels: { gpu: index }, value: totalBytes })),
    ),
  ];
}

const objectMetrics = (bytes: number, bytesMax: number): Metric[] => [
  gauge("vantage_node_cache_bytes", "What cached objects take on the disk.", single(bytes)),
  gauge("vantage_node_cache_limit_bytes", "What they may take.", single(bytesMax)),
];
