// How a text finds its word in a closed vocabulary: exactly, in the singular, or by its last noun.
// The service refuses with it what a node would refuse later; nodes ground prompts with it.

/** A text as words are compared: lower case, no accents, no article, single spaces. */
export const normalised = (text: string): string =>
  text
    .toLowerCase()
    .normalize("NFKD")
    .replace(/\p{M}/gu, "")
    .replace(/[^a-z0-9 ]+/g, " ")
    .replace(/\s+/g, " ")
    .trim()
    .replace(/^(a|an|the) /, "");

/** The singular of a word or of a phrase's last word, by the regular endings. */
export function singular(text: string): string {
  if (/(ch|sh|x|s)es$/.test(text)) return text.slice(0, -2);
  if (/[^aeiou]ies$/.test(text)) return `${text.slice(0, -3)}y`;
  return /[^s]s$/.test(text) ? text.slice(0, -1) : text;
}

export interface Grounded {
  /** The vocabulary's own word, or null when it has none. */
  word: string | null;
  /** What of the text was left out of account, such as the "red" of "red car". */
  ignored: string | null;
}

/** Finds the word of a vocabulary (of normalised words) that answers a text. */
export function ground(vocabulary: ReadonlySet<string>, text: string): Grounded {
  const whole = normalised(text);
  for (const word of [whole, singular(whole)]) {
    if (vocabulary.has(word)) return { word, ignored: null };
  }
  const words = whole.split(" ");
  // The longest ending first: "wine glass" before "glass".
  for (let from = 1; from < words.length; from++) {
    const ending = words.slice(from).join(" ");
    for (const word of [ending, singular(ending)]) {
      if (vocabulary.has(word)) return { word, ignored: words.slice(0, from).join(" ") };
    }
  }
  return { word: null, ignored: null };
}

/** The words nearest to a text by edit distance, nearest first. */
export function nearestWords(vocabulary: Iterable<string>, text: string, most = 3): string[] {
  const given = singular(normalised(text));
  return [...vocabulary]
    .map((word) => ({ word, distance: editDistance(given, word) }))
    .filter(({ word, distance }) => distance <= Math.max(1, Math.floor(word.length / 2)))
    .toSorted((left, right) => left.distance - right.distance || (left.word < right.word ? -1 : 1))
    .slice(0, most)
    .map(({ word }) => word);
}

/** Levenshtein's distance. */
function editDistance(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let i = 1; i <= left.length; i++) {
    const next = [i];
    for (let j = 1; j <= right.length; j++) {
      const replaced = (row[j - 1] as number) + (left[i - 1] === right[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[right.length] as number;
}
