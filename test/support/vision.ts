// People at the vision service: each with an account, tokens and an address of its own, so that no
// test is throttled by another.

import { expect } from "vitest";
import { API } from "../../edge/vision/base/api.ts";
import { type Role, TokenPair, User } from "../../shared/wire/vision.ts";
import { goldenHeaderProblems } from "./headers.ts";

export const PASSWORD = "correct horse battery staple";

export interface Reply {
  status: number;
  headers: Headers;
  /** The parsed body; null where it is none. */
  body: Record<string, unknown>;
}

export interface Person {
  id: string;
  email: string;
  tokens: TokenPair;
  /** Sends JSON, or a body as it is. */
  ask(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<Reply>;
  /** Takes new tokens, after a change of role. */
  renew(): Promise<void>;
}

const problemsOf = goldenHeaderProblems("vision");

let addresses = 0;
/** An address nobody else has. */
export const freshAddress = () => `198.51.${(addresses >> 8) & 255}.${addresses++ & 255}`;

export async function ask(
  url: string,
  method: string,
  path: string,
  {
    body,
    headers = {},
    redirect = "follow",
  }: { body?: unknown; headers?: Record<string, string>; redirect?: RequestInit["redirect"] } = {},
): Promise<Reply> {
  const isStream = body instanceof ReadableStream;
  const raw =
    isStream || body instanceof FormData || body instanceof Uint8Array || typeof body === "string";
  const response = await fetch(url + API + path, {
    method,
    redirect,
    headers: {
      ...(body === undefined || raw ? {} : { "Content-Type": "application/json" }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: raw ? (body as string) : JSON.stringify(body) }),
    ...(isStream ? { duplex: "half" } : {}),
  });
  expect([method, path, ...problemsOf(method, API + path, response)]).toEqual([method, path]);
  const text = await response.text();
  const json = response.headers.get("Content-Type")?.includes("json");
  return {
    status: response.status,
    headers: response.headers,
    body: (json ? JSON.parse(text) : { text }) as Record<string, unknown>,
  };
}

/** Asks for a new account. */
export const askToRegister = (
  url: string,
  email: string,
  {
    invitation,
    headers = { "CF-Connecting-IP": freshAddress() },
  }: { invitation?: string | undefined; headers?: Record<string, string> } = {},
) =>
  ask(url, "POST", "/auth/register", {
    body: { email, password: PASSWORD, display_name: email.split("@")[0], invitation },
    headers,
  });

/** A new account. The first one of a world is admin of its default workspace. */
export async function register(
  url: string,
  email = `${crypto.randomUUID()}@example.com`,
  invitation?: string,
) {
  const address = { "CF-Connecting-IP": freshAddress() };
  const registered = await askToRegister(url, email, { invitation, headers: address });
  expect(registered.status).toBe(201);
  const person: Person = {
    id: "",
    email,
    tokens: TokenPair.parse(registered.body),
    ask: (method, path, body, headers = {}) =>
      ask(url, method, path, {
        body,
        headers: { Authorization: `Bearer ${person.tokens.access_token}`, ...address, ...headers },
      }),
    renew: async () => {
      const { refresh_token } = person.tokens;
      const reply = await ask(url, "POST", "/auth/refresh", { body: { refresh_token } });
      expect(reply.status).toBe(200);
      person.tokens = TokenPair.parse(reply.body);
    },
  };
  person.id = User.parse((await person.ask("GET", "/auth/me")).body).id;
  return person;
}

export interface Tenant {
  workspaceId: string;
  member: Person;
}

/** A workspace of its own with one member in this role, made by the installation's admin. */
export async function newTenant(url: string, admin: Person, role: Role): Promise<Tenant> {
  const name = `workspace ${crypto.randomUUID()}`;
  const made = await admin.ask("POST", "/admin/workspaces", { name });
  expect(made.status).toBe(201);
  const workspaceId = String(made.body.workspace_id);
  return { workspaceId, member: await newMember(url, admin, workspaceId, role) };
}

/** Another member of a workspace, who is in no other. */
export async function newMember(url: string, admin: Person, workspaceId: string, role: Role) {
  const member = await register(url);
  const { body } = await member.ask("GET", "/auth/me");
  for (const { workspace_id } of User.parse(body).workspaces) {
    const left = { workspace_id, role: null };
    // Given first: who has no role anywhere is seen by no admin.
    const given = await admin.ask("PATCH", `/admin/users/${member.id}`, {
      workspace_id: workspaceId,
      role,
    });
    expect(given.status).toBe(200);
    if (workspace_id === workspaceId) continue;
    const removed = await admin.ask("PATCH", `/admin/users/${member.id}`, left);
    expect(removed.status).toBe(200);
  }
  await member.renew();
  return member;
}
