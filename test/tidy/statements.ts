// Tables of contract statements in `test/contract/`: each statement of a contract names a test
// that the repository has.

import type { Statement } from "../contract/statement.ts";

/** Modules that hold a whole contract; the parts of a table have a hyphen in their names. */
export const CONTRACT_FILE = /^test\/contract\/(?!statement\.ts)\w+\.ts$/;

/**
 * Faults of a table that has to hold the statements 1 to `count` in order, a sentence each.
 * `textOf` returns the text of a file, or undefined where the repository has no such file.
 */
export function statementFaults(
  statements: readonly Statement[],
  count: number,
  textOf: (file: string) => string | undefined,
): string[] {
  const faults = statements.flatMap(({ number, text, file, test }, index) => {
    const found: string[] = [];
    if (number !== index + 1) found.push(`${number} stands where ${index + 1} belongs`);
    if (text.trim() === "") found.push(`${number} has no text`);
    const source = textOf(file);
    if (source === undefined) found.push(`${number}: there is no file ${file}`);
    else if (!["'", '"', "`"].some((quote) => source.includes(`${quote}${test}${quote}`))) {
      found.push(`${number}: ${file} has no test with the title ${JSON.stringify(test)}`);
    }
    return found;
  });
  if (statements.length !== count) faults.push(`${statements.length} statements, not ${count}`);
  return faults;
}
