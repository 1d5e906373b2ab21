// What a node tells Prometheus of itself that a test machine does not have, or only now and then:
// the memory of its GPUs, by a program that answers as the driver's does, and its cache.

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { nodeMetrics } from "../../../gpu-node/node/metrics.ts";
import { gaugesOf } from "../../../gpu-node/node/worker-figures.ts";
import { metricsText } from "../../../shared/metrics.ts";
import { conventionProblems, readExposition } from "../../support/exposition.ts";
import { CAPABILITIES } from "../../support/nodes.ts";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "vantage-metrics-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

/** A driver's program that prints this, and notes each time that it is asked. */
function driver(prints: string, status = 0) {
  const path = join(dir, "nvidia-smi");
  writeFileSync(
    path,
    `#!/bin/sh\necho "$@" >> ${join(dir, "asked")}\nprintf '${prints}'\nexit ${status}\n`,
  );
  chmodSync(path, 0o755);
}

let now = 0;
const scraper = (kind: "cpu" | "cuda") =>
  nodeMetrics({
    capabilities: { ...CAPABILITIES, device: { kind, name: "NVIDIA H200", count: 2 } },
    settings: { cacheDir: join(dir, "cache"), cacheBytesMax: 1_000, modelsBytesMax: 2_000 },
    environment: { PATH: `${dir}:/usr/bin:/bin` },
    elapsed: () => now,
    worker: () => ({
      gauges: () =>
        gaugesOf(
          {
            phase: "draining",
            socketOpen: true,
            line: { open: false },
            lastHeartbeatAt: 1_500_000_500,
          },
          {
            since: 1_500_000_000,
            slots: [
              { role: "general", slot: { pid: process.pid, loaded: [], loadedBytes: 0 } },
              { role: "general", slot: { pid: process.pid, loaded: ["a"], loadedBytes: 30 } },
              { role: "serving", slot: { pid: null, loaded: ["a", "b"], loadedBytes: 70 } },
            ],
            kinds: ["label", "label", "of another release"],
          },
        ),
    }),
  });
const scrape = async (metrics: ReturnType<typeof scraper>) =>
  readExposition(metricsText(await metrics()));

describe("a node's metrics", () => {
  it("tell each GPU's memory in bytes, asking the driver now and then only", async () => {
    driver("0, 1024, 143771\\n1, 0, 143771\\n");
    const metrics = scraper("cuda");
    const all = await scrape(metrics);
    expect(conventionProblems(all)).toEqual([]);
    const used = all.get("vantage_node_gpu_memory_used_bytes")?.samples;
    expect([...(used ?? [])]).toEqual([
      ['gpu="0"', 1024 * 1024 ** 2],
      ['gpu="1"', 0],
    ]);
    const total = all.get("vantage_node_gpu_memory_total_bytes")?.samples;
    expect(total?.get('gpu="1"')).toBe(143_771 * 1024 ** 2);
    driver("0, 2048, 143771\\n");
    await Promise.all([scrape(metrics), scrape(metrics)]);
    now += 5_000;
    const later = await scrape(metrics);
    const again = later.get("vantage_node_gpu_memory_used_bytes")?.samples;
    expect([...(again ?? [])]).toEqual([['gpu="0"', 2048 * 1024 ** 2]]);
  });

  it.each([
    ["prints nothing", "", 0],
    ["fails", "NVIDIA-SMI has failed", 9],
    ["knows no memory", "0, [N/A], [N/A]\\n", 0],
  ])("are without GPUs where the driver %s", async (_, prints, status) => {
    driver(prints, status);
    const all = await scrape(scraper("cuda"));
    expect(all.get("vantage_node_gpu_memory_used_bytes")?.samples.size).toBe(0);
    expect(all.get("vantage_node_draining")?.samples.get("")).toBe(1);
  });

  it("ask no driver on a node without a GPU, and know no kinds of other releases", async () => {
    driver("0, 1, 2\\n");
    const all = await scrape(scraper("cpu"));
    expect(all.get("vantage_node_gpu_memory_used_bytes")?.samples.size).toBe(0);
    expect([...(all.get("vantage_node_tasks_running")?.samples ?? [])]).toEqual([
      ['kind="label"', 2],
      ['kind="other"', 1],
    ]);
    expect(all.get("vantage_node_models_resident")?.samples.get("")).toBe(3);
    expect(all.get("vantage_node_models_resident_bytes")?.samples.get("")).toBe(100);
    expect(all.get("vantage_node_models_limit_bytes")?.samples.get("")).toBe(2_000);
    expect(all.get("vantage_node_start_time_seconds")?.samples.get("")).toBe(1_500_000);
  });

  it("sum the memory of processes by role, and what the cache takes on the disk", async () => {
    mkdirSync(join(dir, "cache/objects"), { recursive: true });
    for (const name of ["a", "b"]) writeFileSync(join(dir, "cache/objects", name), "12345");
    const all = await scrape(scraper("cpu"));
    const memory = all.get("vantage_node_process_resident_memory_bytes")?.samples;
    const own = memory?.get('process="supervisor"') ?? 0;
    expect(own).toBeGreaterThan(1_000_000);
    expect(memory?.get('process="general"') ?? 0).toBeGreaterThan(own);
    expect(memory?.has('process="serving"')).toBe(false);
    expect(all.get("vantage_node_cache_bytes")?.samples.get("")).toBe(10);
    expect(all.get("vantage_node_cache_limit_bytes")?.samples.get("")).toBe(1_000);
  });
});
