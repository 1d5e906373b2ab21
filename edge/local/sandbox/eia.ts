// EIA API v2's wire format over the sandbox's data: facets, periods compared as texts, sorting,
// pages of at most 5,000 rows with a warning, values as strings, error bodies, and the caller's key
// echoed back, as the real one does.

import { MINUTE } from "../../../shared/time.ts";
import type { SandboxAnswer, SandboxProvider } from "./answers.ts";
import { ROUTES, type Route, type RouteRow } from "./eia-routes.ts";

const PATH = /^\/eia\/v2\/(.+?)\/data\/?$/;
const PAGE_ROWS_MAX = 5_000;
const PERIODS = {
  hourly: /^\d{4}-\d\d-\d\dT\d\d$/,
  daily: /^\d{4}-\d\d-\d\d$/,
  weekly: /^\d{4}-\d\d-\d\d$/,
  monthly: /^\d{4}-\d\d$/,
} as const;
/** Answers held in memory for their further pages. */
const CACHED_MAX = 3;

const refuse = (status: number, error: unknown): SandboxAnswer => ({ status, body: { error } });
const invalid = (text: string): SandboxAnswer => ({
  status: 400,
  body: { error: text, code: 400 },
});

/** EIA's part of the sandbox. */
export const eiaSandbox: SandboxProvider = {
  answer: ({ url }, now) => answerEia(url, now),
  drifted: ({ body, ...answer }) => ({
    ...answer,
    body: JSON.stringify(body).replaceAll('"value":', '"amount":'),
  }),
  refusal: { status: 403, body: { error: { code: "API_KEY_INVALID", message: "Invalid." } } },
};

/** Answers one request as EIA would at `now`; its files change once a minute. */
export function answerEia(url: URL, now: number): SandboxAnswer {
  const query = url.searchParams;
  const key = query.get("api_key");
  if (!key)
    return refuse(403, { code: "API_KEY_MISSING", message: "An API key was not supplied." });
  if (key !== "sandbox")
    return refuse(403, { code: "API_KEY_INVALID", message: "Invalid API key." });
  const route = ROUTES.get(PATH.exec(url.pathname)?.[1] ?? "");
  if (!route) return refuse(404, "Not found.");
  const { frequency } = route;
  if ((query.get("frequency") ?? frequency) !== frequency) return invalid("Invalid 'frequency'.");
  const [start, end] = [query.get("start") ?? "", query.get("end") ?? ""];
  if (!PERIODS[frequency].test(start) || !PERIODS[frequency].test(end)) {
    return invalid("Invalid 'start' or 'end'.");
  }
  const all = listAll(route, url, Math.floor(now / MINUTE) * MINUTE);
  const offset = Number(query.get("offset") ?? 0);
  const length = Math.min(Number(query.get("length") ?? PAGE_ROWS_MAX), PAGE_ROWS_MAX);
  const data = all.slice(offset, offset + length).map(recordOf);
  return { status: 200, body: page(route, { total: all.length, data }, url) };
}

const recordOf = ({ period, common, value }: RouteRow) => {
  const [field, unit] = common.unit;
  return { period, ...common.names, value, [field]: unit };
};

const cached = new Map<string, RouteRow[]>();

/** All rows of a query at a minute, kept while its pages are read. */
function listAll(route: Route, { pathname, searchParams }: URL, now: number): RouteRow[] {
  const parameters = [...searchParams].filter(([name]) => name !== "offset" && name !== "length");
  const key = JSON.stringify([pathname, parameters, now]);
  const known = cached.get(key);
  if (known) return known;
  const wanted = new Map(
    route.facets.map((facet) => [facet, new Set(searchParams.getAll(`facets[${facet}][]`))]),
  );
  const wants = (facet: string, value: string) => {
    const values = wanted.get(facet);
    return !values || values.size === 0 || values.has(value);
  };
  const [start, end] = [searchParams.get("start") ?? "", searchParams.get("end") ?? ""];
  const listed = sorted(route.list({ start, end, wants, now }), route, searchParams);
  cached.set(key, listed);
  for (const oldest of [...cached.keys()].slice(0, -CACHED_MAX)) cached.delete(oldest);
  return listed;
}

/** Routes list by period and key, rising; a request may ask for another order. */
function sorted(listed: RouteRow[], route: Route, query: URLSearchParams): RouteRow[] {
  const columns: { column: string; sign: number }[] = [];
  for (let index = 0; query.has(`sort[${index}][column]`); index++) {
    const sign = query.get(`sort[${index}][direction]`) === "desc" ? -1 : 1;
    columns.push({ column: query.get(`sort[${index}][column]`) ?? "", sign });
  }
  const own = ["period", ...route.facets];
  const isOwn = columns.every(({ column, sign }, index) => sign === 1 && column === own[index]);
  if (isOwn) return listed;
  const cell = ({ period, common, value }: RouteRow, column: string) =>
    (column === "period" ? period : column === "value" ? value : common.names[column]) ?? "";
  return listed.sort((left, right) => {
    for (const { column, sign } of columns) {
      const [one, other] = [cell(left, column), cell(right, column)];
      if (one !== other) return one < other ? -sign : sign;
    }
    return 0;
  });
}

function page(
  { dateFormat, frequency }: Route,
  { total, data }: { total: number; data: object[] },
  url: URL,
) {
  const description =
    "The API can only return 5000 rows in JSON format. Please consider constraining your request " +
    "with facet, start, or end, or using offset to paginate results.";
  return {
    response: {
      ...(data.length < total ? { warnings: [{ warning: "incomplete return", description }] } : {}),
      total: String(total),
      dateFormat,
      frequency,
      data,
      description: "Sandbox data in the format of the agency's. Not a market's.",
    },
    request: { command: url.pathname, params: Object.fromEntries(url.searchParams) },
    apiVersion: "2.1.12",
  };
}
