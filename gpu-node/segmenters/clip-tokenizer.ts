// CLIP's byte-pair tokenizer: a text → numbers of a fixed count, between a start and an end token.
// Merges and vocabulary come from the bundle. It is our own by decision: it is a hundred lines,
// reads the bundle's own files and nothing else, and counts what was cut off.

const START = "<|startoftext|>";
const END = "<|endoftext|>";
const WORD_END = "</w>";
/** CLIP reads this many merges of its file and no more: 49,152 less 256 bytes twice, less two. */
const MERGES_MAX = 48_894;
const PIECES = /'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+/gu;

export interface Tokens {
  ids: number[];
  /** 1 where a token says something. */
  mask: number[];
  /** Tokens that did not fit. */
  cut: number;
}

export class ClipTokenizer {
  readonly #ranks: Map<string, number>;
  readonly #numbers: Map<string, number>;
  readonly #length: number;
  readonly #pad: number;
  readonly #known = new Map<string, readonly number[]>();

  constructor(options: {
    merges: string;
    vocabulary: Readonly<Record<string, number>> | null;
    length: number;
    pad: "end" | "zero";
  }) {
    const merges = options.merges
      .split("\n")
      .map((line) => line.trim())
      .filter((line) => line !== "" && !isHeader(line))
      .slice(0, MERGES_MAX);
    this.#ranks = new Map(merges.map((merge, rank) => [merge, rank]));
    this.#numbers = options.vocabulary
      ? new Map(Object.entries(options.vocabulary))
      : clipOrder(merges);
    this.#length = options.length;
    this.#pad = options.pad === "zero" ? 0 : this.#number(END);
  }

  encode(text: string): Tokens {
    const clean = text.normalize("NFC").replace(/\s+/g, " ").trim().toLowerCase();
    const inner = (clean.match(PIECES) ?? []).flatMap((piece) => [...this.#piece(piece)]);
    const kept = inner.slice(0, this.#length - 2);
    const said = [this.#number(START), ...kept, this.#number(END)];
    const rest = this.#length - said.length;
    return {
      ids: [...said, ...Array<number>(rest).fill(this.#pad)],
      mask: [...said.map(() => 1), ...Array<number>(rest).fill(0)],
      cut: inner.length - kept.length,
    };
  }

  #piece(piece: string): readonly number[] {
    const known = this.#known.get(piece);
    if (known) return known;
    const letters = [...new TextEncoder().encode(piece)].map((byte) => BYTE_LETTERS[byte] ?? "");
    letters.push(`${letters.pop()}${WORD_END}`);
    const numbers = this.#merge(letters).map((token) => this.#number(token));
    this.#known.set(piece, numbers);
    return numbers;
  }

  /** Joins the neighbours that were most often seen together, until none is known. */
  #merge(parts: string[]): string[] {
    for (;;) {
      let [best, at] = [Number.POSITIVE_INFINITY, -1];
      for (let index = 0; index < parts.length - 1; index++) {
        const rank = this.#ranks.get(`${parts[index]} ${parts[index + 1]}`);
        if (rank !== undefined && rank < best) [best, at] = [rank, index];
      }
      if (at < 0) return parts;
      const pair = [parts[at], parts[at + 1]];
      const joined: string[] = [];
      for (let index = 0; index < parts.length; index++) {
        const both = parts[index] === pair[0] && parts[index + 1] === pair[1];
        joined.push(both ? `${pair[0]}${pair[1]}` : (parts[index] as string));
        if (both) index++;
      }
      parts = joined;
    }
  }

  #number(token: string): number {
    const number = this.#numbers.get(token);
    if (number === undefined) throw new Error(`the vocabulary lacks the token "${token}"`);
    return number;
  }
}

/** The first line of a merges file may name its version, quoted or not. */
const isHeader = (line: string) => /^"?#version|^"?bpe_simple_vocab/.test(line);

/** CLIP's own numbering: letters, letters that end a word, merges, start, end. */
function clipOrder(merges: readonly string[]): Map<string, number> {
  const letters = BYTE_ORDER.map((byte) => BYTE_LETTERS[byte] as string);
  const tokens = [
    ...letters,
    ...letters.map((letter) => letter + WORD_END),
    ...merges.map((merge) => merge.replace(" ", "")),
    START,
    END,
  ];
  return new Map(tokens.map((token, number) => [token, number]));
}

const printable = (byte: number) =>
  (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
/** Printable bytes first, in CLIP's order. */
const BYTE_ORDER = [...Array(256).keys()].sort(
  (a, b) => Number(printable(b)) - Number(printable(a)) || a - b,
);
/** A visible letter for each byte: itself, or one past 255. */
const BYTE_LETTERS: string[] = [];
for (const [index, byte] of BYTE_ORDER.entries())
  BYTE_LETTERS[byte] = String.fromCodePoint(
    printable(byte) ? byte : 256 + index - BYTE_ORDER.filter(printable).length,
  );
