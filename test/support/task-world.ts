// A vision world with people, nodes and the moves of the node protocol, for tests of the task room.

import { sql } from "drizzle-orm";
import { expect } from "vitest";
import { createLog } from "../../edge/http/log.ts";
import { API } from "../../edge/vision/base/api.ts";
import type { Parts } from "../../edge/vision/base/parts.ts";
import { source } from "../../edge/vision/tasks/objects.ts";
import { enqueue, type NewTask } from "../../edge/vision/tasks/queue/queue.ts";
import { ErrorBody } from "../../shared/errors.ts";
import { ClaimedTask, HeartbeatReply } from "../../shared/tasks/node-protocol.ts";
import { systemClock } from "../../shared/time.ts";
import { registerTestNode, type TestNode } from "./nodes.ts";
import { newTenant, type Person, register } from "./vision.ts";
import { createWorld, type World } from "./world.ts";

export const ABSENT = "00000000-0000-4000-8000-000000000000";
export const DONE = { outcome: "finished", result: {} };

export interface TaskWorld extends World {
  /** What the task room works with, on Node's side. */
  parts: Parts;
  workspace: string;
  admin: Person;
  engineer: Person;
  node: TestNode;
  /** Another node, which does frames only. */
  other: TestNode;
  url(path: string): string;
  asAdmin(path: string, method?: string): Promise<Response>;
  /** A task whose result is empty. */
  plain(more?: object): NewTask;
  /** Enqueues one and returns its id. */
  enqueued(more?: object): Promise<string>;
  claimed(by?: TestNode, kind?: string): Promise<ClaimedTask>;
  finish(task: ClaimedTask, outcome: unknown, by?: TestNode): Promise<Response>;
  verdict(task: ClaimedTask, by?: TestNode, fence?: number): Promise<string | undefined>;
  /** Entries of the audit log, the newest first. */
  auditOf(action: string): Promise<Record<string, unknown>[]>;
}

export const bearer = ({ tokens }: Person) => ({ Authorization: `Bearer ${tokens.access_token}` });

/** Status and code of a refusal. */
export const refusal = async (response: Response) => {
  const { code } = ErrorBody.parse(await response.json());
  return [response.status, code];
};

export async function createTaskWorld(
  environment: Record<string, string> = {},
): Promise<TaskWorld> {
  const world = await createWorld({ services: ["vision"], environment: { vision: environment } });
  const base = world.urls.vision;
  const admin = await register(base);
  const { workspaceId: workspace, member: engineer } = await newTenant(base, admin, "engineer");
  const node = await registerTestNode(base, admin);
  const other = await registerTestNode(base, admin, { name: "other", kinds: ["frames"] });
  const parts = {
    database: world.visionDatabase,
    doorbell: world.objects("DOORBELL"),
    clock: systemClock,
    log: createLog("test"),
  } as Parts;
  const url = (path: string) => base + API + path;
  const plain = (more: object = {}) => {
    const video = source(`ws/${workspace}/a`, 1);
    const payload = { video, video_id: "v", frames: [0], images: [] };
    return { kind: "frames", workspaceId: workspace, subject: "test", payload, ...more } as NewTask;
  };
  return {
    ...world,
    parts,
    workspace,
    admin,
    engineer,
    node,
    other,
    url,
    plain,
    asAdmin: (path, method = "GET") => fetch(url(path), { method, headers: bearer(admin) }),
    enqueued: async (more = {}) => {
      // Nobody waits for it, unless the test says so.
      const [task] = await enqueue(world.visionDatabase, [plain({ priority: 0, ...more })]);
      return task?.taskId as string;
    },
    claimed: async (by = node, kind = "frames") => {
      const response = await by.post("/node/claim", { kinds: [kind] });
      expect(response.status).toBe(200);
      return ClaimedTask.parse(await response.json());
    },
    finish: ({ task_id, fence }, outcome, by = node) =>
      by.post(`/node/tasks/${task_id}/finish`, { fence, outcome }),
    verdict: async (task, by = node, fence = task.fence) => {
      const body = { tasks: [{ task_id: task.task_id, fence }] };
      const response = await by.post("/node/heartbeat", body);
      return HeartbeatReply.parse(await response.json()).tasks[0]?.verdict;
    },
    auditOf: async (action) => {
      const { rows } = await world.visionDatabase.execute(sql`
        SELECT actor_id::text AS actor, subject, workspace_id::text AS workspace, before, after
          FROM audit_entry WHERE action = ${action}
         ORDER BY id DESC`);
      return rows;
    },
  };
}
