import { NeonDbError } from "@neondatabase/serverless";
import { expect, it } from "vitest";
import { performDuties, performEach } from "../../edge/http/duties.ts";
import { createLog } from "../../edge/http/log.ts";

it("performs every duty in order, whatever became of the others, and names what failed", async () => {
  const done: string[] = [];
  const failed: unknown[] = [];
  const log = { ...createLog("test"), error: (_: string, fields?: object) => failed.push(fields) };
  const error = new Error("no");
  const outcome = await performDuties(log as ReturnType<typeof createLog>, {
    first: () => done.push("first"),
    throws: () => {
      throw error;
    },
    rejects: () => Promise.reject(error),
    last: async () => done.push("last"),
  });
  expect(done).toEqual(["first", "last"]);
  expect(outcome).toEqual({ succeeded: ["first", "last"], failed: ["throws", "rejects"] });
  expect(failed).toEqual([
    { duty: "throws", error },
    { duty: "rejects", error },
  ]);
});

it("leaves the rest to the next minute where the database is silent, and not where it refuses", async () => {
  const done: string[] = [];
  const log = createLog("test");
  const failing = (code?: string) => () => {
    const cause = Object.assign(new NeonDbError("no"), { code });
    throw new Error("failed", { cause });
  };
  const refused = { refused: failing("57014"), next: () => done.push("after a refusal") };
  await performDuties(log, refused);
  const silent = { silent: failing(), next: () => done.push("after silence") };
  // What was not performed is no success.
  expect(await performDuties(log, silent)).toEqual({ succeeded: [], failed: ["silent"] });
  expect(done).toEqual(["after a refusal"]);
});

it("performs a duty for each item, and ends it where the database is silent alone", async () => {
  const failed: unknown[] = [];
  const log = { ...createLog("test"), error: (_: string, fields?: object) => failed.push(fields) };
  const perform = async (thrown: Error) => {
    const done: number[] = [];
    const each = { duty: "items", items: [1, 2, 3, 4], atOnce: 2 };
    await performEach(log as ReturnType<typeof createLog>, each, async (item) => {
      if (item === 2) throw thrown;
      done.push(item);
    });
    return done;
  };
  const error = new Error("no");
  expect(await perform(error)).toEqual([1, 3, 4]);
  expect(failed).toEqual([{ duty: "items", error }]);
  await expect(perform(new NeonDbError("no"))).rejects.toThrow("no");
});
