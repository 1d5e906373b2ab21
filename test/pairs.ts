// Whether the tests saw every status that the vision service's description declares, on every
// route, and no other. `npm test` runs it last, over the requests that the Workers logged.

import { readFileSync } from "node:fs";
import { join } from "node:path";

const [logFile = ""] = process.argv.slice(2);
const golden = join(import.meta.dirname, "golden/openapi.vision.json");
const { paths } = JSON.parse(readFileSync(golden, "utf8")) as {
  paths: Record<string, Record<string, { responses: object }>>;
};

const declared = new Set<string>();
const routes = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([name, { responses }]) => {
    const route = `${name.toUpperCase()} ${path}`;
    for (const status of Object.keys(responses)) declared.add(`${route} ${status}`);
    const pattern = new RegExp(`^${route.replace(/\{\w+\}/g, "[^/]+")}$`);
    return { route, pattern, parameters: path.split("{").length };
  }),
);
// As the service matches: what is named stands before what is a parameter.
routes.sort((a, b) => a.parameters - b.parameters);

const seen = new Set<string>();
for (const line of readFileSync(logFile, "utf8").split("\n")) {
  if (!line.includes('"event":"request"') || !line.includes('"service":"vision"')) continue;
  const { method, path, status } = JSON.parse(line) as Record<string, unknown>;
  // The path is one of letters, which has no such method: no route with ids answered.
  if (status === 405 && String(path) in paths) continue;
  const found = routes.find(({ pattern }) => pattern.test(`${method} ${path}`));
  if (found) seen.add(`${found.route} ${status}`);
}

const unseen = [...declared].filter((pair) => !seen.has(pair));
// 500 is a fault of ours: no route declares it, and only tests that break something see it.
const undeclared = [...seen].filter((pair) => !declared.has(pair) && !pair.endsWith(" 500"));
for (const pair of unseen) console.error(`declared, and seen by no test: ${pair}`);
for (const pair of undeclared) console.error(`seen, and not declared: ${pair}`);
process.exitCode = unseen.length + undeclared.length > 0 ? 1 : 0;
