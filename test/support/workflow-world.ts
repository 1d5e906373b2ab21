// A world for saved workflows: people of each role, and the room's own parts at an instant that the
// test chooses.

import type { Parts } from "../../edge/vision/base/parts.ts";
import { Secret } from "../../shared/secret.ts";
import { WorkflowDetail } from "../../shared/wire/workflows.ts";
import type { WorkflowDefinition } from "../../shared/workflow/definition.ts";
import { createFleetWorld, type FleetWorld } from "./fleet-world.ts";
import type { Api } from "./scripted-node.ts";
import { VISION_SEALING_KEY } from "./world.ts";

/** Sends its input to an address. */
export const sending = (parameters: Record<string, unknown> = {}): WorkflowDefinition => ({
  version: "1.0",
  inputs: [{ name: "payload", kind: "json" }],
  steps: [
    {
      id: "send",
      type: "webhook@1",
      // What tests add is JSON.
      parameters: {
        payload: "$inputs.payload",
        url: "https://example.com/hook",
        ...(parameters as Record<string, string>),
      },
    },
  ],
  outputs: [{ name: "sent", value: "$steps.send.sent" }],
});

export interface WorkflowWorld extends FleetWorld {
  engineer: Api;
  viewer: Api;
  /** Saves a workflow of a fresh slug. */
  make(definition?: unknown, more?: Record<string, unknown>): Promise<WorkflowDetail>;
  /** What the room works with, at an instant, and what it logs. */
  partsAt(now: number, more?: Partial<Parts>): Parts & { logs: string[] };
}

export async function createWorkflowWorld(): Promise<WorkflowWorld> {
  const fleet = await createFleetWorld();
  const { world } = fleet;
  const engineer = await fleet.member("engineer");
  const viewer = await fleet.member("viewer");
  let slugs = 0;
  return {
    ...fleet,
    engineer,
    viewer,
    make: async (definition = sending(), more = {}) => {
      const body = { slug: `flow-${++slugs}`, name: "A flow", definition, ...more };
      return WorkflowDetail.parse(await engineer.ok("POST", "/workflows", body));
    },
    partsAt: (now, more = {}) => {
      const logs: string[] = [];
      const note = (event: string, fields: object = {}) =>
        logs.push(
          `${event} ${JSON.stringify(fields, (_, value) => String(value?.stack ?? value))}`,
        );
      return {
        database: world.visionDatabase,
        bucket: world.media,
        doorbell: world.objects("DOORBELL"),
        limits: { workspaceBytesMax: 1_000_000_000, accountBytesMax: 1_000_000_000 },
        sealing: [new Secret(VISION_SEALING_KEY)],
        outbound: { hosts: ["127.0.0.1"], resolve: async () => [] },
        clock: () => now,
        log: { info: note, warning: note, error: note },
        logs,
        ...more,
        // What the room does not use is left out.
      } as unknown as Parts & { logs: string[] };
    },
  };
}
