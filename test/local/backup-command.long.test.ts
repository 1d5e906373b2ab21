// `npm run backup` on state folders, as a newcomer runs it. Goal: a folder whose stack is lost, or
// whose bucket is, comes back by the commands of the README alone.

import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { withDatabase } from "../../edge/local/backup/backups.ts";
import { withLocal } from "../../edge/local/backup/sources.ts";
import { startStack } from "../../edge/local/stack.ts";
import { ROOT, stateAt } from "../../edge/local/state.ts";
import { commit } from "../../edge/markets/store/commit.ts";

const folder = mkdtempSync(join(tmpdir(), "vantage-backups-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const [first, second, copies] = ["first", "second", "copies"].map((name) => join(folder, name));

function backup(state: string, ...args: string[]) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [join(ROOT, "edge/local/backup.ts"), ...args],
    { encoding: "utf8", env: { ...process.env, VANTAGE_STATE: state } },
  );
  return { status, text: stdout + stderr };
}

it("backs a folder up, fills another, and refills its bucket when that is lost", async () => {
  if (!first || !second || !copies) throw new Error("three folders have names");
  // The folder's own user passes through it: Postgres refuses to be root.
  const state = stateAt(first);
  spawnSync("chmod", ["711", folder]);
  const stack = await startStack({
    state,
    host: "127.0.0.1",
    ports: { markets: 0, console: 0, vision: 0 },
    sandbox: false,
    gpuNode: false,
    environment: {},
    onStep() {},
    onTold() {},
    onServicesRestarted() {},
  });
  await withLocal(state, async (sources) => {
    const markets = sources.find(({ name }) => name === "markets");
    const bucket = markets?.bucket?.objects.asBinding();
    if (!markets || !bucket) throw new Error("no markets");
    await withDatabase(markets, (database) =>
      commit(
        { database, bucket, pause: async () => {}, inlineRowsMax: 0 },
        {
          library: "power.demand",
          symbol: "erco",
          valueColumns: ["value"],
          rows: [{ datetime: 0, instrumentId: "power.demand.erco", values: [1] }],
          covered: { from: 0, to: 1 },
          reconstructed: false,
          sandbox: true,
          runId: "run",
          partition: "1970-01-01",
          sourceUrl: "sandbox://provider",
        },
      ),
    );
  });
  await stack.stop();

  const made = backup(first, "--to", copies);
  expect(made).toMatchObject({ status: 0, text: expect.stringContaining("1 objects") });
  expect(backup(first, "restore", "--from", copies)).toMatchObject({
    status: 1,
    text: expect.stringContaining("holds a stack's data"),
  });
  mkdirSync(second);
  copyFileSync(join(first, "credentials.json"), join(second, "credentials.json"));
  const restored = backup(second, "restore", "--from", copies);
  expect(restored).toMatchObject({ status: 0, text: expect.stringContaining("1 of 1 objects") });

  rmSync(join(second, "workers"), { recursive: true });
  const lost = backup(second, "verify", "--json");
  expect(lost.status).toBe(1);
  expect(JSON.parse(lost.text)).toMatchObject({
    markets: { missing: [expect.stringContaining("power.demand/erco")], named: 1 },
    vision: { missing: [] },
  });
  expect(backup(second, "restore", "--from", copies, "--only", "objects").status).toBe(0);

  // What cannot be restored leaves no half store behind.
  rmSync(join(copies, "objects"), { recursive: true });
  const third = join(folder, "third");
  expect(backup(third, "restore", "--from", copies)).toMatchObject({
    status: 1,
    text: expect.stringContaining("the backup lacks objects/"),
  });
  expect(existsSync(join(third, "postgres"))).toBe(false);
});
