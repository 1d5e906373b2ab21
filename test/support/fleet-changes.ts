// Changes of devices, targets and secrets that leave an entry in the audit log, each ready to be
// asked for.

import { expect } from "vitest";
import type { Api } from "./scripted-node.ts";

/** A change that is ready to be asked for, and what its entry says. */
export interface Change {
  path: string;
  body?: unknown;
  subject: string | RegExp;
  /** Null where it is the installation's. */
  workspaceId: string | null;
  before: object | null;
  /** Null where it is gone. */
  after: object | null;
}

const TARGET = { kind: "vantage", url: "https://vision.example.com", endpoint: "gate" };
const SHOWN_TARGET = {
  name: "other",
  kind: "vantage",
  server: "vision.example.com",
  enabled: true,
};

/** What each change needs to be there before, by its operation; the world is asked for late. */
export function fleetChanges(
  world: () => { admin: Api; workspaceId: string },
): Record<string, () => Promise<Change>> {
  const device = () =>
    world().admin.ok<{ device_id: string; enrolment_code: string }>("POST", "/devices", {
      name: "gate",
      workspace_id: world().workspaceId,
    });
  const target = async (): Promise<string> => {
    const body = { name: "other", workspace_id: world().workspaceId, config: TARGET };
    return (await world().admin.ok<{ target_id: string }>("POST", "/targets", body)).target_id;
  };
  return {
    makeDevice: async () => ({
      path: "/devices",
      body: { name: "gate", workspace_id: world().workspaceId },
      subject: /^device:/,
      workspaceId: world().workspaceId,
      before: null,
      after: { name: "gate", expires_at: expect.any(String) },
    }),
    makeDeviceCode: async () => {
      const { device_id } = await device();
      return {
        path: `/devices/${device_id}/enrolment`,
        subject: `device:${device_id}`,
        workspaceId: world().workspaceId,
        before: null,
        after: { name: "gate", expires_at: expect.any(String) },
      };
    },
    enrolDevice: async () => {
      const { device_id, enrolment_code: code } = await device();
      return {
        path: "/devices/enrol",
        body: { code, agent_version: "1", platform: "linux-x64", runtime: "none" },
        subject: `device:${device_id}`,
        workspaceId: world().workspaceId,
        before: null,
        after: {
          name: "gate",
          platform: "linux-x64",
          agent_version: "1",
          enrolled_at: expect.any(String),
        },
      };
    },
    revokeDevice: async () => {
      const { device_id } = await device();
      return {
        path: `/devices/${device_id}/revoke`,
        subject: `device:${device_id}`,
        workspaceId: world().workspaceId,
        before: { name: "gate", revoked_at: null },
        after: { name: "gate", revoked_at: expect.any(String) },
      };
    },
    deleteDevice: async () => {
      const { device_id } = await device();
      return {
        path: `/devices/${device_id}`,
        subject: `device:${device_id}`,
        workspaceId: world().workspaceId,
        before: { name: "gate" },
        after: null,
      };
    },
    changeFleetSettings: async () => ({
      path: "/devices/settings",
      body: { workspace_id: world().workspaceId, hot_c: 75 },
      subject: `fleet:${world().workspaceId}`,
      workspaceId: world().workspaceId,
      before: { hot_c: expect.any(Number), low_battery: 15, webhook: false },
      after: { hot_c: 75, low_battery: 15, webhook: false },
    }),
    addTarget: async () => ({
      path: "/targets",
      body: { name: "other", workspace_id: world().workspaceId, config: TARGET },
      subject: /^target:/,
      workspaceId: world().workspaceId,
      before: null,
      after: SHOWN_TARGET,
    }),
    changeTarget: async () => {
      const id = await target();
      return {
        path: `/targets/${id}`,
        body: { enabled: false },
        subject: `target:${id}`,
        workspaceId: world().workspaceId,
        before: SHOWN_TARGET,
        after: { ...SHOWN_TARGET, enabled: false },
      };
    },
    deleteTarget: async () => {
      const id = await target();
      return {
        path: `/targets/${id}`,
        subject: `target:${id}`,
        workspaceId: world().workspaceId,
        before: SHOWN_TARGET,
        after: null,
      };
    },
    setWorkflowSecret: async () => {
      const name = `receiver-${crypto.randomUUID()}`;
      return {
        path: `/workflows/secrets/${name}`,
        body: { value: "hidden", workspace_id: world().workspaceId },
        subject: `secret:${name}`,
        workspaceId: world().workspaceId,
        before: null,
        after: { name },
      };
    },
    deleteWorkflowSecret: async () => {
      const { admin, workspaceId } = world();
      const body = { value: "hidden", workspace_id: workspaceId };
      await admin.ok("PUT", "/workflows/secrets/spare", body);
      return {
        path: `/workflows/secrets/spare?workspace_id=${workspaceId}`,
        subject: "secret:spare",
        workspaceId,
        before: { name: "spare" },
        after: null,
      };
    },
  };
}
