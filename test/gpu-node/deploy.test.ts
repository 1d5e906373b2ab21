// The recipes by which a node is run: the systemd unit and the container, as far as they show
// without systemd and a container engine. What they run, read and copy is there, a stop drains
// once, and disk and log are bounded.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { parseConfig } from "../../gpu-node/node/config.ts";

const ROOT = join(import.meta.dirname, "../..");
const read = (path: string) => readFileSync(join(ROOT, path), "utf8");
const folder = "gpu-node/deploy";

/** After a drain's time, so long for the last reports: `FINISH_MS_MAX` of the worker, and more. */
const REPORT_SECONDS = 12;

/** The commands of package.json's scripts that start the same file. */
const commands = Object.values(JSON.parse(read("package.json")).scripts as Record<string, string>);
const script = (name: string) => {
  const command = `node edge/local/bootstrap.mjs ${name}`;
  expect(commands).toContain(`exec ${command}`);
  return command;
};

const secondsOf = (text: string) =>
  [...text.matchAll(/(\d+)(min|s)?/g)].reduce(
    (sum, [, count, unit]) => sum + Number(count) * (unit === "min" ? 60 : 1),
    0,
  );

/** Keys of the node's configuration, or a failure that names those that are none. */
function configOf(environment: Record<string, string>) {
  const known = read("gpu-node/node/config.ts");
  for (const name of Object.keys(environment).filter((key) => key.startsWith("VANTAGE_")))
    expect(known).toContain(`  ${name}:`);
  return parseConfig({ VANTAGE_URL: "http://localhost:8787", ...environment }, "name");
}

describe("the systemd unit", () => {
  const lines = read(`${folder}/vantage-node.service`)
    .split("\n")
    .filter((line) => /^\w+=/.test(line));
  const of = (key: string) =>
    lines.filter((line) => line.startsWith(`${key}=`)).map((line) => line.slice(key.length + 1));
  const environment = Object.fromEntries(
    of("Environment").map((pair) => pair.split(/=(.*)/).slice(0, 2)),
  );

  it("runs what npm run gpu-node does, after installing what that takes", () => {
    expect(of("ExecStart")).toEqual([`/usr/bin/env ${script("gpu-node")} --no-apt`]);
    expect(of("ExecStartPre")).toEqual([
      "/usr/bin/env node edge/local/bootstrap.mjs install gpu-node",
    ]);
    const [folderOfState] = of("StateDirectory");
    expect(configOf(environment).dir).toBe(`/var/lib/${folderOfState}`);
    expect(of("ReadWritePaths")).toEqual(of("WorkingDirectory"));
  });

  it("drains by one SIGTERM, waits for that, and does not start what is refused", () => {
    // By default every process gets the signal, and the node gets it twice.
    expect(of("KillMode")).toEqual(["mixed"]);
    const { drainSeconds } = configOf(environment);
    expect(secondsOf(of("TimeoutStopSec")[0] ?? "")).toBeGreaterThan(drainSeconds + REPORT_SECONDS);
    expect(read("gpu-node/main.ts")).toContain("const EXIT_REFUSED = 3;");
    expect([of("Restart"), of("RestartPreventExitStatus")]).toEqual([["always"], ["3"]]);
  });

  it("bounds its log and its cache", () => {
    const [name] = of("LogNamespace");
    expect(read(`${folder}/journald@${name}.conf`)).toMatch(/^SystemMaxUse=\d+M$/m);
    expect(configOf(environment).cacheBytesMax).toBe(Number(environment.VANTAGE_NODE_CACHE_BYTES));
  });
});

describe("the container recipe", () => {
  const instructions = read(`${folder}/Dockerfile`)
    .replaceAll(/\\\n\s*/g, " ")
    .split("\n")
    .filter((line) => /^[A-Z]+ /.test(line));
  const of = (name: string) =>
    instructions
      .filter((line) => line.startsWith(`${name} `))
      .map((line) => line.slice(name.length + 1));
  const environment = Object.fromEntries(
    of("ENV")
      .join(" ")
      .split(/\s+/)
      .map((pair) => pair.split("=") as [string, string]),
  );
  const compose = parse(read(`${folder}/compose.yaml`));

  it("runs what npm run gpu-node does, with its packages alone", () => {
    const words = JSON.parse(of("ENTRYPOINT")[0] ?? "[]") as string[];
    // With -g the node would get the signal twice.
    expect(words.join(" ")).toBe(`tini -- ${script("gpu-node")} --no-apt`);
    expect(of("RUN")).toContain("node edge/local/bootstrap.mjs install gpu-node && rm -rf ~/.npm");
    expect(of("RUN").at(-1)).toContain(`${script("engine")} install --cuda --no-apt`);
    expect(of("USER")).toEqual(["node"]);
  });

  it("copies only what is there, and no state, secret or build of this machine", () => {
    const copied = of("COPY").flatMap((line) => line.split(" ").slice(1, -1));
    expect(copied.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
    const imported = [...read("edge/local/bootstrap.mjs").matchAll(/from "\.\/(.+)"/g)];
    for (const [, name] of imported) expect(copied).toContain(`edge/local/${name}`);
    const ignored = read(`${folder}/Dockerfile.dockerignore`);
    expect(ignored).toBe(read("edge/local/container/Dockerfile.dockerignore"));
  });

  it("keeps its state in the volume and is asked for its health on its own port", () => {
    const { dir, modelsDir, statusPort } = configOf(environment);
    expect(of("VOLUME")).toEqual([dir]);
    expect(modelsDir).toBe(`${dir}/models`);
    expect(read(`${folder}/Dockerfile`)).toContain(`http://127.0.0.1:${statusPort}/status.json`);
    expect(compose.services.node.volumes).toEqual([`state:${dir}`]);
  });

  it("is composed with a drain, a bounded log and no other disk", () => {
    const { node } = compose.services;
    const { VANTAGE_URL: _, ...given } = node.environment as Record<string, string>;
    const plain = Object.entries(given).filter(([, value]) => !value.includes("${"));
    const { drainSeconds, cacheBytesMax } = configOf(Object.fromEntries(plain));
    expect(secondsOf(node.stop_grace_period)).toBeGreaterThan(drainSeconds + REPORT_SECONDS);
    expect(cacheBytesMax).toBe(Number(given.VANTAGE_NODE_CACHE_BYTES));
    expect(node.logging.options).toEqual({ "max-size": "32m", "max-file": "8" });
    expect([node.read_only, node.tmpfs]).toEqual([true, ["/tmp:size=4g"]]);
    expect(existsSync(join(ROOT, node.build.dockerfile))).toBe(true);
    expect(join(folder, node.build.context)).toBe(".");
  });
});
