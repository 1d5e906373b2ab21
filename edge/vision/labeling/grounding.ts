// Prompts against what the live nodes' segmenters know, before anything starts.

import { Failure } from "../../../shared/errors.ts";
import { ground, nearestWords, plain, type Words } from "../../../shared/vocabulary.ts";
import type { Database } from "../../http/database.ts";
import { listCapabilities } from "../tasks/nodes.ts";

/**
 * Checks the prompts against the vocabulary of the segmenter that would ground them, as a live node
 * describes it; with no node there, the job waits and its node decides. Returns warnings.
 */
export async function groundAll(
  database: Database,
  prompts: readonly string[],
  { workspaceId, segmenter }: { workspaceId: string; segmenter: string | undefined },
): Promise<string[]> {
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
  if (!closed || offered.some(({ text }) => text === "open")) return [];
  const words = new Map(
    offered.flatMap(({ vocabulary }) => vocabulary).map((word) => [plain(word), [word]]),
  );
  return prompts.flatMap((prompt) => {
    const grounded = ground(prompt, words);
    if ("unknown" in grounded) throw unknownPrompt(closed.title, grounded.unknown, prompt, words);
    if (grounded.ignored.length === 0) return [];
    const ignored = grounded.ignored.map((phrase) => `"${phrase}"`).join(", ");
    const found = grounded.ids.join(", ");
    return [`${JSON.stringify(prompt)}: ${closed.title} looks for ${found}; ${ignored} is ignored`];
  });
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
