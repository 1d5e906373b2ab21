// What a task of the tests works with: a cache and folders of its own, and the store of a service
// that speaks the node protocol.

import { join } from "node:path";
import { createLog } from "../../gpu-node/base/log.ts";
import { openCache } from "../../gpu-node/objects/cache.ts";
import { Predictors } from "../../gpu-node/serving/predictors.ts";
import { Encodings } from "../../gpu-node/tasks/encodings.ts";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { TOOLS } from "./clips.ts";
import type { NodeService } from "./node-service.ts";
import { openRectangles } from "./rectangles.ts";

const log = createLog(() => {});

/** A context whose files lie in the folder; targets are keys below `made/`. */
export async function taskContext(
  service: NodeService,
  dir: string,
  more: Partial<RunnerContext> = {},
): Promise<RunnerContext> {
  const segmenter = openRectangles();
  const cache = await openCache({ dir: join(dir, "cache"), bytesMax: 1e9, log });
  return {
    cache,
    tools: TOOLS,
    useSegmenter: (_, work) => work(segmenter),
    encodings: new Encodings(),
    predictors: new Predictors(cache, { cpuThreads: 2, device: "cpu", bytesMax: 1e9 }, log),
    progress: () => {},
    cancel: new AbortController().signal,
    pause: new AbortController().signal,
    address: async (written) => service.address(written),
    machine: {
      device: "cpu",
      // Test files share the cores already, and small images gain nothing by a second thread.
      cpuThreads: 1,
      trainingDir: join(dir, "training"),
    },
    log,
    ...more,
  };
}
