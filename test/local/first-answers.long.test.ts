// A newcomer's first minutes: the one command on an empty folder, the README's first answers as
// they are pasted, and values that were revised while he looked.

import { execFile } from "node:child_process";
import * as fs from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, expect, it } from "vitest";
import { ROOT, stateAt } from "../../edge/local/state.ts";
import { temporaryFolder } from "../support/postgres.ts";
import { allGone, processesOf, startStackProcess } from "../support/stack-process.ts";
import { steadyPorts } from "../support/steady-ports.ts";

/** Ten times what the first fill takes on idle cores. */
const LIMIT_MS = 1_200_000;

const [stateDir, out] = [temporaryFolder(), temporaryFolder()];
afterAll(() => {
  for (const { pid } of processesOf(stateDir)) process.kill(pid, "SIGKILL");
  for (const dir of [stateDir, out]) fs.rmSync(dir, { recursive: true, force: true });
});

/** The README's commands for a quant, against a read API of the test's. */
function quantsCommands(markets: string): string {
  const readme = fs.readFileSync(join(ROOT, "README.md"), "utf8");
  const block = readme.match(/\*\*A quant\*\*.*?```sh\n(.*?)```/s)?.[1] ?? "";
  return block.replaceAll("http://localhost:8000", markets);
}

it(
  "an empty folder answers the README's questions, and shows values that were revised",
  async () => {
    const ports = await steadyPorts(3);
    const stack = startStackProcess(stateDir, ports, ["--no-gpu-node"]);
    const markets = `http://127.0.0.1:${ports[0]}`;
    const series = `${markets}/series?library=power.demand&symbol=erco`;
    await stack.printed(/Vantage runs/);
    const env = { ...process.env, W: out };
    const pasted = await promisify(execFile)("bash", ["-ec", quantsCommands(markets)], { env });
    expect(pasted.stderr).toBe("");
    const [rows = "", vintages = "", before = ""] = pasted.stdout.trim().split("\n");
    expect(rows).toMatch(/"as_of":"[^"]+".*\}\]$/);
    expect(vintages).toMatch(/\}\]?.*$/);
    expect(before).toBe("[]");
    expect(fs.readFileSync(join(out, "erco.parquet")).subarray(0, 4).toString()).toBe("PAR1");

    const token = fs.readFileSync(stateAt(stateDir).metricsToken, "utf8").trim();
    for (const port of ports.slice(1)) {
      const metrics = (bearer: string) =>
        fetch(`http://127.0.0.1:${port}/metrics`, {
          headers: { Authorization: `Bearer ${bearer}` },
        });
      expect([(await metrics(token)).status, (await metrics("x")).status]).toEqual([200, 401]);
    }

    const REVISED = /have been revised since; both states are known: (\S+)/;
    await expect.poll(() => stack.output(), { timeout: LIMIT_MS }).toMatch(REVISED);
    const filled = stack.output().match(/add &as_of=(\S+) to the request/)?.[1] ?? "";
    const read = async (query: string) =>
      (await (await fetch(`${series}${query}`)).json()) as { timestamp: string; value: number }[];
    const [then, now] = [await read(`&as_of=${filled}`), await read("")];
    const known = new Map(then.map((row) => [row.timestamp, row.value]));
    const revised = now.filter((row) => (known.get(row.timestamp) ?? row.value) !== row.value);
    expect(revised.length).toBeGreaterThan(0);

    stack.child.kill("SIGTERM");
    expect(await stack.ended).toBe(0);
    await allGone(stateDir);
  },
  LIMIT_MS,
);
