// What readers get when the database is gone, and what a service answers that is misconfigured.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startWorkers, type Workers } from "../../edge/local/workers.ts";
import { ErrorBody } from "../../shared/errors.ts";
import { createWorld, silentUrl } from "../support/world.ts";

const folder = mkdtempSync(join(tmpdir(), "vantage-down-"));
const NOBODY_LISTENS = "postgresql://reader:hunter2@127.0.0.1:1/markets";

let workers: Workers;
const logs: string[] = [];
beforeAll(async () => {
  workers = await startWorkers({
    services: ["markets", "console", "vision"],
    host: "127.0.0.1",
    ports: { markets: 0, console: 0, vision: 0 },
    persistTo: join(folder, "workers"),
    s3: { accessKeyId: "test", secretAccessKey: "test" },
    bindings: {
      markets: { DATABASE_URL: NOBODY_LISTENS },
      console: {},
      vision: { DATABASE_URL: "hunter2" },
    },
    onLog: (line) => logs.push(line),
  });
});
afterAll(async () => {
  await workers.stop();
  rmSync(folder, { recursive: true, force: true });
});

describe("a store that does not answer", () => {
  it("gives 503 with Retry-After on data routes, and a degraded health that is still 200", async () => {
    const paths = [
      "/libraries",
      "/symbols?library=a",
      "/series?library=a&symbol=b",
      "/curve?commodity=natural_gas",
    ];
    for (const path of paths) {
      const response = await fetch(workers.urls.markets + path);
      expect([path, response.status, response.headers.get("Retry-After")]).toEqual([
        path,
        503,
        "5",
      ]);
      expect(ErrorBody.parse(await response.json()).code).toBe("store_unavailable");
    }
    const health = await fetch(`${workers.urls.markets}/healthz`);
    expect([health.status, await health.json()]).toMatchObject([200, { status: "degraded" }]);
  });
});

it("waits for no server that accepts and never answers", async () => {
  const silent = await createWorld({
    services: ["markets", "console"],
    environment: { markets: { DATABASE_URL: await silentUrl() } },
  });
  const patience = AbortSignal.timeout(5_000);
  const health = await fetch(`${silent.urls.markets}/healthz`, { signal: patience });
  expect([health.status, await health.json()]).toMatchObject([200, { status: "degraded" }]);
  expect(health.headers.get("Cache-Control")).toBe("no-store");
});

describe("a misconfigured service", () => {
  it("refuses everything, naming every missing key", async () => {
    const response = await fetch(`${workers.urls.console}/healthz`);
    const body = ErrorBody.parse(await response.json());
    expect([response.status, body.code]).toEqual([500, "bad_configuration"]);
    for (const key of ["DATABASE_URL: required", "OPERATOR_TOKEN: required"]) {
      expect(body.detail).toContain(key);
    }
  });

  it("never shows a value, in an answer or in a log", async () => {
    const text = await (await fetch(`${workers.urls.vision}/healthz`)).text();
    expect(text).toContain("DATABASE_URL: must be postgresql://");
    expect(text + logs.join("\n")).not.toContain("hunter2");
  });
});
