// How segmenters fail. Each message is for the person who asked: what is wrong and what to do.

/** What the segmenter has no word for. */
export class PromptUnknown extends Error {
  override readonly name = "PromptUnknown";
  readonly code = "prompt_unknown";
  readonly text: string;
  readonly nearest: readonly string[];
  readonly advice: string;

  constructor(text: string, segmenter: { title: string; nearest: readonly string[] }) {
    const nearest = segmenter.nearest.map((word) => `"${word}"`).join(", ");
    const advice =
      "Use one of its words (npm run models -- list), give examples instead, or install a " +
      "segmenter with an open vocabulary: npm run models -- install <bundle>.";
    const near = nearest ? ` Nearest are ${nearest}.` : "";
    super(`${segmenter.title} has no word for "${text}".${near} ${advice}`);
    this.text = text;
    this.nearest = segmenter.nearest;
    this.advice = advice;
  }
}

/** No segmenter of this name is installed. */
export class BundleMissing extends Error {
  override readonly name = "BundleMissing";
  readonly code = "bundle_missing";
  readonly installed: readonly string[];

  constructor(segmenter: string, installed: readonly string[]) {
    super(
      `No segmenter "${segmenter}" is installed here; there is ${installed.join(", ")}. ` +
        "Install one with: npm run models -- install <bundle>.",
    );
    this.installed = installed;
  }
}

/** No first weights of this set are installed for the variant. */
export class WeightsMissing extends Error {
  override readonly name = "WeightsMissing";

  constructor(dataset: string, variant: string) {
    super(
      `No weights "${dataset}" of ${variant} are installed here. Install them with: npm run ` +
        "models -- install <file>.",
    );
  }
}

/** A bundle or model file is not what it says it is. */
export class BundleBroken extends Error {
  override readonly name = "BundleBroken";
  readonly code = "bundle_broken";

  constructor(where: string, reason: string, options: { cause?: unknown } = {}) {
    super(reason.startsWith(where) ? reason : `${where}: ${reason}`, options);
  }
}

/** The segmenter cannot do this at all; its info says what it can. */
export class UnsupportedRequest extends Error {
  override readonly name = "UnsupportedRequest";
  readonly code = "unsupported";
}
