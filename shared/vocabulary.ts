// Grounds a text in a closed vocabulary, for nodes and for the service that asks them: exact words,
// plurals, synonyms and groups, then the head noun with a warning for what was left out. Never a
// guess: what it cannot ground is null.

/** What a text means to a closed vocabulary. */
export interface Grounding {
  /** Classes that answer it. */
  ids: readonly string[];
  /** Phrases of the text that say nothing to the segmenter. */
  ignored: readonly string[];
}

/** The classes that answer each word. */
export type Words = ReadonlyMap<string, readonly string[]>;

const NEAREST_MAX = 3;
/** Share of a word's letters that may differ for it to be called near. */
const NEAR_DISTANCE = 0.6;
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

/** Builds the words of a vocabulary. Names win over synonyms, synonyms over groups. */
export function wordsOf(vocabulary: {
  names: readonly string[];
  synonyms: Readonly<Record<string, readonly string[]>>;
  groups: Readonly<Record<string, readonly string[]>>;
}): Map<string, readonly string[]> {
  const words = new Map<string, readonly string[]>();
  for (const name of vocabulary.names) words.set(plain(name), [name]);
  const add = (word: string, ids: readonly string[]) => {
    if (!words.has(plain(word))) words.set(plain(word), ids);
  };
  for (const [name, synonyms] of Object.entries(vocabulary.synonyms))
    for (const synonym of synonyms) add(synonym, [name]);
  for (const [group, names] of Object.entries(vocabulary.groups)) add(group, names);
  return words;
}

/** The classes that answer a text, or the part of it that nothing answers. */
export function ground(text: string, words: Words): Grounding | { unknown: string } {
  const whole = lookUp(plain(text), words);
  if (whole) return { ids: whole, ignored: [] };
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
    const ids = lookUp(tokens.slice(from).join(" "), words);
    const around = [all.slice(0, from).join(" "), all.slice(tokens.length).join(" ")];
    if (ids) return { ids, ignored: around.filter((phrase) => phrase !== "") };
  }
  return null;
}

function lookUp(word: string, words: Words): readonly string[] | null {
  for (const form of singulars(word)) {
    const ids = words.get(form);
    if (ids) return ids;
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

/** Known words that look like a text, nearest first. */
export function nearestWords(text: string, words: Words): string[] {
  const asked = plain(text);
  const parts = asked.split(" ");
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

/** Insertions, deletions and replacements of letters between two words. */
export function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[b.length] as number;
}
