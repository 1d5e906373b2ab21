// The container recipe, as far as it shows without a container engine: what it copies is there, its
// ports are the spec's, and the command it runs takes its arguments.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ROOT } from "../../edge/local/state.ts";

const read = (name: string) => readFileSync(join(ROOT, "edge/local/container", name), "utf8");
const dockerfile = read("Dockerfile").replaceAll(/\\\n\s*/g, " ");
const instructions = dockerfile.split("\n").filter((line) => /^[A-Z]+ /.test(line));
const of = (name: string) =>
  instructions
    .filter((line) => line.startsWith(`${name} `))
    .map((line) => line.slice(name.length + 1));

describe("the container recipe", () => {
  it("listens on 8001 inside and is published on 8000, as the spec says", () => {
    const environment = Object.fromEntries(
      of("ENV")
        .join(" ")
        .split(/\s+/)
        .map((pair) => pair.split("=")),
    );
    expect(environment).toMatchObject({ VANTAGE_HOST: "0.0.0.0", VANTAGE_MARKETS_PORT: "8001" });
    expect(of("EXPOSE").join(" ").split(" ")).toContain("8001");
    expect(read("compose.yaml")).toContain('- "8000:8001"');
    expect(read("compose.yaml")).toContain("SERVICE_API_URL: http://vantage:8001");
  });

  it("serves the operator console on 3000, inside and on the host", () => {
    expect(of("ENV").join(" ")).toMatch(/\bVANTAGE_CONSOLE_PORT=3000\b/);
    expect(of("EXPOSE").join(" ").split(" ")).toContain("3000");
    expect(read("compose.yaml")).toContain('- "3000:3000"');
    const usage = readFileSync(join(ROOT, "edge/local/start.txt"), "utf8");
    expect(usage).toMatch(/read API, default 8000\b/);
    expect(usage).toMatch(/operator console, default 3000\b/);
  });

  it("copies only what is there, and no state, secret or build of this machine", () => {
    const copied = of("COPY").flatMap((line) =>
      line
        .replace(/--\S+ /, "")
        .split(" ")
        .slice(0, -1),
    );
    expect(copied.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
    const ignored = read("Dockerfile.dockerignore").split("\n");
    expect(ignored).toEqual(expect.arrayContaining([".vantage", ".dev.vars", "**/node_modules"]));
  });

  it("installs and starts by commands that there are", () => {
    // What npm kept of its downloads would be a quarter of the image.
    expect(of("RUN")).toContain("node edge/local/bootstrap.mjs install && rm -rf ~/.npm");
    const command = [...of("ENTRYPOINT"), ...of("CMD").filter((line) => line.startsWith("["))];
    const words = command.flatMap((line) => JSON.parse(line) as string[]);
    const usage = readFileSync(join(ROOT, "edge/local/start.txt"), "utf8");
    const options = words.slice(words.indexOf("start") + 1);
    expect(options).toEqual(["--no-apt", "--no-gpu-node"]);
    for (const option of options) expect(usage).toContain(option);
    expect(of("USER")).toEqual(["node"]);
  });
});
