// The group `engine`: the training engine, built and tested with each torch that a machine may
// have: Debian's, torch's own wheel for the CPU, and the wheels of CUDA with their compiler.
// Each in a copy of this checkout, by the build and the tests of the product.

import * as fs from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { ROOT } from "../../edge/local/state.ts";
import { installWheels, isInstalled, REQUIREMENTS, WHEELS } from "../../edge/local/torch-wheels.ts";
import { execute } from "./environments.ts";
import type { Group, GroupContext } from "./group.ts";
import type { Outcome } from "./known.ts";

interface Torch {
  name: "debian" | "wheel" | "cuda";
  /** What TORCH_ROOT is, or why there is none. */
  root: string | { missing: string };
}

/** Of a checkout, what a copy has of its own. */
const NOT_COPIED = /^(node_modules|\.git|\.vantage)$/;

const Report = z.object({
  numPassedTests: z.number(),
  numPendingTests: z.number(),
  testResults: z.array(
    z.object({
      name: z.string(),
      message: z.string().default(""),
      status: z.string(),
      assertionResults: z.array(
        z.object({
          fullName: z.string(),
          status: z.string(),
          failureMessages: z.array(z.string()).default([]),
        }),
      ),
    }),
  ),
});

/** The group's checks: a line for each build, one for its tests, and one for each that fails. */
export const engine: Group = {
  run: async (context) => {
    const outcomes: Outcome[] = [];
    for (const torch of [debian(), ...(await wheels(context))])
      outcomes.push(...(await outcomesOf(torch, context)));
    return outcomes;
  },
};

function debian(): Torch {
  const isThere = fs.existsSync("/usr/include/ATen/ATen.h");
  return { name: "debian", root: isThere ? "/usr" : { missing: "no libtorch-dev here" } };
}

/** The wheels that `npm run engine` installed where they are those, else the group's own. */
async function wheels({ folder }: GroupContext): Promise<Torch[]> {
  const made: Torch[] = [];
  for (const [name, requirements] of [
    ["wheel", REQUIREMENTS.cpu],
    ["cuda", REQUIREMENTS.cuda],
  ] as const) {
    const own = isInstalled(WHEELS, requirements) ? WHEELS : join(folder, `torch-${name}`);
    try {
      await installWheels({
        requirements,
        folder: own,
        environment: { ...process.env, PIP_QUIET: "1" },
      });
      const [libraries] = fs.globSync(join(own, "lib/python3.*/site-packages/torch"));
      made.push({ name, root: libraries ?? { missing: `no torch in ${own}` } });
    } catch (thrown) {
      made.push({ name, root: { missing: (thrown as Error).message } });
    }
  }
  return made;
}

async function outcomesOf({ name, root }: Torch, context: GroupContext): Promise<Outcome[]> {
  const build = `engine/${name}/build`;
  if (typeof root !== "string") return [{ case: build, outcome: "skipped", detail: root.missing }];
  const copy = join(context.folder, name);
  copyCheckout(copy);
  const compilers = fs.globSync(join(root, "../nvidia/cu*/bin"));
  const env = { TORCH_ROOT: root, PATH: [...compilers, process.env.PATH].join(":") };
  const run = (command: readonly [string, ...string[]]) =>
    execute(command, { msMax: context.msLeft(), cwd: copy, env });
  const script =
    'import { ensureEngine } from "./edge/local/engine.mjs";' +
    'await ensureEngine("peers", { root: process.cwd() });';
  const ending = await run([process.execPath, "--input-type=module", "-e", script]);
  const said = await run([process.execPath, "gpu-node/training/engine-probe-main.ts"]);
  const described = said.output.split("\n").find((line) => line.startsWith("{")) ?? "";
  // A build for the CPU alone is no build of the torch with CUDA.
  const isWhole = name !== "cuda" || described.includes('"cudaKernels":true');
  if (ending.code !== 0 || !described.includes('{"engine"') || !isWhole)
    return [{ case: build, outcome: "failed", detail: `${ending.output}${described}` }];
  const built: Outcome = { case: build, outcome: "passed", detail: described };
  return [built, ...(await testOutcomes(name, copy, run))];
}

async function testOutcomes(
  name: string,
  copy: string,
  run: (command: readonly [string, ...string[]]) => ReturnType<typeof execute>,
): Promise<Outcome[]> {
  const file = join(copy, "report.json");
  fs.rmSync(file, { force: true });
  const vitest = join(copy, "node_modules/vitest/vitest.mjs");
  const { output } = await run([
    ...([process.execPath, vitest, "run", "test/native"] as const),
    ...["--reporter=json", `--outputFile=${file}`],
  ]);
  const tests = `engine/${name}/tests`;
  if (!fs.existsSync(file))
    return [{ case: tests, outcome: "failed", detail: output.slice(-2_000) }];
  const report = Report.parse(JSON.parse(fs.readFileSync(file, "utf8")));
  const failed = report.testResults.flatMap(({ name: path, status, message, assertionResults }) => {
    const own = assertionResults.filter((one) => one.status === "failed");
    if (status === "failed" && own.length === 0) return [{ title: path, detail: message }];
    return own.map((one) => ({ title: one.fullName, detail: one.failureMessages.join("\n") }));
  });
  const detail = `${report.numPassedTests} passed, ${report.numPendingTests} skipped`;
  return [
    { case: tests, outcome: failed.length > 0 ? "failed" : "passed", detail },
    ...failed.map(({ title, detail: why }): Outcome => {
      return { case: `engine/${name}/${title}`, outcome: "failed", detail: why.slice(0, 1_000) };
    }),
  ];
}

/** Brings a copy to what the checkout is; what was built in it stays. */
function copyCheckout(copy: string) {
  fs.mkdirSync(join(copy, "native"), { recursive: true });
  const stays = new Set(["node_modules", "native"]);
  for (const name of fs.readdirSync(copy)) if (!stays.has(name)) remove(join(copy, name));
  for (const name of fs.readdirSync(join(copy, "native")))
    if (name !== "build") remove(join(copy, "native", name));
  for (const name of fs.readdirSync(ROOT)) {
    if (NOT_COPIED.test(name)) continue;
    fs.cpSync(join(ROOT, name), join(copy, name), {
      recursive: true,
      preserveTimestamps: true,
      filter: (path) => path !== join(ROOT, "native/build"),
    });
  }
  const packages = join(copy, "node_modules");
  if (!fs.existsSync(packages)) fs.symlinkSync(join(ROOT, "node_modules"), packages);
}

const remove = (path: string) => fs.rmSync(path, { recursive: true, force: true });
