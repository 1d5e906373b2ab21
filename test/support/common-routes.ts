// Tests every route of a service gets, from its own OpenAPI description: errors are one shape, ids
// go in and out, and whoever is not let in learns nothing else.

import { join } from "node:path";
import { expect, it } from "vitest";
import type { Description, Operation } from "../../edge/http/example-request.ts";
import { ErrorBody } from "../../shared/errors.ts";

const GOLDEN = join(import.meta.dirname, "../golden");

export interface CommonOptions {
  /** Base URL of the service; read when the test runs. */
  url: () => string;
  /** Paths that need no credential. */
  open: readonly string[];
  /** Paths that need none and are no GET. */
  openOthers?: readonly string[];
  /** A request's headers with a wrong credential. */
  wrong: Record<string, string>;
}

/** The description that a service serves. */
export const describeApi = async (url: string) =>
  (await (await fetch(`${url}/openapi.json`)).json()) as Description & {
    paths: Record<string, Record<string, Operation>>;
  };

/** The golden copy of a service's description; `npm run golden` rewrites it. */
export function commonRouteTests(
  golden: string,
  { url, open, openOthers = [], wrong }: CommonOptions,
) {
  const everyRoute = async () =>
    Object.entries((await describeApi(url())).paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => ({
        path: path.replace(/\{\w+\}/g, crypto.randomUUID()),
        declared: path,
        method: method.toUpperCase(),
      })),
    );

  it("describes its interface as the golden copy does", async () => {
    const description = `${JSON.stringify(await describeApi(url()), null, 2)}\n`;
    await expect(description).toMatchFileSnapshot(join(GOLDEN, golden));
  });

  it("refuses every guarded route without a valid credential, with 401 and nothing else", async () => {
    const routes = (await everyRoute()).filter(
      ({ declared }) => ![...open, ...openOthers].includes(declared),
    );
    expect(routes.length).toBeGreaterThan(0);
    for (const { path, method } of routes) {
      for (const headers of [{}, wrong]) {
        const response = await fetch(url() + path, { method, headers });
        expect([method, path, response.status]).toEqual([method, path, 401]);
        expect(ErrorBody.parse(await response.json()).code).toBe("unauthorized");
      }
    }
  });

  it("keeps open routes open", async () => {
    for (const path of [...open, "/docs", "/openapi.json"]) {
      expect([path, (await fetch(url() + path)).status]).toEqual([path, 200]);
    }
  });

  it("answers the caller's request id and JSON errors on any path", async () => {
    const headers = { "X-Request-Id": "my-trace" };
    const response = await fetch(`${url()}/no/such/path`, { headers });
    expect(response.status).toBe(404);
    expect(response.headers.get("X-Request-Id")).toBe("my-trace");
    const body = ErrorBody.parse(await response.json());
    expect(body).toMatchObject({ code: "route_not_found", request_id: "my-trace" });
  });
}
