// Checks that print a line each, for the parts of the kit that vitest does not run.

/** Performs a check and prints its outcome; a failure makes the process end with 1. */
export async function check(name: string, perform: () => Promise<string>): Promise<void> {
  try {
    process.stdout.write(`ok      ${name}: ${await perform()}\n`);
  } catch (error) {
    process.exitCode = 1;
    const reason = error instanceof Error ? (error.stack ?? error.message) : String(error);
    process.stdout.write(`FAILED  ${name}: ${reason}\n`);
  }
}

/** Fails with the message unless the condition holds. */
export function must(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(message);
}
