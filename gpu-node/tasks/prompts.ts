// Prompts made ready for a segmenter, before any frame is read: an unknown word fails at once.

import { apportion, emptyPromptDetail } from "../../shared/detector/vocabulary.ts";
import type { Prompt } from "../../shared/tasks/tasks.ts";
import { BrokenMedia, TaskFailure } from "../base/failure.ts";
import { openFootage } from "../media/footage.ts";
import { readStill } from "../media/stills.ts";
import { BundleBroken, PromptUnknown, UnsupportedRequest } from "../segmenters/failures.ts";
import type { Example, Exemplar, Segmenter, TextPrompt } from "../segmenters/segmenter.ts";
import type { RunnerContext } from "./runner-context.ts";

export interface ReadyPrompt {
  className: string;
  prompt: TextPrompt | Exemplar;
}

/** A segmenter's own failures as a task's. */
export function asTaskFailure(thrown: unknown): unknown {
  const code =
    thrown instanceof PromptUnknown
      ? "prompt_unknown"
      : thrown instanceof UnsupportedRequest
        ? "invalid_request"
        : // An example that is no image.
          thrown instanceof BrokenMedia
          ? "unsupported_media"
          : null;
  if (code) return new TaskFailure(code, (thrown as Error).message, { cause: thrown });
  // Another node may have the bundle whole.
  if (thrown instanceof BundleBroken) {
    return new TaskFailure("bundle_broken", thrown.message, { retryable: true, cause: thrown });
  }
  return thrown;
}

/** Every prompt of a task ready; see `readyAll`. */
export const readyPrompts = (
  context: RunnerContext,
  segmenter: Segmenter,
  prompts: readonly Prompt[],
): Promise<ReadyPrompts> => readyAll(segmenter, prompts, (prompt) => examplesOf(context, prompt));

/** Words, or examples of one class, wherever those lie. */
type SearchPrompt =
  | { kind: "text"; class_name: string; text: string }
  | { kind: "exemplar"; class_name: string };

/** Prompts in the order given, and what people are to know of what they find. */
export interface ReadyPrompts {
  ready: ReadyPrompt[];
  warnings: string[];
}

/**
 * Every prompt ready, with its examples where it has none of words. No class is looked for by two
 * of them; fails with `invalid_request` where one has none left.
 */
export async function readyAll<Prompt extends SearchPrompt>(
  segmenter: Segmenter,
  prompts: readonly Prompt[],
  examplesOf: (prompt: Prompt) => Promise<Example[]>,
): Promise<ReadyPrompts> {
  const resolved = prompts.map((prompt) =>
    prompt.kind === "text" ? segmenter.resolve(prompt.text) : null,
  );
  const texts = resolved.filter((one) => one !== null);
  const shares = apportion(texts);
  if ("empty" in shares) {
    throw new TaskFailure("invalid_request", emptyPromptDetail(shares.empty, shares.owners));
  }
  const ready: ReadyPrompt[] = [];
  for (const [index, prompt] of prompts.entries()) {
    const known = resolved[index];
    ready.push({
      className: prompt.class_name,
      prompt: known
        ? { ...known, ids: shares.ids[texts.indexOf(known)] ?? [] }
        : await segmenter.prepareExemplar(await examplesOf(prompt)),
    });
  }
  const warnings = texts.flatMap(({ warning }) => (warning ? [warning] : []));
  return { ready, warnings: [...warnings, ...shares.warnings] };
}

async function examplesOf(context: RunnerContext, prompt: Prompt): Promise<Example[]> {
  const examples: Example[] = [];
  for (const exemplar of prompt.kind === "exemplar" ? prompt.exemplars : []) {
    if ("crop" in exemplar) {
      const bytes = Buffer.from(exemplar.crop.replace(/^data:[^,]*,/, ""), "base64");
      examples.push({ image: await readStill(bytes), bbox: null });
      continue;
    }
    const footage = await openFootage(context, exemplar.video);
    try {
      for await (const { image } of footage.read([exemplar.frame_index])) {
        examples.push({ image, bbox: exemplar.bbox });
      }
    } finally {
      await footage.close();
    }
  }
  if (examples.length === 0) {
    throw new TaskFailure("invalid_request", `the prompt "${prompt.class_name}" has no examples`);
  }
  return examples;
}
