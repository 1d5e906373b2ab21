// The shell commands of a document, as somebody pastes them from top to bottom: what they use is
// there by then. Each check names the variables for which it is not.

/** Set by any shell, or by who calls it. */
const GIVEN = new Set(["HOME", "PATH", "PWD"]);
/** What a variable is made of that is not done when the request for it is answered. */
const ASYNCHRONOUS = /\$V\/upload\b|\bpost (?:label|train|(?:jobs|models)\/\S+\/export) /;
const ASSIGNMENT = /(?:^|[;&|]|\b(?:export|while|until|do|then)\b|\{)\s*([A-Z_]+)=/g;

/** Lines of shell, those that a backslash or an open quote or bracket continues as one. */
function linesOf(markdown: string): string[] {
  const blocks = [...markdown.matchAll(/^```sh\n(.*?)^```/gms)].map((match) => match[1] ?? "");
  return blocks.flatMap((block) => block.replaceAll("\\\n", " ").split("\n"));
}

/** What the shell itself reads of a line: no comment, and nothing between single quotes. */
const shellOf = (line: string) => line.replace(/(^|\s)#.*$/, "").replace(/'[^']*'/g, "''");

const used = (line: string) => [...line.matchAll(/\$\{?([A-Za-z_]\w*)/g)].map((match) => match[1]);
const assigned = (line: string) => [...line.matchAll(ASSIGNMENT)].map((match) => match[1]);

/** Variables that are used before a command assigns them. */
export function unassigned(markdown: string): string[] {
  const known = new Set<string | undefined>(GIVEN);
  const ever = new Set([...GIVEN, ...linesOf(markdown).map(shellOf).flatMap(assigned)]);
  return linesOf(markdown).flatMap((line) => {
    const shell = shellOf(line);
    // The body of a function runs when it is called.
    const there = /^\w+\(\)/.test(shell) ? ever : known;
    const missing = used(shell).filter((name) => !there.has(name));
    for (const name of assigned(shell)) known.add(name);
    return missing.map((name) => name ?? "").filter((name) => !assigned(shell).includes(name));
  });
}

/** Variables that stand for work under way, and are used before a command waits for its end. */
export function unawaited(markdown: string): string[] {
  const working = new Set<string | undefined>();
  return linesOf(markdown).flatMap((line) => {
    const shell = shellOf(line);
    const early = used(shell).filter((name) => working.has(name));
    if (/^ended /.test(shell)) for (const name of early) working.delete(name);
    if (ASYNCHRONOUS.test(line)) for (const name of assigned(shell)) working.add(name);
    return /^ended /.test(shell) ? [] : early.map((name) => name ?? "");
  });
}
