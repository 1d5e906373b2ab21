import { expect, it } from "vitest";
import { performDuties } from "../../edge/http/duties.ts";
import { createLog } from "../../edge/http/log.ts";

it("performs every duty in order, whatever became of the others, and names what failed", async () => {
  const done: string[] = [];
  const failed: unknown[] = [];
  const log = { ...createLog("test"), error: (_: string, fields?: object) => failed.push(fields) };
  const error = new Error("no");
  await performDuties(log as ReturnType<typeof createLog>, {
    first: () => done.push("first"),
    throws: () => {
      throw error;
    },
    rejects: () => Promise.reject(error),
    last: async () => done.push("last"),
  });
  expect(done).toEqual(["first", "last"]);
  expect(failed).toEqual([
    { duty: "throws", error },
    { duty: "rejects", error },
  ]);
});
