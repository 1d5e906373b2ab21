// Prompts against what the live nodes' segmenters know, before anything starts.

import {
  apportion,
  emptyPromptDetail,
  type GroundedPrompt,
  ground,
  groundingWarning,
  nearestWords,
  plain,
  type WordMeaning,
  type Words,
} from "../../../../shared/detector/vocabulary.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { Database } from "../../../http/database.ts";
import { listCapabilities } from "../../tasks/nodes/nodes.ts";
import { classExists } from "../classes.ts";

/** A closed vocabulary, as a live node describes it. */
interface Vocabulary {
  title: string;
  words: Words;
}

/** Which segmenter is asked, and for whom. */
export interface SegmenterChoice {
  workspaceId: string;
  segmenter: string | undefined;
}

/**
 * The vocabulary of the segmenter that would ground prompts; null where it takes any text, and
 * where no node is there: the job waits then, and its node decides.
 */
async function vocabularyOf(
  database: Database,
  { workspaceId, segmenter }: SegmenterChoice,
): Promise<Vocabulary | null> {
  const nodes = await listCapabilities(database, workspaceId);
  const offered = nodes.flatMap(({ segmenters }) =>
    segmenters.filter(({ name }, index) => (segmenter ? name === segmenter : index === 0)),
  );
  if (nodes.length > 0 && offered.length === 0 && segmenter) {
    throw new Failure(
      "prompt_unknown",
      `no node offers the segmenter ${JSON.stringify(segmenter)}`,
    );
  }
  const [closed] = offered;
  if (!closed || offered.some(({ text }) => text === "open")) return null;
  const words = new Map<string, WordMeaning>();
  for (const { vocabulary, meanings } of offered) {
    const said = new Map(Object.entries(meanings));
    for (const word of vocabulary)
      words.set(plain(word), said.get(word) ?? { classes: [word], narrower: false });
  }
  return { title: closed.title, words };
}

/**
 * Checks the prompts of a job against the vocabulary of its segmenter. Returns what people are to
 * know of what they find. Fails with `prompt_unknown`, and with `invalid_request` where two look
 * for the same classes.
 */
export async function groundAll(
  database: Database,
  prompts: readonly string[],
  choice: SegmenterChoice,
): Promise<string[]> {
  const vocabulary = await vocabularyOf(database, choice);
  if (!vocabulary) return [];
  const all = prompts.map((prompt) => groundOne(vocabulary, prompt));
  const shares = apportion(all);
  if ("empty" in shares) {
    const detail = emptyPromptDetail(shares.empty, shares.owners);
    throw new Failure("invalid_request", `prompts: ${detail}`);
  }
  return [...all.flatMap(({ warnings }) => warnings), ...shares.warnings];
}

/** A class of a job, and the text that it is looked for by. */
export interface PromptedClass {
  name: string;
  prompt: string;
}

/**
 * Checks the prompt of a class that a job is to look for beside those it has. Fails with
 * `class_exists` where one of them is looked for as the same.
 */
export async function groundAnother(
  database: Database,
  { prompt, beside }: { prompt: string; beside: readonly PromptedClass[] },
  choice: SegmenterChoice,
): Promise<string[]> {
  const vocabulary = await vocabularyOf(database, choice);
  if (!vocabulary) return [];
  const { ids, warnings } = groundOne(vocabulary, prompt);
  for (const { name, prompt: other } of beside) {
    const known = ground(other, vocabulary.words);
    if ("unknown" in known || new Set(ids).symmetricDifference(new Set(known.ids)).size > 0)
      continue;
    const both = `${JSON.stringify(prompt)} and ${JSON.stringify(other)}`;
    throw classExists(name, `${both} both look for ${ids.join(", ")}`);
  }
  return warnings;
}

/** The classes of one prompt, and what people are to know of it. */
interface CheckedPrompt extends GroundedPrompt {
  warnings: string[];
}

function groundOne({ title, words }: Vocabulary, text: string): CheckedPrompt {
  const grounding = ground(text, words);
  if ("unknown" in grounding) throw unknownPrompt(title, grounding.unknown, text, words);
  const warning = groundingWarning(title, text, grounding);
  return { text, ids: grounding.ids, warnings: warning ? [warning] : [] };
}

function unknownPrompt(title: string, unknown: string, prompt: string, words: Words): Failure {
  const nearest = nearestWords(unknown, words);
  const near = nearest.length > 0 ? `nearest are ${nearest.join(", ")}` : "none is near";
  const detail =
    `${title} has no word for ${JSON.stringify(unknown)}; ${near}. A segmenter that takes any ` +
    "text is installed on the node with: npm run models -- install";
  const vocabulary = [...words.keys()].toSorted();
  return new Failure("prompt_unknown", detail, { data: { prompt, nearest, vocabulary } });
}
