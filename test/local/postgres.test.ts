// The embedded Postgres: as root in a container whose capabilities are bounded as container engines
// do, and kept running.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { keepPostgres } from "../../edge/local/postgres.ts";
import { prepareState, ROOT, stateAt } from "../../edge/local/state.ts";
import { temporaryFolder } from "../support/postgres.ts";

const CONTAINER =
  "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service," +
  "+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap";
const isRoot = process.getuid?.() === 0;
const passable = (path: string): boolean =>
  path === "/" || ((fs.statSync(path).mode & 0o001) !== 0 && passable(dirname(path)));
const runs = isRoot && passable(ROOT);
if (!runs) console.warn("SKIPPED: needs root, and a checkout that others may pass through");

describe.skipIf(!runs)("as root without the capability to search every folder", () => {
  const program = `
    import { startPostgres } from "${ROOT}/edge/local/postgres.ts";
    const [dataDir, logFile] = process.argv.slice(1);
    const server = await startPostgres({ dataDir, logFile, password: "p" });
    await server.stop();
    process.stdout.write("started and stopped");`;

  function start(closed: boolean) {
    const state = stateAt(temporaryFolder());
    prepareState(state);
    if (closed) fs.chmodSync(state.dir, 0o700);
    const node = [process.execPath, "--input-type=module-typescript", "-e", program];
    const files = [state.postgres, join(state.logs, "postgres.log")];
    const result = spawnSync("setpriv", [`--bounding-set=${CONTAINER}`, ...node, ...files], {
      encoding: "utf8",
    });
    fs.rmSync(state.dir, { recursive: true, force: true });
    return result;
  }

  it("runs where the folders can be passed through", () => {
    const { stdout, stderr } = start(false);
    expect([stdout.trim(), stderr]).toEqual(["started and stopped", ""]);
  });

  it("says which folder is in the way, and what to do, where they cannot", () => {
    const { status, stderr } = start(true);
    expect([status, stderr]).toEqual([
      1,
      expect.stringMatching(/cannot pass through .*chmod o\+x/),
    ]);
  });
});

describe("a server that is kept running", () => {
  it("makes no new database where its folder is away, and takes up the one that comes back", async () => {
    const state = stateAt(temporaryFolder());
    prepareState(state);
    const told: string[] = [];
    const server = await keepPostgres({
      dataDir: state.postgres,
      logFile: join(state.logs, "postgres.log"),
      password: "p",
      onTold: (sentence) => told.push(sentence),
    });
    const said = (words: string) => expect.poll(() => told.join("\n")).toContain(words);
    const away = `${state.postgres}.away`;
    try {
      const [pid] = fs.readFileSync(join(state.postgres, "postmaster.pid"), "utf8").split("\n");
      fs.renameSync(state.postgres, away);
      process.kill(Number(pid), "SIGKILL");
      await said("holds no database");
      expect(fs.existsSync(state.postgres)).toBe(false);
      fs.renameSync(away, state.postgres);
      await said("Postgres runs again");
    } finally {
      await server.stop();
      fs.rmSync(state.dir, { recursive: true, force: true });
    }
  });
});
