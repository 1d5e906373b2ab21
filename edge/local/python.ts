// The Python of a machine, for what is optional: environments of the reference tools, and wheels of
// torch. Nothing of the product runs on it.

import { execFile } from "node:child_process";
import { promisify } from "node:util";

/** What we pin is pinned for 3.11; newer ones have wheels of nearly all of it. */
const VERSION_MIN = [3, 11] as const;
const PROBE_MS_MAX = 20_000;
const PROBE = "import pip, sys, venv; print('.'.join(map(str, sys.version_info[:3])))";

/** An interpreter that can make environments. */
export interface Python {
  program: string;
  version: string;
}

/** Why there is none where `findPython` finds none. */
export const NO_PYTHON =
  "no Python 3.11 or newer with venv and pip on this machine " +
  "(Debian: apt-get install python3-venv python3-pip)";

/** The interpreter to make environments with; null without one that is new enough. */
export async function findPython(): Promise<Python | null> {
  for (const program of ["python3.11", "python3"]) {
    try {
      const { stdout } = await promisify(execFile)(program, ["-c", PROBE], {
        timeout: PROBE_MS_MAX,
      });
      const version = stdout.trim();
      const [major = 0, minor = 0] = version.split(".").map(Number);
      if (major === VERSION_MIN[0] && minor >= VERSION_MIN[1]) return { program, version };
    } catch {
      // It is not there, or lacks pip or venv: the next one may do.
    }
  }
  return null;
}

/** The two commands that make an environment of what a requirements file pins. */
export function environmentCommands(
  { program }: Python,
  { folder, requirements }: { folder: string; requirements: string },
): [string, ...string[]][] {
  return [
    [program, "-m", "venv", "--without-pip", folder],
    [
      ...([program, "-m", "pip", "--python", `${folder}/bin/python`, "install"] as const),
      ...["--no-deps", "--no-compile", "--only-binary", ":all:", "--retries", "1"],
      ...["--disable-pip-version-check", "--no-input", "-r", requirements],
    ],
  ];
}
