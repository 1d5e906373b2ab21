// Vitest's own lines without the window that it keeps at the foot of a terminal: of two runs beside
// one another each would wipe out what the other one wrote there.

import { DefaultReporter } from "vitest/node";

/** Tells of a run as into a file, in whatever it is read. */
export default class PlainReporter extends DefaultReporter {
  constructor() {
    super({ isTTY: false });
  }
}
