// The page for who writes workflows: its definition passes the check, its table has every block.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { expect, it } from "vitest";
import { BLOCKS } from "../../../shared/workflow/blocks.ts";
import { checkWorkflow } from "../../../shared/workflow/check.ts";
import { WorkflowDefinition } from "../../../shared/workflow/definition.ts";

const ROOT = resolve(import.meta.dirname, "../../..");
const page = readFileSync(resolve(ROOT, "edge/vision/workflows/README.md"), "utf8");

it("shows a definition that can be run as it stands", () => {
  const [, shown = ""] = /```json\n([\s\S]*?)```/.exec(page) ?? [];
  const definition = WorkflowDefinition.parse(JSON.parse(shown));
  const { problems, plan } = checkWorkflow(definition, { blocks: BLOCKS, workflows: new Map() });
  expect(problems).toEqual([]);
  expect(plan).toMatchObject({ runsOn: "node", secrets: ["yard_key"], models: ["active"] });
});

it("names every block in its section, and says which need a node", () => {
  const rows = [...page.matchAll(/^\| (\w+) \| (`.*) \|$/gm)].map(([, section, blocks = ""]) => [
    section,
    [...blocks.matchAll(/`(\w+)`(\*?)/g)].map(([, name, star]) => `${name}@1${star}`).sort(),
  ]);
  const bySection = Map.groupBy(BLOCKS.values(), ({ section }) => section);
  const known = [...bySection].map(([section, blocks]) => [
    section,
    blocks.map(({ type, runsOn }) => `${type}${runsOn === "node" ? "*" : ""}`).sort(),
  ]);
  expect(Object.fromEntries(rows)).toEqual(Object.fromEntries(known));
});
