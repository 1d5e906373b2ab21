// A vision world with a tenant whose engineer uploads into a project, within limits small enough to
// be met.

import { expect } from "vitest";
import { mp4, type SentFile } from "./media.ts";
import { newTenant, type Person, type Reply, register, type Tenant } from "./vision.ts";
import { createWorld, type World } from "./world.ts";

export const UPLOAD_MAX = 40_000_000;
export const QUOTA = 400_000_000;

export interface UploadWorld {
  world: World;
  admin: Person;
  tenant: Tenant;
  engineer: Person;
  projectId: string;
  /** Every object there is. */
  stored(): Promise<{ key: string; size: number }[]>;
}

export async function createUploadWorld(): Promise<UploadWorld> {
  const world = await createWorld({
    services: ["vision"],
    environment: {
      vision: { UPLOAD_BYTES_MAX: String(UPLOAD_MAX), WORKSPACE_BYTES_MAX: String(QUOTA) },
    },
  });
  const admin = await register(world.urls.vision);
  const tenant = await newTenant(world.urls.vision, admin, "engineer");
  const engineer = tenant.member;
  const projectId = await newProject(engineer);
  const stored = async () =>
    (await world.media.list()).objects.map(({ key, size }) => ({ key, size }));
  return { world, admin, tenant, engineer, projectId, stored };
}

export async function newProject(person: Person, more: object = {}): Promise<string> {
  const made = await person.ask("POST", "/projects", { name: "clips", ...more });
  expect(made.status).toBe(201);
  return String(made.body.project_id);
}

/** Status and code of a refusal. */
export const code = ({ status, body }: Reply) => [status, body.code];

export const clip = (more: Partial<SentFile> = {}): SentFile => ({ content: mp4(), ...more });
