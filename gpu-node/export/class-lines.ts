// Names of classes as files of text have them: the index of a name is the index of its line.

/** A line for each name. Breaks within a name, of any kind that readers know, become spaces. */
export const classLines = (classes: readonly string[]): string =>
  classes.map((name) => `${name.replace(/[\p{Cc}\u2028\u2029]+/gu, " ")}\n`).join("");
