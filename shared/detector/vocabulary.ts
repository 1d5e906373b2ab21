// Grounds a text in a closed vocabulary, for nodes and for the service that asks them: exact words,
// plurals, synonyms and groups, then the head noun with a warning for what was left out. Never a
// guess: what it cannot ground is null.

import { KINDS } from "./kinds.ts";

/** What a text means to a closed vocabulary. */
export interface Grounding {
  /** Classes that answer it. */
  ids: readonly string[];
  /**
   * Phrases of the text that would narrow those classes, and do not: the segmenter cannot tell a
   * red car from others, nor a taxi.
   */
  ignored: readonly string[];
}

/** What a word means to a closed vocabulary. */
export interface WordMeaning {
  /** Classes that answer it. */
  classes: string[];
  /** It names some things of its class only, as `taxi` does of `car`. */
  narrower: boolean;
}

/** The meaning of each word. */
export type Words = ReadonlyMap<string, WordMeaning>;

const NEAREST_MAX = 3;
/** Share of a word's letters that may differ for it to be called near: a typing error's. */
const NEAR_DISTANCE = 0.34;
/** What follows one of these tells the head noun apart and is not it. */
const PREPOSITION =
  / (?:with|without|in|on|of|at|near|under|over|behind|by|from|for|wearing|holding|riding|carrying|that|who|which) .*$/;

/** Lower case, plain letters and digits, single spaces, no article. */
export const plain = (text: string): string =>
  text
    .normalize("NFKD")
    .replace(/\p{M}/gu, "")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, " ")
    .trim()
    .replace(/^(?:a|an|the|all|every|each|any|some) (?=.)/, "");

/** Builds a vocabulary's words. Names win over synonyms, both over narrower words and groups. */
export function wordsOf(vocabulary: {
  names: readonly string[];
  /** Other words for the whole of a class. */
  synonyms: Readonly<Record<string, readonly string[]>>;
  /** Words for some of a class. */
  narrower: Readonly<Record<string, readonly string[]>>;
  /** Words for several classes. */
  groups: Readonly<Record<string, readonly string[]>>;
}): Map<string, WordMeaning> {
  const words = new Map<string, WordMeaning>();
  const add = (word: string, classes: readonly string[], narrower = false) => {
    if (!words.has(plain(word))) words.set(plain(word), { classes: [...classes], narrower });
  };
  for (const name of vocabulary.names) add(name, [name]);
  for (const [name, synonyms] of Object.entries(vocabulary.synonyms))
    for (const synonym of synonyms) add(synonym, [name]);
  for (const [name, kinds] of Object.entries(vocabulary.narrower))
    for (const kind of kinds) add(kind, [name], true);
  for (const [group, names] of Object.entries(vocabulary.groups)) add(group, names);
  return words;
}

/** The classes that answer a text, or the part of it that nothing answers. */
export function ground(text: string, words: Words): Grounding | { unknown: string } {
  const whole = lookUp(plain(text), words);
  if (whole) return { ids: whole.classes, ignored: whole.narrower ? [plain(text)] : [] };
  const parts = text
    .split(/[,;/&+]|\band\b|\bor\b/i)
    .map(plain)
    .filter((part) => part !== "");
  const ids = new Set<string>();
  const ignored: string[] = [];
  for (const part of parts) {
    const grounded = groundPart(part, words);
    if (!grounded) return { unknown: part };
    for (const id of grounded.ids) ids.add(id);
    ignored.push(...grounded.ignored);
  }
  return ids.size > 0 ? { ids: [...ids], ignored } : { unknown: text.trim() };
}

function groundPart(part: string, words: Words): Grounding | null {
  const head = part.replace(PREPOSITION, "");
  const all = part.split(" ");
  const tokens = head.split(" ");
  for (let from = 0; from < tokens.length; from++) {
    const noun = tokens.slice(from).join(" ");
    const meaning = lookUp(noun, words);
    if (!meaning) continue;
    const phrases = [
      all.slice(0, from).join(" "),
      meaning.narrower ? noun : "",
      all.slice(tokens.length).join(" "),
    ];
    return { ids: meaning.classes, ignored: phrases.filter((phrase) => phrase !== "") };
  }
  return null;
}

function lookUp(word: string, words: Words): WordMeaning | null {
  for (const form of singulars(word)) {
    const meaning = words.get(form);
    if (meaning) return meaning;
  }
  return null;
}

/** A word and what it may be the plural of. */
function singulars(word: string): string[] {
  const forms = [word];
  if (word.endsWith("ies")) forms.push(`${word.slice(0, -3)}y`);
  if (word.endsWith("ves")) forms.push(`${word.slice(0, -3)}f`, `${word.slice(0, -3)}fe`);
  if (word.endsWith("es")) forms.push(word.slice(0, -2));
  if (word.endsWith("s") && !word.endsWith("ss")) forms.push(word.slice(0, -1));
  if (word.endsWith("men")) forms.push(`${word.slice(0, -3)}man`);
  if (word.endsWith("mice")) forms.push(`${word.slice(0, -4)}mouse`);
  return forms;
}

/** What is told of a prompt that finds more than it names; null where it finds what it names. */
export function groundingWarning(
  title: string,
  prompt: string,
  { ids, ignored }: Grounding,
): string | null {
  if (ignored.length === 0) return null;
  const untold = ignored.map((phrase) => `"${phrase}"`).join(", ");
  const prefix = `${JSON.stringify(prompt)}: ${title} looks for every ${ids.join(", ")}`;
  return `${prefix}; it cannot tell ${untold} apart`;
}

/** A prompt, and the classes of a closed vocabulary that answer it. */
export interface GroundedPrompt {
  text: string;
  ids: readonly string[];
}

/** The classes left to each prompt; or one for which none is left, and those that have its own. */
export type Apportionment =
  | { ids: string[][]; warnings: string[] }
  | { empty: GroundedPrompt; owners: GroundedPrompt[] };

/**
 * Leaves every class to one prompt, so that no object is detected twice: to the one that names the
 * fewest classes, the first of equals.
 */
export function apportion(prompts: readonly GroundedPrompt[]): Apportionment {
  const owners = new Map<string, GroundedPrompt>();
  for (const prompt of prompts.toSorted((one, other) => one.ids.length - other.ids.length))
    for (const id of prompt.ids) if (!owners.has(id)) owners.set(id, prompt);
  const warnings: string[] = [];
  const ids: string[][] = [];
  for (const prompt of prompts) {
    const own = prompt.ids.filter((id) => owners.get(id) === prompt);
    const others = prompt.ids.flatMap((id) => {
      const owner = owners.get(id);
      return owner && owner !== prompt ? [{ id, owner }] : [];
    });
    if (own.length === 0) {
      return { empty: prompt, owners: [...new Set(others.map(({ owner }) => owner))] };
    }
    ids.push(own);
    const labels = others.map(({ id, owner }) => `a ${id} is labeled ${quoted(owner)} only`);
    if (labels.length > 0) warnings.push(`${quoted(prompt)}: ${labels.join(", ")}`);
  }
  return { ids, warnings };
}

const quoted = ({ text }: GroundedPrompt) => JSON.stringify(text);

/** What is told of a prompt for which no class is left. */
export function emptyPromptDetail(empty: GroundedPrompt, owners: readonly GroundedPrompt[]) {
  const as = `${owners.map(quoted).join(", ")} ${owners.length === 1 ? "does" : "do"}`;
  const twice = "every object would be labeled twice; leave one out";
  return `${quoted(empty)} looks for ${empty.ids.join(", ")}, as ${as}: ${twice}`;
}

/**
 * Known words to offer for a text, nearest first: the kind of thing that it names, or what is
 * spelled like it.
 */
export function nearestWords(text: string, words: Words): string[] {
  const asked = plain(text);
  const parts = asked.split(" ");
  const head = asked.replace(PREPOSITION, "").split(" ");
  const forms = head.flatMap((_, from) => singulars(head.slice(from).join(" ")));
  for (const [kind, names] of KINDS)
    if (words.has(kind) && forms.some((form) => names.has(form))) return [kind];
  return [...words.keys()]
    .map((word) => {
      const compared = [asked, ...parts].map(
        (part) => editDistance(part, word) / Math.max(part.length, word.length, 1),
      );
      return { word, distance: Math.min(...compared) };
    })
    .filter(({ distance }) => distance <= NEAR_DISTANCE)
    .sort((a, b) => a.distance - b.distance || (a.word < b.word ? -1 : 1))
    .slice(0, NEAREST_MAX)
    .map(({ word }) => word);
}

/**
 * Insertions, deletions and replacements of letters between two words (Levenshtein). Where there
 * are more than `max`, the result is any number above it, and the work ends early.
 */
export function editDistance(a: string, b: string, max = Number.POSITIVE_INFINITY): number {
  if (Math.abs(a.length - b.length) > max) return max + 1;
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    let rowMin = i;
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const edits = Math.min(replaced, (row[j] as number) + 1, (next[j - 1] as number) + 1);
      next.push(edits);
      rowMin = Math.min(rowMin, edits);
    }
    // No later row has a smaller number than the smallest of this one.
    if (rowMin > max) return max + 1;
    row = next;
  }
  return row[b.length] as number;
}

const bare = (name: string) => name.toLowerCase().replace(/[^a-z0-9]/g, "");

/** The declared name that was most likely meant, or null when none resembles it. */
export function nearest(name: string, declared: readonly string[]): string | null {
  const given = bare(name.slice(0, 64));
  let best: { name: string; edits: number; max: number } | null = null;
  for (const each of declared) {
    const wanted = bare(each);
    const max = Math.max(1, wanted.length / 3);
    const edits = editDistance(given, wanted, best?.edits);
    if (!best || edits < best.edits) best = { name: each, edits, max };
  }
  return best && best.edits <= best.max ? best.name : null;
}
