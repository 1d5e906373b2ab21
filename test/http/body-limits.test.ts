// How long a JSON body may be. Goal: whatever is longer is refused by its announced length, before
// any of it is read or parsed, on every route of every service; and where no length is announced,
// as soon as it is passed.

import { request } from "node:http";
import { beforeAll, expect, it } from "vitest";
import { API } from "../../edge/vision/base/api.ts";
import { ErrorBody } from "../../shared/errors.ts";
import { describeApi } from "../support/common-routes.ts";
import { isDevicesOwn } from "../support/everything.ts";
import { enrol, type TestDevice } from "../support/fleet-world.ts";
import { registerTestNode, type TestNode } from "../support/nodes.ts";
import { freshAddress, type Person, register } from "../support/vision.ts";
import { createWorld, type World } from "../support/world.ts";

interface JsonRoute {
  method: string;
  path: string;
  bytesMax: number;
}

let world: World;
let owner: Person;
let node: TestNode;
let device: TestDevice;
beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  owner = await register(world.urls.vision);
  node = await registerTestNode(world.urls.vision, owner);
  const made = await owner.ask("POST", "/devices", { name: "camera" });
  device = await enrol(world, String(made.body.enrolment_code));
});

async function jsonRoutes(url: string): Promise<JsonRoute[]> {
  const { paths } = await describeApi(url);
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, operation]) => {
      const { requestBody: body } = operation as {
        requestBody?: { content: Record<string, unknown>; "x-bytes-max"?: number };
      };
      if (!body?.content["application/json"]) return [];
      const bytesMax = body["x-bytes-max"] ?? 0;
      return [{ method: method.toUpperCase(), path, bytesMax }];
    }),
  );
}

/** Announces a body of so many bytes, sends the first of them, and reads the answer. */
const announced = (url: string, { method, path, bytesMax }: JsonRoute, authorization: string) =>
  new Promise<[number, string]>((resolve, reject) => {
    const full = path
      .replace("{device_id}", device.id)
      .replace(/\{\w+\}/g, () => crypto.randomUUID());
    const sent = request(url + full, {
      method,
      headers: {
        "Content-Type": "application/json",
        "Content-Length": bytesMax + 1,
        Authorization: authorization,
        "CF-Connecting-IP": freshAddress(),
      },
    });
    sent.on("error", reject);
    sent.on("response", (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("end", () => {
        sent.destroy();
        resolve([response.statusCode ?? 0, ErrorBody.parse(JSON.parse(text)).code]);
      });
    });
    sent.write("{");
  });

it("is bounded on every route, by what its description says", async () => {
  const tokens = {
    vision: `Bearer ${owner.tokens.access_token}`,
    console: `Bearer ${world.operatorToken}`,
  };
  for (const service of ["vision", "console"] as const) {
    const url = world.urls[service];
    const routes = await jsonRoutes(url);
    expect(routes.length).toBeGreaterThan(service === "vision" ? 40 : 2);
    // Side by side: each waits a moment for a body that does not come.
    const answers = routes.map(async (route) => {
      const isNodes = route.path.startsWith(`${API}/node/`);
      const isDevices = isDevicesOwn(route.path.slice(API.length));
      const token = isNodes
        ? node.headers.Authorization
        : isDevices
          ? `Bearer ${device.api.token}`
          : tokens[service];
      const answer = await announced(url, route, token ?? "");
      expect([route.path, ...answer]).toEqual([route.path, 413, "body_too_large"]);
    });
    await Promise.all(answers);
    const bounds = new Map(routes.map(({ path, bytesMax }) => [path, bytesMax]));
    if (service === "vision") {
      expect(bounds.get(`${API}/auth/login`)).toBe(16 * 1024);
      expect(bounds.get(`${API}/import`)).toBe(32 * 1024 * 1024);
    }
  }
});

it("is bounded also where its length is not announced, and taken up to there", async () => {
  const login = async (bytes: number) => {
    const body = JSON.stringify({ email: "nobody@example.com", password: "wrong" });
    const response = await fetch(`${world.urls.vision}${API}/auth/login`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "CF-Connecting-IP": freshAddress() },
      body: new Blob([body.padEnd(bytes)]).stream(),
      duplex: "half",
    } as RequestInit);
    return response.status;
  };
  expect(await login(16 * 1024)).toBe(401);
  expect(await login(16 * 1024 + 1)).toBe(413);
});

it("of a form is let pass where it is refused, so that its sender reads why", async () => {
  const { paths } = await describeApi(world.urls.vision);
  const forms = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { requestBody }]) => {
      const content = (requestBody as { content?: object } | undefined)?.content ?? {};
      return "multipart/form-data" in content ? [{ method: method.toUpperCase(), path }] : [];
    }),
  );
  expect(forms.length).toBeGreaterThan(12);
  const body = new FormData();
  body.append("file", new Blob([new Uint8Array(12 * 1024 * 1024)]), "noise.bin");
  for (const { method, path } of forms) {
    const full = path.replace("{device_id}", device.id).replace(/\{\w+\}/g, "nobody");
    const response = await fetch(world.urls.vision + full, { method, body });
    const { code } = ErrorBody.parse(await response.json());
    expect([path, response.status, code]).toEqual([path, 401, "unauthorized"]);
  }
});
