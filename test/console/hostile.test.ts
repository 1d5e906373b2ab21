// Every route of the operator API under hostile values, by an operator and by nobody; and every
// parameter of the pages' addresses, by somebody who is logged in.

import { beforeAll, expect, it } from "vitest";
import { describeApi } from "../support/common-routes.ts";
import {
  driveHostile,
  expectBounds,
  expectDeclared,
  replyOf,
  sentBody,
  TEXTS,
} from "../support/hostile.ts";
import { commitHours, createWorld, onlySchedules, type World } from "../support/world.ts";

let world: World;
let url: string;
let ids: Record<string, string>;
beforeAll(async () => {
  // No sandbox and no key: launched runs fail by themselves, which is all these routes need.
  world = await createWorld({ services: ["markets", "console"] });
  url = world.urls.console;
  await onlySchedules(world, []);
  const run = await world.operator.launch("grid_region", "2026-01-31");
  const range = { job: "grid_region", first: "2026-01-30", last: "2026-01-30" };
  const backfill = await world.operator.startBackfill(range);
  ids = {
    job: "grid_region",
    schedule: "grid_region",
    run_id: run,
    backfill_id: backfill.backfill_id,
  };
});

it("takes no value for a fault of its own, on any route, whoever asks", async () => {
  const document = await describeApi(url);
  const as =
    (credential: Record<string, string>) =>
    async ({ method, path, body, headers }: Parameters<Ask>[0]) =>
      replyOf(
        await fetch(url + path, {
          method,
          headers: { ...credential, "Content-Type": "application/json", ...headers },
          ...sentBody(body),
        }),
      );
  const answers = await driveHostile({
    document,
    fill: (path, given = {}) =>
      path.replace(/\{(\w+)\}/g, (_, name: string) => given[name] ?? ids[name] ?? "x"),
    ask: as({ Authorization: `Bearer ${world.operatorToken}` }),
    askStranger: as({}),
    others: { nobody: as({}) },
  });
  expect(answers.length).toBeGreaterThan(500);
  expectDeclared(answers, document);
  expectBounds(answers, document);
  expect(answers.filter(({ by, status }) => !by && status === 401)).toEqual([]);
}, 300_000);
type Ask = Parameters<typeof driveHostile>[0]["ask"];

/** The pages' addresses, the value of one parameter left out. */
const ADDRESSES = () => {
  const series = "/series?library=power.demand&symbol=erco";
  const range = ["instrument", "column", "start", "end", "as_of", "compare"];
  const named: [string, string[]][] = [
    ["/login", ["next"]],
    ["/pipelines/grid_region", ["last", "partition", "fragment"]],
    ["/schedules/grid_region", ["before"]],
    ["/alerts", ["after"]],
    ["/events", ["q", "level", "job", "from", "to", "after"]],
    ["/graph", ["label", "q", "instrument", "depth"]],
    ["/runs", ["job", "state", "trigger", "partition", "backfill", "after"]],
    ["/series", ["library", "symbol", "q", ...range]],
    [series, range],
    ["/timeline", ["day", "hour", "hours"]],
  ];
  const queries = named.flatMap(([path, names]) =>
    names.map((name) => `${path}${path.includes("?") ? "&" : "?"}${name}=`),
  );
  const things = ["runs", "backfills", "pipelines", "schedules", "assets"];
  return [...queries, ...things.map((thing) => `/${thing}/`)];
};

it("shows a page or says what is wrong, whatever its address holds", async () => {
  await commitHours(world, "erco", Date.parse("2026-01-31T00:00:00Z"), [41_234, 40_871]);
  const login = await fetch(`${url}/login`, {
    method: "POST",
    body: new URLSearchParams({ token: world.operatorToken }),
    redirect: "manual",
  });
  const headers = { Cookie: login.headers.get("Set-Cookie")?.split(";")[0] ?? "" };
  const answers: string[] = [];
  for (const address of ADDRESSES()) {
    for (const text of TEXTS) {
      const path = address + encodeURIComponent(text.toWellFormed());
      const { status } = await fetch(url + path, { headers, redirect: "manual" });
      answers.push(`${status} ${path.slice(0, 100)}`);
    }
  }
  const counts = Map.groupBy(answers, (answer) => answer.slice(0, 3));
  const told = [...counts].sort().map(([status, of]) => `${of.length} × ${status}`);
  console.info(`hostile values: ${answers.length} pages, ${told.join(", ")}`);
  expect(answers.filter((answer) => !/^(200|303|400|404|422) /.test(answer))).toEqual([]);
}, 300_000);
