// Asking the read API of a test's world: for an answer of a shape, or for how it refuses.

import { expect } from "vitest";
import type { z } from "zod";
import { ErrorBody } from "../../shared/errors.ts";
import { goldenHeaderProblems } from "./headers.ts";
import type { World } from "./world.ts";

const problemsOf = goldenHeaderProblems("markets");

/** Asks the world that there is when a test runs. */
export function marketsReader(world: () => World) {
  const get = async (path: string, init: RequestInit = {}) => {
    const response = await fetch(world().urls.markets + path, init);
    expect([path, ...problemsOf(init.method ?? "GET", path, response)]).toEqual([path]);
    return response;
  };
  return {
    get,
    /** The body of a 200. */
    async read<Schema extends z.ZodType>(schema: Schema, path: string) {
      const response = await get(path);
      expect([path, response.status]).toEqual([path, 200]);
      return schema.parse(await response.json());
    },
    /** Status, code and detail of an error. */
    async refusal(path: string) {
      const response = await get(path);
      const { code, detail } = ErrorBody.parse(await response.json());
      return [response.status, code, detail];
    },
  };
}
