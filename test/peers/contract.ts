// The group `contract`: the three OpenAPI documents against their live services, by schemathesis,
// by the clients that three generators make of them, and by Spectral's rules.

import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { COMPILER, heyApiClients } from "./contract-hey-api.ts";
import { describeServices, headerOf, type ServiceDescription } from "./contract-services.ts";
import { ensurePackages, execute } from "./environments.ts";
import { type Group, type GroupContext, runScript } from "./group.ts";
import type { Outcome } from "./known.ts";
import { startServices } from "./services.ts";

/** Random examples an operation, after those that cover each constraint of its schema. */
const EXAMPLES: Readonly<Record<ServiceDescription["name"], number>> = {
  markets: 10,
  console: 10,
  vision: 3,
};
const PACKAGES_MS_MAX = 90_000;

export const contract: Group = {
  async run(context) {
    const services = await startServices();
    try {
      const described = await describeServices(services);
      const all = join(services.folder, "peers.json");
      writeFileSync(all, JSON.stringify(described));
      // Calls come first: schemathesis changes what it finds.
      const clients = await Promise.all([
        runScript(context, {
          script: "contract/run_python_client.py",
          case: "contract/openapi-python-client",
          args: [all],
        }),
        npmTools(described, context),
      ]);
      const schemathesis = await Promise.all(
        described.map((service) => {
          const path = join(services.folder, `peers.${service.name}.json`);
          const examples = EXAMPLES[service.name];
          writeFileSync(path, JSON.stringify({ ...service, examples }));
          return runScript(context, {
            script: "contract/run_schemathesis.py",
            case: `contract/schemathesis/${service.name}`,
            args: [path, context.folder],
          });
        }),
      );
      return [...schemathesis, ...clients].flat();
    } finally {
      await services.stop();
    }
  },
};

/** A call of each service with the generated types, as its users would write it. */
const CALLS: Readonly<Record<ServiceDescription["name"], string>> = {
  markets: `
    const { data, response } = await client.GET("/series", {
      params: {
        query: {
          library: "power.demand",
          symbol: "erco",
          start: "2026-01-01T00:00:00.000Z",
          end: "2026-01-03T00:00:00.000Z",
        },
      },
    });
    // The other formats of the answer are text to the types.
    const rows = Array.isArray(data) ? data : [];
    const values: (number | null | undefined)[] = rows.map((row) => row.value);
    const works = values.length === 48 && values[0] === 40_000 && values[7] === null;`,
  console: `
    const { data, response } = await client.GET("/api/jobs");
    const works = data !== undefined;`,
  vision: `
    const { data, response } = await client.GET("/api/v1/auth/me");
    const email: string | undefined = data?.email;
    const works = email?.endsWith("@example.com") === true;`,
};

/** A program that makes the call and tells by its status whether it worked. */
const program = (name: ServiceDescription["name"]) => `import createClient from "openapi-fetch";
import type { paths } from "./${name}-types.d.ts";

declare const process: {
  argv: string[];
  exitCode: number;
  stdout: { write(text: string): void };
};
const [, , baseUrl = "", headers = "{}"] = process.argv;
const client = createClient<paths>({ baseUrl, headers: JSON.parse(headers) });
${CALLS[name]}
process.stdout.write(response.status + " " + JSON.stringify(data));
process.exitCode = works ? 0 : 1;
`;

/** The tools of npm, one after the other; they share the group's packages. */
async function npmTools(described: readonly ServiceDescription[], context: GroupContext) {
  const missing = await ensurePackages("contract", Math.min(PACKAGES_MS_MAX, context.msLeft()));
  if (missing) return [{ case: "contract/npm", outcome: "skipped", detail: missing } as const];
  const clients = await typedClients(described, context);
  const called = await heyApiClients(described, context);
  const linted = await Promise.all(described.map((service) => spectral(service, context)));
  return [...clients, ...called, ...linted];
}

/** Spectral's rules for OpenAPI: no error and no warning. */
async function spectral({ name, document }: ServiceDescription, context: GroupContext) {
  const ruleset = join(context.folder, "node/ruleset.json");
  const rules = {
    // Whom to ask is nobody outside.
    "info-contact": "off",
    // A socket is opened by 101, and what it sends is a shape that no route answers.
    "operation-success-response": "off",
    "oas3-unused-component": "off",
  };
  writeFileSync(ruleset, JSON.stringify({ extends: ["spectral:oas"], rules }));
  const tool = join(context.folder, "node/node_modules/@stoplight/spectral-cli/dist/index.js");
  const { code, output } = await execute(
    [process.execPath, tool, "lint", document, "--ruleset", ruleset, "--fail-severity", "warn"],
    { msMax: context.msLeft(), env: { NO_COLOR: "1" } },
  );
  const detail = output.slice(-1_000);
  const one = `contract/spectral/${name}`;
  return code === 0
    ? ({ case: one, outcome: "passed" } as const)
    : ({ case: one, outcome: "failed", detail } as const);
}

/** openapi-typescript: types without a warning, and a call that they check. */
async function typedClients(described: readonly ServiceDescription[], context: GroupContext) {
  const group = "contract/openapi-typescript";
  const folder = join(context.folder, "node/calls");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: COMPILER }));
  const outcomes: Outcome[] = [];
  for (const service of described) {
    const says = (step: string, problem: string | null) =>
      outcomes.push({
        case: `${group}/${service.name}/${step}`,
        ...(problem === null ? { outcome: "passed" } : { outcome: "failed", detail: problem }),
      });
    const types = join(folder, `${service.name}-types.d.ts`);
    const call = join(folder, `${service.name}.ts`);
    says("generate", await generated(service, { types, context }));
    writeFileSync(call, program(service.name));
    says("call", await called(service, { call, context }));
  }
  return outcomes;
}

/** Makes the types; returns what went wrong, a warning included. */
async function generated(
  service: ServiceDescription,
  { types, context }: { types: string; context: GroupContext },
): Promise<string | null> {
  const tool = join(context.folder, "node/node_modules/openapi-typescript/bin/cli.js");
  const { code, output } = await execute(
    [process.execPath, tool, service.document, "--output", types],
    { msMax: context.msLeft(), env: { NO_COLOR: "1" } },
  );
  // It greets and names the file; whatever else it says is a complaint.
  const complaints = output.split("\n").filter((line) => line.trim() && !/^[✨🚀]/u.test(line));
  if (code !== 0) return output.slice(-1_000);
  if (!readFileSync(types, "utf8").includes("export interface paths")) return "no paths in it";
  return complaints.length > 0 ? complaints.join("\n").slice(0, 1_000) : null;
}

/** Checks the program with its types, then runs it. */
async function called(
  service: ServiceDescription,
  { call, context }: { call: string; context: GroupContext },
): Promise<string | null> {
  const compiler = join(context.folder, "node/node_modules/typescript/bin/tsc");
  const checked = await execute([process.execPath, compiler, "--project", dirname(call)], {
    msMax: context.msLeft(),
  });
  if (checked.code !== 0) return checked.output.slice(0, 1_000);
  const headers = Object.values(service.auth).map(headerOf)[0];
  const answer = await execute([process.execPath, call, service.url, JSON.stringify(headers)], {
    msMax: context.msLeft(),
  });
  return answer.code === 0 ? null : answer.output.slice(0, 1_000);
}
