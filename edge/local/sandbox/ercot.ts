// ERCOT's wire formats over the sandbox's Texas: login, row endpoints, archive, the public document
// lists and the display page of the day's load.

import { zipSync } from "fflate";
import { DAY, HOUR, iso } from "../../../shared/time.ts";
import {
  dayOfLabel,
  instantsOfWall,
  wallOfInstant,
} from "../../markets/ingest/sources/ercot-hours.ts";
import { type OperatingDay, operatingDay } from "../../markets/store/operating-day.ts";
import type { SandboxAnswer, SandboxProvider, SandboxRequest } from "./answers.ts";
import { daysBetween, ERCOT_HISTORY_FROM } from "./ercot-market.ts";
import { csvText, loadPage, type PostedDocument, REPORTS, type Report } from "./ercot-tables.ts";

const API = "/ercot/api/public-reports/";
const TOKEN_PREFIX = "sandbox-token-";
const PAGE_ROWS = 1_000;
const LISTS_KEPT_DAYS = 8;
const PAGES_KEPT_DAYS = 14;

const refuse = (status: number, message: string): SandboxAnswer => ({
  status,
  body: { timestamp: "sandbox", code: String(status), status: "error", message },
});
const notFound = refuse(404, "Not found.");

/** ERCOT's part of the sandbox. */
export const ercotSandbox: SandboxProvider = {
  answer: answerErcot,
  drifted: ({ body, ...answer }) => ({ ...answer, body: renamed(body) }),
  refusal: { status: 401, body: { statusCode: 401, message: "Access denied." } },
};

const RENAMED: readonly (readonly [RegExp, string])[] = [
  [/"settlementPointPrice"/g, '"price"'],
  [/"total"/g, '"systemTotal"'],
  [/"postDatetime"/g, '"postedAt"'],
  [/"DocID"/g, '"DocumentId"'],
  [/>TOTAL</g, ">SYSTEM<"],
];

function renamed(body: unknown): unknown {
  if (body instanceof Uint8Array) return body;
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return RENAMED.reduce((changed, [name, other]) => changed.replaceAll(name, other), text);
}

/** Answers one request as ERCOT would at `now`. */
export function answerErcot(request: SandboxRequest, now: number): SandboxAnswer {
  const path = request.url.pathname;
  if (path === "/ercot/oauth2/v2.0/token") return logIn(request, now);
  if (path.startsWith(API)) {
    return refusedLogin(request, now) ?? answerApi(request, path.slice(API.length), now);
  }
  if (path.startsWith("/ercot/www/")) return answerSite(request.url, now);
  return notFound;
}

/** A token says when it was issued; it is valid for an hour. */
function logIn({ method, body }: SandboxRequest, now: number): SandboxAnswer {
  const form = new URLSearchParams(body);
  const isSandbox = ["username", "password"].every((name) => form.get(name) === "sandbox");
  if (method !== "POST" || form.get("grant_type") !== "password" || !isSandbox) {
    const error_description = `AADB2C90225: wrong username ${form.get("username")} or password.`;
    return { status: 400, body: { error: "access_denied", error_description } };
  }
  const id_token = `${TOKEN_PREFIX}${now}`;
  return { status: 200, body: { id_token, token_type: "Bearer", expires_in: "3600" } };
}

function refusedLogin({ headers }: SandboxRequest, now: number): SandboxAnswer | null {
  const token = headers.authorization?.replace(/^Bearer /, "") ?? "";
  const issued = token.startsWith(TOKEN_PREFIX) ? Number(token.slice(TOKEN_PREFIX.length)) : NaN;
  const isKeyed = headers["ocp-apim-subscription-key"] === "sandbox";
  if (isKeyed && now < issued + HOUR) return null;
  const message = isKeyed ? "Invalid or expired token." : "Access denied: subscription key.";
  return { status: 401, body: { statusCode: 401, message } };
}

function answerApi(request: SandboxRequest, path: string, now: number): SandboxAnswer {
  const query = request.url.searchParams;
  const archive = /^archive\/([\w-]+)(\/download)?$/.exec(path);
  if (archive) {
    const report = REPORTS.find(({ product }) => product.emil === archive[1]?.toLowerCase());
    if (!report) return notFound;
    if (archive[2]) return bulk(report, request.body, now);
    const id = query.get("download");
    return id ? download(report, Number(id), now) : listArchive(report, query, now);
  }
  const report = REPORTS.find(({ product }) => product.path === path);
  return report ? answerRows(report, query, now) : notFound;
}

const isDay = (text: string | null): text is string => /^\d{4}-\d\d-\d\d$/.test(text ?? "");

function answerRows(report: Report, query: URLSearchParams, now: number): SandboxAnswer {
  const { dayField, columns, emil } = report.product;
  const [from, to] = [query.get(`${dayField}From`), query.get(`${dayField}To`)];
  if (!isDay(from) || !isDay(to)) return refuse(400, `${dayField}From and To must be dates.`);
  const filters = Object.fromEntries(query);
  const all = daysBetween(from, to).flatMap((day) => report.rows(day, now, filters));
  const size = Math.max(1, Number(query.get("size") ?? PAGE_ROWS));
  const page = Math.max(1, Number(query.get("page") ?? 1));
  const meta = pageMeta(all.length, size, page, filters);
  return {
    status: 200,
    body: {
      _meta: meta,
      report: { reportEmilId: emil, reportDisplayName: `${emil} (sandbox)` },
      fields: Object.keys(columns).map((name) => ({ name, label: name, sortable: true })),
      data: all.slice((page - 1) * size, page * size),
      _links: {},
    },
  };
}

const pageMeta = (totalRecords: number, pageSize: number, currentPage: number, query: object) => ({
  totalRecords,
  pageSize,
  currentPage,
  totalPages: Math.ceil(totalRecords / pageSize),
  query: { parameterCount: Object.keys(query).length, parameters: query },
});

/** The documents that were posted inside a range, newest first. */
function postedIn(report: Report, from: number, to: number): PostedDocument[] {
  // A document is about a day within one of its posting.
  const first = operatingDay(Math.max(from - DAY, ERCOT_HISTORY_FROM));
  return daysBetween(first.key, operatingDay(to + DAY).key)
    .flatMap((day) => documentsOf(report, day))
    .filter(({ postedAt }) => postedAt >= from && postedAt <= to)
    .sort((left, right) => right.id - left.id);
}

function listArchive(report: Report, query: URLSearchParams, now: number): SandboxAnswer {
  const { emil } = report.product;
  const instant = (name: string, fallback: number) => {
    const text = query.get(name);
    return text ? (instantsOfWall(text)[0] ?? fallback) : fallback;
  };
  const to = Math.min(now, instant("postDatetimeTo", now));
  const documents = postedIn(report, instant("postDatetimeFrom", to - DAY), to);
  const size = Math.min(1_000, Math.max(1, Number(query.get("size") ?? 1_000)));
  const page = Math.max(1, Number(query.get("page") ?? 1));
  const href = `${API}archive/${emil}?download=`;
  return {
    status: 200,
    body: {
      _meta: pageMeta(documents.length, size, page, Object.fromEntries(query)),
      product: { emilId: emil.toUpperCase(), name: `${emil} (sandbox)` },
      archives: documents.slice((page - 1) * size, page * size).map((document) => ({
        docId: document.id,
        friendlyName: document.name,
        postDatetime: `${wallOfInstant(document.postedAt)}.000`,
        _links: { endpoint: { href: `${href}${document.id}` } },
      })),
      _links: {},
    },
  };
}

/** What a day's documents are never changes; downloads come by the hundred. */
const known = new Map<string, PostedDocument[]>();
const KNOWN_MAX = 64;

function documentsOf(report: Report, day: OperatingDay): PostedDocument[] {
  const key = `${report.product.emil} ${day.key}`;
  const documents = known.get(key) ?? report.documents(day);
  known.delete(key);
  known.set(key, documents);
  const [oldest] = known.keys();
  if (known.size > KNOWN_MAX && oldest !== undefined) known.delete(oldest);
  return documents;
}

function documentOf(report: Report, id: number, now: number): PostedDocument | undefined {
  return idDays(id)
    .flatMap((day) => documentsOf(report, day))
    .find((document) => document.id === id && document.postedAt <= now);
}

/** The day that an id is about: ids count quarters of an hour, or days, since 1970. */
function idDays(id: number): OperatingDay[] {
  const number = Math.floor((id % 100_000_000) / 10);
  const instant = number > 100_000 ? number * (HOUR / 4) : number * DAY + DAY / 2;
  return instant >= ERCOT_HISTORY_FROM - DAY ? [operatingDay(instant)] : [];
}

function zipped(report: Report, document: PostedDocument): Uint8Array {
  const text = new TextEncoder().encode(csvText(report.product, document.rows()));
  const { reportTypeId } = report.product;
  const stamp = wallOfInstant(document.postedAt).replaceAll(/[-:]/g, "").replace("T", ".");
  const name = document.name.replace(/_csv$/, "");
  const file = `cdr.${String(reportTypeId).padStart(8, "0")}.0000000000000000.${stamp}.${name}.csv`;
  return zipSync({ [file]: text }, { level: 1, mtime: document.postedAt });
}

const zipAnswer = (body: Uint8Array): SandboxAnswer => ({
  status: 200,
  body,
  headers: { "Content-Type": "application/zip" },
});

function download(report: Report, id: number, now: number): SandboxAnswer {
  const document = documentOf(report, id, now);
  return document ? zipAnswer(zipped(report, document)) : notFound;
}

/** Several documents: a zip of their zips, named by their ids. */
function bulk(report: Report, body: string, now: number): SandboxAnswer {
  const { docIds } = JSON.parse(body) as { docIds: number[] };
  const documents = docIds.map((id) => documentOf(report, id, now));
  if (documents.includes(undefined) || docIds.length > 1_000) return notFound;
  const zips = documents.flatMap((document) =>
    document ? [[`${document.id}.zip`, zipped(report, document)] as const] : [],
  );
  return zipAnswer(zipSync(Object.fromEntries(zips), { level: 0, mtime: now }));
}

function answerSite(url: URL, now: number): SandboxAnswer {
  const page =
    /\/content\/cdr\/html\/(\d{4})(\d\d)(\d\d)_actual_loads_of_weather_zones\.html$/.exec(
      url.pathname,
    );
  if (page) {
    const day = dayOfLabel(page.slice(1).join("-"));
    if (day.from > now || now - day.to > PAGES_KEPT_DAYS * DAY) return notFound;
    return { status: 200, body: loadPage(day, now), headers: { "Content-Type": "text/html" } };
  }
  if (url.pathname.endsWith("/misapp/servlets/IceDocListJsonWS")) {
    return listDocuments(Number(url.searchParams.get("reportTypeId")), now);
  }
  if (url.pathname.endsWith("/misdownload/servlets/mirDownload")) {
    const id = Number(url.searchParams.get("doclookupId"));
    for (const report of REPORTS) {
      const document = documentOf(report, id, now);
      if (document) return zipAnswer(zipped(report, document));
    }
  }
  return notFound;
}

/** The public list of a report: about a week, each document as CSV and as XML. */
function listDocuments(reportTypeId: number, now: number): SandboxAnswer {
  const report = REPORTS.find(({ product }) => product.reportTypeId === reportTypeId);
  if (!report) return { status: 200, body: { ListDocsByRptTypeRes: { DocumentList: [] } } };
  const documents = postedIn(report, now - LISTS_KEPT_DAYS * DAY, now).flatMap((document) => {
    const { id, name, postedAt, shownPostedAt } = document;
    const stamp = wallOfInstant(postedAt).replaceAll(/[-:]/g, "").replace("T", ".");
    const type = String(reportTypeId).padStart(8, "0");
    const entry = (form: string, docId: number) => ({
      Document: {
        DocID: String(docId),
        FriendlyName: name.replace(/csv$/, form),
        ConstructedName: `cdr.${type}.0000000000000000.${stamp}.${name.replace(/csv$/, form)}.zip`,
        PublishDate: iso(shownPostedAt),
        Extension: "zip",
      },
    });
    return [entry("csv", id), entry("xml", id + 5)];
  });
  return { status: 200, body: { ListDocsByRptTypeRes: { DocumentList: documents } } };
}
