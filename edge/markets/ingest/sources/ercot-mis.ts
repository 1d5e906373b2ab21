// ERCOT's public document lists, which need no login: where nobody has credentials, the last days
// come from here, one document at a time.
//
// Facts it relies on: lists hold CSV and XML forms of each document; a repaired document has
// `_retry_` in its name and replaces the one before it; in the repeated hour the second pass's name
// holds `xhr`. What a document is about is read from its rows, names only tell what to download.

import { z } from "zod";
import { Failure } from "../../../../shared/errors.ts";
import { whole } from "../../../../shared/scalars.ts";
import { parseInstant } from "../../../../shared/time.ts";
import type { Range } from "../../store/rows.ts";
import { ERCOT, type ErcotDocument, type FetchContext, parsed } from "./ercot-api.ts";
import { instantsOfWall, QUARTER } from "./ercot-hours.ts";
import { drift, type ErcotRecord, type Product, recordsOfCsv } from "./ercot-products.ts";
import { csvOf } from "./ercot-zip.ts";
import { LeftOut } from "./left-out.ts";
import { request } from "./upstream.ts";

/** The way to ERCOT's site. */
export interface ErcotSite {
  /** `https://www.ercot.com/`, or one that speaks its format. */
  baseUrl: string;
  shownAs: string;
  /** Rows of documents that were read, by id: a document never changes. */
  read: Map<number, ErcotRecord[]>;
}

/** The real site. */
export const ERCOT_SITE_URL = "https://www.ercot.com/";
/** Documents held in memory: some six days of 15-minute ones. */
const CACHED_MAX = 600;

const Listing = z.object({
  ListDocsByRptTypeRes: z.object({
    DocumentList: z
      .array(
        z.object({
          Document: z.looseObject({
            DocID: whole(0),
            FriendlyName: z.string(),
            ConstructedName: z.string(),
            PublishDate: z.string(),
          }),
        }),
      )
      .default([]),
  }),
});

/** A document that a list names. */
interface ListEntry {
  id: number;
  name: string;
  publishedAt: number;
}

/**
 * The documents of a product about a window, oldest first: those whose names say so, or those
 * posted inside a range where names do not. Only rows that `kept` takes are returned.
 */
export async function fetchDocuments(
  site: ErcotSite,
  { fetcher, now }: FetchContext,
  query: {
    product: Product;
    window: Range;
    posted: Range;
    kept: (record: ErcotRecord) => boolean;
  },
): Promise<{ documents: ErcotDocument[]; sourceUrl: string; leftOut: LeftOut }> {
  const path = `misapp/servlets/IceDocListJsonWS?reportTypeId=${query.product.reportTypeId}`;
  const list = parsed(Listing, await read(site, fetcher, path));
  const listed = list.ListDocsByRptTypeRes.DocumentList.map(({ Document }) => Document)
    .filter(({ ConstructedName }) => /csv(\.zip)?$/i.test(ConstructedName))
    .map(({ DocID, FriendlyName, PublishDate }): ListEntry => {
      const publishedAt = parseInstant(PublishDate);
      if (publishedAt === null) throw drift(`\`PublishDate\` is ${PublishDate.slice(0, 40)}`);
      return { id: DocID, name: FriendlyName, publishedAt };
    })
    .filter((one) => isAbout(one, query));
  const leftOut = new LeftOut();
  const readOne = async ({ id, publishedAt }: ListEntry): Promise<ErcotDocument> => {
    const known = site.read.get(id);
    if (known) {
      remember(site.read, id, known);
      return { id, publishedAt, records: known };
    }
    const address = `misdownload/servlets/mirDownload?doclookupId=${id}`;
    const own = new LeftOut();
    const text = csvOf(await read(site, fetcher, address));
    const records = recordsOfCsv(query.product, text, { kept: query.kept, leftOut: own });
    leftOut.join(own);
    // A document that lacks rows is read again, so that each execution has the finding.
    if (own.isEmpty) remember(site.read, id, records);
    return { id, publishedAt, records };
  };
  const documents = await leftOut.documents(withoutRepaired(listed), now, readOne);
  return { documents, sourceUrl: `${site.shownAs}${path}`, leftOut };
}

const STAMP = /_(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(?=_|$)/;

/** A name's stamp is the end of its 15-minute interval. */
function isAbout(
  { name, publishedAt }: ListEntry,
  { window, posted }: Record<"window" | "posted", Range>,
) {
  const stamp = STAMP.exec(name);
  if (!stamp) return publishedAt >= posted.from && publishedAt < posted.to;
  const [, year, month, day, hour, minute] = stamp;
  const ends = instantsOfWall(`${year}-${month}-${day}T${hour}:${minute}:00`);
  return ends.some((end) => end - QUARTER >= window.from && end - QUARTER < window.to);
}

/** In the order of their ids, without those that the next of the same name repairs. */
function withoutRepaired(listed: readonly ListEntry[]): ListEntry[] {
  const inOrder = [...listed].sort((left, right) => left.id - right.id);
  return inOrder.filter((one, index) => {
    const next = inOrder.slice(index + 1).find((later) => plainName(later) === plainName(one));
    return !next || !RETRY.test(next.name) || !STAMP.test(one.name);
  });
}

const RETRY = /_retry(?=_)/i;
const plainName = ({ name }: ListEntry) => name.replace(RETRY, "");

function remember(read: ErcotSite["read"], id: number, records: ErcotRecord[]) {
  read.delete(id);
  read.set(id, records);
  const [oldest] = read.keys();
  if (read.size > CACHED_MAX && oldest !== undefined) read.delete(oldest);
}

async function read(
  site: ErcotSite,
  fetcher: FetchContext["fetcher"],
  path: string,
): Promise<Uint8Array> {
  const { status, bytes } = await request(fetcher, ERCOT, `${site.baseUrl}${path}`);
  if (status < 300) return bytes;
  throw new Failure("upstream_rejected", `ERCOT's site answered HTTP ${status}`);
}

/** A page of the site, or null where there is none. */
export async function fetchPage(
  site: ErcotSite,
  { fetcher }: FetchContext,
  path: string,
): Promise<string | null> {
  const { status, bytes } = await request(fetcher, ERCOT, `${site.baseUrl}${path}`);
  if (status === 404) return null;
  if (status < 300) return new TextDecoder().decode(bytes);
  throw new Failure("upstream_rejected", `ERCOT's site answered HTTP ${status}`);
}
