// EIA API v2's wire format over the sandbox's grid: facets, lexical periods, sorting, pages of at
// most 5,000 rows with a warning, values as strings, error bodies, and the caller's key echoed
// back, as the real one does.

import { HOUR, iso, parseInstant } from "../../../shared/time.ts";
import type { SandboxAnswer, SandboxProvider } from "./answers.ts";
import { AUTHORITIES, demandAt, HISTORY_FROM } from "./demand.ts";

const ROUTE = "/eia/v2/electricity/rto/region-data/data/";
const PAGE_ROWS_MAX = 5_000;

interface Record {
  period: string;
  respondent: string;
  "respondent-name": string;
  type: string;
  "type-name": string;
  value: string | null;
  "value-units": string;
}

const refuse = (status: number, error: unknown): SandboxAnswer => ({ status, body: { error } });

export const eiaSandbox: SandboxProvider = {
  prefix: "/eia/",
  answer: ({ url }, now) => answerEia(url, now),
  drifted: ({ body, ...answer }) => ({
    ...answer,
    body: JSON.stringify(body).replaceAll('"value":', '"amount":'),
  }),
  refusal: { status: 403, body: { error: { code: "API_KEY_INVALID", message: "Invalid." } } },
};

/** Answers one request as EIA would at `now`. */
export function answerEia(url: URL, now: number): SandboxAnswer {
  const query = url.searchParams;
  const key = query.get("api_key");
  if (!key)
    return refuse(403, { code: "API_KEY_MISSING", message: "An API key was not supplied." });
  if (key !== "sandbox")
    return refuse(403, { code: "API_KEY_INVALID", message: "Invalid API key." });
  if (`${url.pathname.replace(/\/$/, "")}/` !== ROUTE) return refuse(404, "Not found.");
  const [start, end] = [periodOf(query.get("start")), periodOf(query.get("end"))];
  if (start === null || end === null) {
    return { status: 400, body: { error: "Invalid 'start' or 'end'.", code: 400 } };
  }
  const types = query.getAll("facets[type][]");
  const wanted = new Set(query.getAll("facets[respondent][]"));
  const withDemand = types.length === 0 || types.includes("D");
  const all = withDemand ? demandRecords(start, end, wanted, now) : [];
  const offset = Number(query.get("offset") ?? 0);
  const length = Math.min(Number(query.get("length") ?? PAGE_ROWS_MAX), PAGE_ROWS_MAX);
  const data = all.slice(offset, offset + length);
  return { status: 200, body: page(all.length, data, Object.fromEntries(query), url.pathname) };
}

/** A period such as `2026-01-31T05` is the UTC hour that ENDS then. */
const periodOf = (text: string | null) =>
  text && /^\d{4}-\d\d-\d\dT\d\d$/.test(text) ? parseInstant(`${text}:00`) : null;

function demandRecords(
  start: number,
  end: number,
  wanted: ReadonlySet<string>,
  now: number,
): Record[] {
  const records: Record[] = [];
  const first = Math.max(start, HISTORY_FROM + HOUR);
  for (let ending = first; ending <= Math.min(end, now); ending += HOUR) {
    for (const authority of AUTHORITIES) {
      if (wanted.size > 0 && !wanted.has(authority.code)) continue;
      const value = demandAt(authority, ending - HOUR, now);
      if (value === undefined) continue;
      records.push({
        period: iso(ending).slice(0, 13),
        respondent: authority.code,
        "respondent-name": `${authority.code} (sandbox)`,
        type: "D",
        "type-name": "Demand",
        value: value === null ? null : String(value),
        "value-units": "megawatthours",
      });
    }
  }
  return records;
}

function page(total: number, data: Record[], params: object, command: string) {
  const description =
    "The API can only return 5000 rows in JSON format. Please consider constraining your request " +
    "with facet, start, or end, or using offset to paginate results.";
  return {
    response: {
      ...(data.length < total ? { warnings: [{ warning: "incomplete return", description }] } : {}),
      total: String(total),
      dateFormat: 'YYYY-MM-DD"T"HH24',
      frequency: "hourly",
      data,
      description: "Sandbox data in the format of Form EIA-930. Not a market's.",
    },
    request: { command, params },
    apiVersion: "2.1.12",
  };
}
