// Kinds of the values that flow through a workflow, and which of them stand in for which. Pure.

/** Kinds that hold no others; `list` is a list of anything. */
export const ATOMS = [
  "any",
  "json",
  "number",
  "integer",
  "string",
  "boolean",
  "list",
  "point",
  "click",
  "line",
  "zone",
  "image",
  "detections",
  "masks",
  "tracks",
  "tracked_masks",
  "model",
  "project",
  "secret",
] as const;
export type Atom = (typeof ATOMS)[number];

/** A kind: an atom, or a list of one. */
export type Kind = Atom | `list<${Atom}>`;

/** What an atom is, for people. */
export const KIND_MEANINGS: Readonly<Record<Atom, string>> = {
  any: "any value",
  json: "any JSON value: no image, no secret",
  number: "a finite number",
  integer: "a whole number",
  string: "a text",
  boolean: "true or false",
  list: "a list of anything; `list<number>` is one of numbers",
  point: "[x, y] in pixels of the root image",
  click:
    "a point on an object, or {x, y, label} with label 1 on it and 0 off it, in pixels of the root image",
  line: "[[x, y], [x, y]] in pixels of the root image, from its start to its end",
  zone: "a polygon of three corners or more, [x1, y1, x2, y2, …] or [[x, y], …], in pixels of the root image",
  image: "an image, or a frame of a video",
  detections: "objects with their boxes, in pixels of the image that they were found on",
  masks: "detections with masks",
  tracks: "detections with the ids of their tracks",
  tracked_masks: "detections with masks and ids of tracks",
  model: "a model: its id, `active` or `staging`, or `endpoint:<slug>`",
  project: "the id of a project of the workspace",
  secret: "the name of a secret of the workspace",
};

/** The kinds that an atom is at once, nearest first; each is `any`, too. */
const PARENTS: Readonly<Partial<Record<Atom, readonly Atom[]>>> = {
  integer: ["number"],
  number: ["json"],
  string: ["json"],
  boolean: ["json"],
  point: ["click", "json"],
  click: ["json"],
  line: ["json"],
  zone: ["json"],
  detections: ["json"],
  masks: ["detections"],
  tracks: ["detections"],
  tracked_masks: ["masks", "tracks"],
  model: ["string"],
  project: ["string"],
};

/** What a list holds; null for what is none. */
export function itemOf(kind: Kind): Atom | null {
  if (kind === "list") return "any";
  return kind.startsWith("list<") ? (kind.slice(5, -1) as Atom) : null;
}

/** A list of a kind. Lists of lists are told as lists of `list`. */
export const listOf = (kind: Kind): Kind =>
  kind === "any" ? "list" : `list<${itemOf(kind) === null ? (kind as Atom) : "list"}>`;

/** Whether a value of one kind may stand where another is asked for. */
export function isKindOf(kind: Kind, wanted: Kind): boolean {
  if (kind === wanted || wanted === "any") return true;
  const [item, wantedItem] = [itemOf(kind), itemOf(wanted)];
  if (item !== null) {
    if (wantedItem !== null) return isKindOf(item, wantedItem);
    return wanted === "json" && isKindOf(item, "json");
  }
  return (PARENTS[kind as Atom] ?? []).some((parent) => isKindOf(parent, wanted));
}

/** The kind of detections once they have ids of tracks. */
export const trackedKind = (kind: Kind): Kind =>
  kind === "masks" || kind === "tracked_masks" ? "tracked_masks" : "tracks";

/** A text that names a kind. */
export const KIND_FORM = new RegExp(`^(${ATOMS.join("|")}|list<(${ATOMS.join("|")})>)$`);
