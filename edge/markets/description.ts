// Words and headers of the read API's description that several of its routes share.

import type { Header } from "../http/description.ts";

/** Groups of routes. */
export const TAGS = {
  Series: "Values as they were known at a knowledge time.",
  History: "Vintages, revisions, snapshots and the feed of commits.",
  Catalog: "What the store holds.",
  Graph: "The catalog graph: what instruments are, and what they are connected to.",
  Health: "Whether the service lives, and how fresh it is.",
};

/** Headers of answers. */
export const HEADERS: Readonly<Record<string, Header>> = {
  "X-As-Of": {
    description:
      "the vintage that answered; as `as_of` it gives this answer. Absent before the first",
    schema: { type: "string", format: "date-time" },
  },
  "X-Store-Version": {
    description: "that vintage's number in its series. Absent before the first",
    schema: { type: "integer", minimum: 1 },
  },
  "X-Sandbox": {
    description: "present where any row of the answer is sandbox data, no market's",
    schema: { type: "string", enum: ["true"] },
  },
  "X-Empty-Reason": {
    description: "present where a curve is empty: why it is",
    schema: { type: "string", enum: ["never_ingested", "not_known_then"] },
  },
  ETag: {
    description: "names the answer, for If-None-Match",
    required: true,
    schema: { type: "string" },
  },
  Vary: {
    description: "request headers that the answer depends on",
    required: true,
    schema: { type: "string" },
  },
  "Accept-Ranges": {
    description: "present where Range and HEAD are answered out of one body",
    schema: { type: "string", enum: ["bytes"] },
  },
  "Content-Range": {
    description: "which bytes of how many these are",
    required: true,
    schema: { type: "string" },
  },
  Link: {
    description: 'the next page, as `<…>; rel="next"`. Absent on the last',
    schema: { type: "string" },
  },
};
