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
import type { Capabilities } from "../../../../shared/tasks/node-protocol.ts";
import type { Database } from "../../../http/database.ts";
import { type ModelRow, modelCalled } from "../../models/registry.ts";
import { listCapabilities } from "../../tasks/nodes/nodes.ts";
import { classExists } from "../classes.ts";
import { unique } from "./frame-references.ts";

/** A closed vocabulary, as a live node describes it. */
interface Vocabulary {
  title: string;
  words: Words;
}

/**
 * The classes of a model that prompts name; all without prompts. Fails with `prompt_unknown` where
 * the model has no class of a prompt's name.
 */
export function classesOfModel(
  { name, classes }: Pick<ModelRow, "name" | "classes">,
  prompts: readonly string[] = classes,
): string[] {
  const words: Words = new Map(classes.map((own) => [own, { classes: [own], narrower: false }]));
  for (const prompt of prompts) {
    if (classes.includes(prompt)) continue;
    const nearest = nearestWords(prompt, words);
    const detail = `the model ${name} has no class ${JSON.stringify(prompt)}; ${nearestText(nearest)}`;
    throw new Failure("prompt_unknown", detail, {
      data: { prompt, nearest, vocabulary: classes.toSorted() },
    });
  }
  return [...prompts];
}

const nearestText = (nearest: readonly string[]) =>
  nearest.length > 0 ? `nearest are ${nearest.join(", ")}` : "none is near";

/**
 * The segmenters of live nodes that would be asked; none where no node has any. Fails with
 * `prompt_unknown` where nodes offer some and none offers the one that is named.
 */
export async function offeredSegmenters(
  database: Database,
  { workspaceId, segmenter }: SegmenterChoice,
): Promise<Capabilities["segmenters"]> {
  const nodes = await listCapabilities(database, workspaceId);
  const offered = nodes.flatMap(({ segmenters }) =>
    segmenters.filter(({ name }, index) => (segmenter ? name === segmenter : index === 0)),
  );
  const all = unique(nodes.flatMap(({ segmenters }) => segmenters.map(({ name }) => name)));
  if (all.length === 0 || offered.length > 0 || !segmenter) return offered;
  const detail = `no node offers the segmenter ${JSON.stringify(segmenter)}; they offer`;
  throw new Failure("prompt_unknown", `${detail} ${all.join(", ")}`);
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
  const offered = await offeredSegmenters(database, { workspaceId, segmenter });
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

/** What a request looks for, and with what. */
interface Search {
  words: string[];
  /** What people are to know of what the prompts find. */
  warnings: string[];
  /** The model that looks in a segmenter's place. */
  model: ModelRow | null;
}

/**
 * What a request for text or for a model's classes looks for. Fails with `prompt_unknown` and
 * `invalid_request`, and as `modelCalled` does.
 */
export async function searchOf(
  database: Database,
  workspaceId: string,
  asked: {
    prompts?: readonly string[] | undefined;
    segmenter?: string | undefined;
    model?: string | undefined;
  },
): Promise<Search> {
  const { prompts, segmenter, model: called } = asked;
  if (called === undefined) {
    if (!prompts) throw new Failure("invalid_request", "prompts: required without a model");
    const words = unique(prompts);
    const warnings = await groundAll(database, words, { workspaceId, segmenter });
    return { words, warnings, model: null };
  }
  if (segmenter !== undefined) throw new Failure("invalid_request", "model: not with a segmenter");
  const model = await modelCalled(database, workspaceId, called);
  return { words: classesOfModel(model, prompts && unique(prompts)), warnings: [], model };
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
  const detail =
    `${title} has no word for ${JSON.stringify(unknown)}; ${nearestText(nearest)}. ` +
    "A segmenter that takes any text is installed on the node with: npm run models -- install";
  const vocabulary = [...words.keys()].toSorted();
  return new Failure("prompt_unknown", detail, { data: { prompt, nearest, vocabulary } });
}
