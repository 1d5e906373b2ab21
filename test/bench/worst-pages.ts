// What `worst-bodies` sends to routes that no description names, listed by hand: the descriptions
// themselves, the pages that show them, and the console's own pages and forms.

import type { Endpoint, Parameter } from "../../edge/http/example-request.ts";
import type { Target } from "./worst-target.ts";

/** Media type of the console's forms. */
export const FORM_TYPE = "application/x-www-form-urlencoded";

const NO_ID = "00000000-0000-4000-8000-000000000000";
/** Pages of the console, with the parameters of their queries. */
const PAGES: Readonly<Record<string, readonly string[]>> = {
  "/overview": ["fragment"],
  "/pipelines/grid_region": ["last", "partition"],
  "/runs": ["job", "state", "trigger", "partition", "backfill", "after"],
  "/timeline": ["day", "hour", "job"],
  "/events": ["q", "level", "job", "from", "to", "after"],
  [`/runs/${NO_ID}`]: [],
  "/schedules": [],
  "/schedules/grid_region": ["before"],
  "/checks": [],
  "/alerts": ["after"],
  "/backfills": [],
  [`/backfills/${NO_ID}`]: [],
  "/graph": ["label", "q", "instrument", "depth"],
  "/series": ["library", "symbol", "q", "instrument", "column", "start", "end", "as_of", "compare"],
};
/** Forms of the console, with a field of each. */
const FORMS: Readonly<Record<string, string>> = {
  "/login": "token",
  "/pipelines/grid_region/launch": "partition",
  "/pipelines/grid_region/backfill": "first",
  "/schedules/grid_region/switch": "back",
  "/instruments/retire": "instrument_id",
  [`/runs/${NO_ID}/cancel`]: "form_token",
  [`/backfills/${NO_ID}/retry`]: "form_token",
};
const OF_EVERY_SERVICE = ["/openapi.json", "/docs"];

/** A target that has no JSON body. */
const plain = (
  service: Target["service"],
  base: string,
  { method, path, operation }: Endpoint,
  credential: Target["credential"],
): Target => ({
  service,
  route: `${method} ${service} ${path}`,
  endpoint: { method, path, operation },
  document: { info: { title: "", version: "" } },
  url: base + path,
  bytesMax: null,
  schema: undefined,
  body: undefined,
  credential,
});

/** The description of a service and the page that shows it. */
export const documentTargets = (service: Target["service"], base: string): Target[] =>
  OF_EVERY_SERVICE.map((path) =>
    plain(service, base, { method: "GET", path, operation: {} }, async () => ({})),
  );

/** Pages and forms of the console, in a session of the operator with this token. */
export async function pageTargets(base: string, token: string): Promise<Target[]> {
  const login = await fetch(`${base}/login`, {
    method: "POST",
    body: new URLSearchParams({ token }),
    redirect: "manual",
  });
  const Cookie = login.headers.get("Set-Cookie")?.split(";")[0] ?? "";
  const alerts = await (await fetch(`${base}/alerts`, { headers: { Cookie } })).text();
  const [, formToken = ""] = /name="form_token" value="([^"]+)"/.exec(alerts) ?? [];
  const session = async () => ({ Cookie });
  const parameter = (name: string): Parameter => ({ name, in: "query" });
  const pages = Object.entries({ ...PAGES, "/login": ["next"] }).map(([path, names]) =>
    plain("console", base, page(path, names.map(parameter)), session),
  );
  const forms = Object.entries(FORMS).map(([path, field]) => ({
    ...plain("console", base, form(path, field), session),
    body: { form_token: formToken },
  }));
  return [...pages, ...forms];
}

const page = (path: string, parameters: Parameter[]): Endpoint => ({
  method: "GET",
  path,
  operation: { parameters },
});
const form = (path: string, field: string): Endpoint => {
  const schema = { type: "object", properties: { [field]: { type: "string" } } };
  const operation = { requestBody: { content: { [FORM_TYPE]: { schema } } } };
  return { method: "POST", path, operation };
};
