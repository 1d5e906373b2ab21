// What a node offers: what it is, which stays as long as it runs, and what lies in its folder of
// models, which people change meanwhile.

import type { Capabilities } from "../../shared/tasks/node-protocol.ts";

/** The part of a node's capabilities that follows its folder of models. */
export type OfferedModels = Pick<Capabilities, "segmenters" | "weights">;

export class Offer {
  #capabilities: Capabilities;
  /** As the service last got them; null before. */
  #told: Capabilities | null = null;
  #looking = false;
  readonly #list: () => Promise<OfferedModels>;

  constructor(capabilities: Capabilities, list: () => Promise<OfferedModels>) {
    this.#capabilities = capabilities;
    this.#list = list;
  }

  get capabilities(): Capabilities {
    return this.#capabilities;
  }

  /** What the service was not told yet; undefined where it knows all. */
  get untold(): Capabilities | undefined {
    return this.#told === this.#capabilities ? undefined : this.#capabilities;
  }

  /** Notes what the service got. */
  tell(capabilities: Capabilities): void {
    this.#told = capabilities;
  }

  /** Looks at what lies there now; true where that is something else than before. */
  async look(): Promise<boolean> {
    // A folder on a network drive that is away may take for ever.
    if (this.#looking) return false;
    this.#looking = true;
    try {
      const { segmenters, weights } = await this.#list();
      const found = { ...this.#capabilities, segmenters, weights };
      if (JSON.stringify(found) === JSON.stringify(this.#capabilities)) return false;
      this.#capabilities = found;
      return true;
    } finally {
      this.#looking = false;
    }
  }
}
