// What a file of tests of a node's tasks works with: one store for all of them, and for each test a
// folder and a context of its own.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach } from "vitest";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { type NodeService, startNodeService } from "./node-service.ts";
import { taskContext } from "./task-context.ts";

export interface NodeTasks {
  service: NodeService;
  dir: string;
  context: RunnerContext;
}

/** Makes it before each test of the file, and gives it to whom it belongs. */
export function beforeEachTask(name: string, give: (own: NodeTasks) => void): void {
  let service: NodeService;
  let own: NodeTasks;
  beforeAll(async () => {
    service = await startNodeService();
  });
  afterAll(() => service.close());
  beforeEach(async () => {
    const dir = mkdtempSync(join(tmpdir(), `vantage-${name}-`));
    own = { service, dir, context: await taskContext(service, dir) };
    give(own);
  });
  afterEach(async () => {
    await own.context.predictors.clear();
    rmSync(own.dir, { recursive: true, force: true });
  });
}
