// ERCOT's public API: login, row endpoints with paging, and the archive of documents. No store, no
// environment; its clock is the execution's.
//
// Facts it relies on: the id token lives an hour and is not renewable; every request needs it and
// the subscription key; rows have no posting time, documents have one, in Central wall time without
// an offset; a document may be listed before it can be downloaded.

import { z } from "zod";
import { Failure } from "../../../../shared/errors.ts";
import type { Secret } from "../../../../shared/secret.ts";
import { MINUTE } from "../../../../shared/time.ts";
import type { Range } from "../../store/rows.ts";
import { shapeDrift } from "./drift.ts";
import { daysOf, instantsInOrder, wallOfInstant } from "./ercot-hours.ts";
import {
  assertColumns,
  type ErcotRecord,
  type Product,
  type RecordReading,
  recordsOfCsv,
  recordsOfRows,
} from "./ercot-products.ts";
import { csvOf, unpack } from "./ercot-zip.ts";
import { LeftOut } from "./left-out.ts";
import { type Fetcher, type Provider, type RequestParts, request } from "./upstream.ts";

/** The way to the public API. */
export interface ErcotApi {
  /** `https://api.ercot.com/api/public-reports/`, or one that speaks its format. */
  baseUrl: string;
  tokenUrl: string;
  /** What `source_url` shows for `baseUrl`; a sandbox names itself here. */
  shownAs: string;
  username: Secret;
  password: Secret;
  subscriptionKey: Secret;
  /** The login that all executions of the process share. */
  login: { current: Login | null };
}

interface Login {
  token: Promise<string>;
  until: number;
}

/** A fetcher with the instant of the execution that uses it, epoch milliseconds. */
export interface FetchContext {
  fetcher: Fetcher;
  now: number;
}

/** A document of an archive, as read. */
export interface ErcotDocument {
  id: number;
  publishedAt: number;
  records: ErcotRecord[];
}

/** The real API. */
export const ERCOT_API_URL = "https://api.ercot.com/api/public-reports/";
/** The real login. */
export const ERCOT_TOKEN_URL =
  "https://ercotb2c.b2clogin.com/ercotb2c.onmicrosoft.com/B2C_1_PUBAPI-ROPC-FLOW/oauth2/v2.0/token";
/** The client id that ERCOT publishes for everyone's use. */
const CLIENT_ID = "fec253ea-0d06-4272-a5e6-b478baeecd70";
const TOKEN_MS = 59 * MINUTE;
/** A day of the largest report is 24,000 rows; more at once would fill the memory. */
const PAGE_ROWS = 50_000;
/** A page of so many rows has some 6 MB, an archive of a thousand documents less. */
export const ERCOT: Provider = { name: "ERCOT", bytesMax: 32 * 1024 ** 2 };
const LOGIN: Provider = { name: "ERCOT's login", bytesMax: 256 * 1024 };
const PAGES_MAX = 100;
const READINGS_MAX = 3;
const ENTRIES_MAX = 1_000;

const Token = z.object({ id_token: z.string().min(1) });
const Refusal = z.object({ error: z.string().regex(/^[a-z_]{1,40}$/) });
const Cell = z.union([z.string(), z.number(), z.boolean(), z.null()]);
const Page = z.object({
  _meta: z.object({
    totalRecords: z.int().nonnegative(),
    totalPages: z.int().nonnegative(),
  }),
  fields: z.array(z.looseObject({ name: z.string() })).default([]),
  data: z.array(z.array(Cell)),
});
const Listing = z.object({
  _meta: z.object({ totalRecords: z.int().nonnegative() }),
  archives: z.array(
    z.looseObject({ docId: z.int(), friendlyName: z.string(), postDatetime: z.string() }),
  ),
});

/** Which rows of a product are fetched. */
export interface RowQuery {
  product: Product;
  window: Range;
  filters?: Readonly<Record<string, string>>;
  /** Which of the records sent are wanted; default: all. */
  kept?: (record: ErcotRecord) => boolean;
}

/** The rows of a product over the operating days of a window, and the first request's URL. */
export async function fetchRows(
  api: ErcotApi,
  context: FetchContext,
  query: RowQuery,
): Promise<{ records: ErcotRecord[]; sourceUrl: string; leftOut: LeftOut }> {
  for (let reading = 1; ; reading++) {
    const leftOut = new LeftOut();
    const { kept = () => true } = query;
    const records = await readPages(api, context, query, { kept, leftOut });
    if (records) return { records, sourceUrl: `${api.shownAs}${rowPath(query, 1)}`, leftOut };
    if (reading === READINGS_MAX) {
      throw new Failure("upstream_truncated", "ERCOT's rows changed each time they were read");
    }
  }
}

function rowPath({ product, window, filters = {} }: RowQuery, page: number): string {
  const days = daysOf(window);
  const parameters = new URLSearchParams({
    [`${product.dayField}From`]: days[0]?.key ?? "",
    [`${product.dayField}To`]: days.at(-1)?.key ?? "",
    ...filters,
    page: String(page),
    size: String(PAGE_ROWS),
  });
  return `${product.path}?${parameters}`;
}

/** The records of all pages, or null when the pages did not fit together. */
async function readPages(
  api: ErcotApi,
  context: FetchContext,
  query: RowQuery,
  reading: RecordReading,
): Promise<ErcotRecord[] | null> {
  const { product } = query;
  const pages: ErcotRecord[][] = [];
  let received = 0;
  let announced: number | undefined;
  for (let page = 1; page <= PAGES_MAX; page++) {
    const answer = await ask(api, context, rowPath(query, page));
    const { _meta, fields, data } = parsed(Page, answer);
    const names = fields.map(({ name }) => name);
    // A page without rows may leave its fields out.
    if (names.length + data.length > 0) assertColumns(names, Object.keys(product.columns));
    announced ??= _meta.totalRecords;
    if (_meta.totalRecords !== announced) return null;
    pages.push(recordsOfRows(names, data, reading));
    received += data.length;
    if (page >= _meta.totalPages) {
      if (received > announced || hasRepeated(pages)) return null;
      if (received === announced) return pages.flat();
    }
    if (page >= _meta.totalPages || data.length === 0) {
      const detail = `ERCOT announced ${announced} rows and sent ${received}`;
      throw new Failure("upstream_truncated", detail);
    }
  }
  throw new Failure("upstream_rejected", `ERCOT: the query needs more than ${PAGES_MAX} pages`);
}

/** Rows that come or go between two pages shift the later ones: one comes twice, one never. */
function hasRepeated(pages: readonly (readonly ErcotRecord[])[]): boolean {
  const texts = pages.map(
    (records) => new Set(records.map((record) => Object.values(record).join("|"))),
  );
  const distinct = texts.reduce((total, { size }) => total + size, 0);
  return new Set(texts.flatMap((own) => [...own])).size < distinct;
}

/** A document that an archive lists, not yet downloaded. */
interface ArchiveEntry {
  id: number;
  publishedAt: number;
}

interface ArchiveQuery {
  product: Product;
  posted: Range;
  /** The records that are wanted; documents hold many more. */
  kept: (record: ErcotRecord) => boolean;
}

/**
 * The documents of a product that were posted inside a range, oldest first, and the listing's URL.
 */
export async function fetchArchive(
  api: ErcotApi,
  context: FetchContext,
  query: ArchiveQuery,
): Promise<{ documents: ErcotDocument[]; sourceUrl: string; leftOut: LeftOut }> {
  const { product, posted } = query;
  const path = (page: number) =>
    `archive/${product.emil.toUpperCase()}?${new URLSearchParams({
      postDatetimeFrom: wallOfInstant(posted.from),
      postDatetimeTo: wallOfInstant(posted.to),
      page: String(page),
      size: String(ENTRIES_MAX),
    })}`;
  const raw: z.output<typeof Listing>["archives"] = [];
  for (let page = 1; ; page++) {
    const { _meta, archives } = parsed(Listing, await ask(api, context, path(page)));
    raw.push(...archives);
    if (raw.length >= _meta.totalRecords) break;
    if (archives.length === 0 || page === PAGES_MAX) {
      const detail = `ERCOT announced ${_meta.totalRecords} documents and listed ${raw.length}`;
      throw new Failure("upstream_truncated", detail);
    }
  }
  const inOrder = raw
    .filter(({ friendlyName }) => !/xml$/i.test(friendlyName))
    .sort((left, right) => left.docId - right.docId);
  const instants = instantsInOrder(inOrder.map(({ postDatetime }) => postDatetime));
  const listed = inOrder.map(({ docId }, index): ArchiveEntry => {
    return { id: docId, publishedAt: instants[index] ?? posted.to };
  });
  const leftOut = new LeftOut();
  const documents: ErcotDocument[] = [];
  for (let index = 0; index < listed.length; index += ENTRIES_MAX) {
    const batch = listed.slice(index, index + ENTRIES_MAX);
    const zips = await download(api, context, product, batch);
    const read = async ({ id, publishedAt }: ArchiveEntry): Promise<ErcotDocument> => {
      const zip = zips.get(id);
      if (!zip) throw new Failure("upstream_truncated", `ERCOT's zip lacks document ${id}`);
      const reading = { kept: query.kept, leftOut };
      return { id, publishedAt, records: recordsOfCsv(product, csvOf(zip), reading) };
    };
    documents.push(...(await leftOut.documents(batch, context.now, read)));
  }
  return { documents, sourceUrl: `${api.shownAs}${path(1)}`, leftOut };
}

/**
 * The zips of documents by their ids. One document comes as a zip of one CSV, several as a zip of
 * such zips, named by their ids.
 */
async function download(
  api: ErcotApi,
  context: FetchContext,
  product: Product,
  listed: readonly ArchiveEntry[],
): Promise<Map<number, Uint8Array>> {
  const [first] = listed;
  const archive = `archive/${product.emil.toUpperCase()}`;
  if (!first) return new Map();
  if (listed.length === 1) {
    const zip = await ask(api, context, `${archive}?download=${first.id}`, DOWNLOAD);
    return new Map([[first.id, zip]]);
  }
  const body = JSON.stringify({ docIds: listed.map(({ id }) => id) });
  const headers = { "Content-Type": "application/json" };
  const bytes = await ask(api, context, `${archive}/download`, {
    ...DOWNLOAD,
    method: "POST",
    headers,
    body,
  });
  return new Map(
    unpack(bytes, (name) => /\.zip$/i.test(name)).map(({ name, bytes: zip }) => [
      Number(/(\d+)\.zip$/i.exec(name)?.[1]),
      zip,
    ]),
  );
}

interface AskParts extends RequestParts {
  /** A document that is listed and not yet there is answered with 400 or 404. */
  mayNotBeReady?: boolean;
}

const DOWNLOAD: AskParts = { mayNotBeReady: true };

/**
 * Asks the API, logging in where there is no valid login, and once again after one refusal. Fails
 * with a coded `Failure` that never holds a secret.
 */
async function ask(
  api: ErcotApi,
  context: FetchContext,
  path: string,
  { mayNotBeReady = false, ...parts }: AskParts = {},
): Promise<Uint8Array> {
  for (let attempt = 1; ; attempt++) {
    const token = await logIn(api, context);
    const headers = {
      ...parts.headers,
      Authorization: `Bearer ${token}`,
      "Ocp-Apim-Subscription-Key": api.subscriptionKey.reveal(),
    };
    const url = `${api.baseUrl}${path}`;
    const { status, bytes } = await request(context.fetcher, ERCOT, url, { ...parts, headers });
    if (status < 300) return bytes;
    if (status === 401 && attempt === 1) {
      await forget(api, token);
      continue;
    }
    if (status === 401 || status === 403) {
      throw new Failure(
        "upstream_unauthorized",
        `ERCOT refused the login or the key in ERCOT_SUBSCRIPTION_KEY (HTTP ${status})`,
      );
    }
    if (mayNotBeReady && (status === 400 || status === 404)) {
      const detail = "ERCOT lists a document that cannot be downloaded yet";
      throw new Failure("upstream_unavailable", detail);
    }
    throw new Failure("upstream_rejected", `ERCOT answered HTTP ${status}`);
  }
}

async function logIn(api: ErcotApi, context: FetchContext): Promise<string> {
  const { current } = api.login;
  if (current && current.until > context.now) return current.token;
  const login = { token: newToken(api, context), until: context.now + TOKEN_MS };
  api.login.current = login;
  return login.token.catch((thrown: unknown) => {
    if (api.login.current === login) api.login.current = null;
    throw thrown;
  });
}

/** Drops a login that was refused, unless another execution has replaced it meanwhile. */
async function forget(api: ErcotApi, token: string): Promise<void> {
  const { current } = api.login;
  const held = await current?.token.catch(() => null);
  if (held === token && api.login.current === current) api.login.current = null;
}

async function newToken(api: ErcotApi, { fetcher }: FetchContext): Promise<string> {
  const body = new URLSearchParams({
    grant_type: "password",
    username: api.username.reveal(),
    password: api.password.reveal(),
    response_type: "id_token",
    scope: `openid ${CLIENT_ID} offline_access`,
    client_id: CLIENT_ID,
  });
  const { status, bytes } = await request(fetcher, LOGIN, api.tokenUrl, {
    method: "POST",
    headers: { "Content-Type": "application/x-www-form-urlencoded" },
    body: body.toString(),
  });
  if (status >= 400) {
    // The description may quote the user name; the code may not.
    const code = Refusal.safeParse(json(bytes)).data?.error;
    throw new Failure(
      "upstream_unauthorized",
      `ERCOT refused ERCOT_USERNAME or ERCOT_PASSWORD (HTTP ${status}${code ? `, ${code}` : ""})`,
    );
  }
  return parsed(Token, bytes).id_token;
}

function json(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes)) as unknown;
  } catch {
    return undefined;
  }
}

/** An answer's JSON in the expected shape. */
export function parsed<Schema extends z.ZodType>(
  schema: Schema,
  bytes: Uint8Array,
): z.output<Schema> {
  const body = json(bytes);
  if (body === undefined)
    throw new Failure("upstream_truncated", "ERCOT sent a body that is not whole JSON");
  const outcome = schema.safeParse(body);
  if (outcome.success) return outcome.data;
  throw shapeDrift("ERCOT", outcome.error, body);
}
