// The page for who writes workflows: its commands, as somebody pastes them after those of the first
// page, come to what it says.

import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { API } from "../../../edge/vision/base/api.ts";
import { register } from "../../support/vision.ts";
import { createWorld } from "../../support/world.ts";

const ROOT = resolve(import.meta.dirname, "../../..");
const shellOf = (file: string) =>
  [...readFileSync(resolve(ROOT, file), "utf8").matchAll(/^```sh\n(.*?)^```/gms)]
    .map(([, block = ""]) => block)
    .join("");

it("takes a workflow from nothing to served by its commands", async () => {
  const world = await createWorld({ services: ["vision"] });
  const { tokens } = await register(world.urls.vision);
  const functions = shellOf("README.md").match(/^(get|post)\(\) .*$/gm) ?? [];
  const script = [...functions, shellOf("edge/vision/workflows/README.md")].join("\n");
  const { stdout } = await promisify(execFile)("bash", ["-euc", script], {
    env: {
      ...process.env,
      V: world.urls.vision + API,
      T: tokens.access_token,
    },
  });
  const answers = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(answers).toMatchObject([
    { ok: true, problems: [], outputs: [{ name: "people", kind: "integer" }] },
    { outputs: { people: 1 }, version: null, served_by: "worker" },
    { slug: "people", version: 1, deployed_version: null },
    { slug: "people", deployed_version: 1 },
    { outputs: { people: 1 }, version: 1 },
    { runs: expect.any(Number) },
  ]);
});
