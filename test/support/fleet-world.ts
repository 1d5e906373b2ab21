// A world with devices: made by people, enrolled by their codes, and speaking the protocol over
// HTTP with their own tokens.

import { Device, EnrolledDevice } from "../../shared/wire/fleet.ts";
import type { Role } from "../../shared/wire/vision.ts";
import { type Api, apiAs, newProject, type Person } from "./scripted-node.ts";
import { freshAddress, newMember, newTenant, register } from "./vision.ts";
import { createWorld, type World, type WorldOptions } from "./world.ts";

/** A device that enrolled. */
export interface TestDevice {
  id: string;
  api: Api;
  /** The path of one of its own routes. */
  own(path: string): string;
}

/** What a device says of itself as it enrols. */
export const ABOUT = { agent_version: "1.0.0", platform: "linux-x64", runtime: "onnxruntime 1.30" };

export interface FleetWorld {
  world: World;
  admin: Person;
  workspaceId: string;
  projectId: string;
  /** A new device with its code. */
  made(more?: Record<string, unknown>): Promise<Device & { enrolment_code: string }>;
  enrolled(more?: Record<string, unknown>): Promise<TestDevice>;
  /** Somebody with a role in the workspace of the devices. */
  member(role: Role): Promise<Api>;
  /** Somebody in a workspace of their own. */
  stranger(role?: Role): Promise<Api & { workspaceId: string }>;
  /** A device as people see it. */
  device(id: string): Promise<Device>;
}

/** The token of a code that opens. */
export async function enrol(
  world: { urls: Pick<World["urls"], "vision"> },
  code: string,
): Promise<TestDevice> {
  const body = { code, ...ABOUT };
  const headers = { "CF-Connecting-IP": freshAddress() };
  const answer = await apiAs(world.urls.vision, "").ok("POST", "/devices/enrol", body, headers);
  const { device_id: id, token } = EnrolledDevice.parse(answer);
  return {
    id,
    api: apiAs(world.urls.vision, token),
    own: (path) => `/devices/${id}/${path}`,
  };
}

export async function createFleetWorld(options: Partial<WorldOptions> = {}): Promise<FleetWorld> {
  const world = await createWorld({ services: ["vision"], ...options });
  const operator = await register(world.urls.vision);
  const { id, email } = operator;
  const admin: Person = {
    ...apiAs(world.urls.vision, operator.tokens.access_token),
    id,
    email,
  };
  // Whoever makes a workspace is a member of it: what is made says where.
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  const workspaceId = me.workspaces[0]?.workspace_id ?? "";
  const { project_id: projectId } = await newProject(admin);
  let devices = 0;
  const made: FleetWorld["made"] = async (more = {}) => {
    const body = { name: `camera ${++devices}`, workspace_id: workspaceId, ...more };
    const { enrolment_code, ...device } = await admin.ok<Device & { enrolment_code: string }>(
      "POST",
      "/devices",
      body,
    );
    return { ...Device.parse(device), enrolment_code };
  };
  return {
    world,
    admin,
    workspaceId,
    projectId,
    made,
    enrolled: async (more) => enrol(world, (await made(more)).enrolment_code),
    member: async (role) => {
      const { tokens } = await newMember(world.urls.vision, operator, workspaceId, role);
      return apiAs(world.urls.vision, tokens.access_token);
    },
    stranger: async (role = "admin") => {
      const { member, workspaceId } = await newTenant(world.urls.vision, operator, role);
      return { ...apiAs(world.urls.vision, member.tokens.access_token), workspaceId };
    },
    device: async (id) => Device.parse(await admin.ok("GET", `/devices/${id}`)),
  };
}

/** A line of a log. */
export const line = (seq: number, more: Record<string, unknown> = {}) => ({
  seq,
  time: new Date(Date.UTC(2026, 0, 31, 5, 0, seq)).toISOString(),
  objects: [{ class: "person", confidence: 0.5, bbox: [1, 2, 30, 40] }],
  latency_ms: 12.5,
  ...more,
});

/** Lines of these numbers. */
export const lines = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => line(from + index));
