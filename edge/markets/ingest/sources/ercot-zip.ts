// ERCOT's document archives: a zip of one CSV, or a zip of such zips. What unpacks to more than any
// report holds is refused before it is unpacked.

import { unzipSync } from "fflate";
import { Failure } from "../../../../shared/errors.ts";

/** A day of a large report is 10 MiB. */
const UNPACKED_BYTES_MAX = 64 * 1024 * 1024;
const ENTRIES_MAX = 1_100;

/** A file of a zip. */
export interface ZipEntry {
  name: string;
  bytes: Uint8Array;
}

/** The files of a zip that `wanted` names; fails with `upstream_truncated` when it is broken. */
export function unpack(bytes: Uint8Array, wanted: (name: string) => boolean): ZipEntry[] {
  let entries = 0;
  let unpacked = 0;
  try {
    const files = unzipSync(bytes, {
      // The size an entry announces is all that is ever written of it.
      filter: ({ name, originalSize }) => {
        if (!wanted(name)) return false;
        entries++;
        unpacked += originalSize;
        if (entries > ENTRIES_MAX || unpacked > UNPACKED_BYTES_MAX) throw new Bomb();
        return true;
      },
    });
    return Object.entries(files).map(([name, content]) => ({ name, bytes: content }));
  } catch (thrown) {
    if (thrown instanceof Bomb) {
      throw new Failure("upstream_rejected", "ERCOT sent a zip that unpacks to more than it may");
    }
    throw new Failure("upstream_truncated", "ERCOT sent a zip that is not whole");
  }
}

class Bomb extends Error {}

/** The text of the one CSV of a document. */
export function csvOf(bytes: Uint8Array): string {
  const files = unpack(bytes, (name) => name.toLowerCase().endsWith(".csv"));
  const [file] = files;
  if (!file || files.length > 1) {
    throw new Failure(
      "upstream_schema_drift",
      `ERCOT sent a document of ${files.length} CSV files instead of one`,
    );
  }
  return new TextDecoder().decode(file.bytes);
}
