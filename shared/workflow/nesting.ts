// How deep JSON may be in itself: what recursion can follow on every host, and no deeper.

/** Lists in lists and objects in objects, of a value that flows through a workflow. */
export const NESTING_MAX = 64;
/** The same of what goes over the wire, in which such values are in batches and requests. */
export const WIRE_NESTING_MAX = 128;

/** Whether a value holds no more in each other than `max`; it does not recurse itself. */
export function isShallow(value: unknown, max = NESTING_MAX): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; depth <= max; depth++) {
    level = level.flatMap((each) =>
      // Pixels are no JSON, and many.
      typeof each === "object" && each !== null && !ArrayBuffer.isView(each)
        ? Object.values(each)
        : [],
    );
    if (level.length === 0) return true;
  }
  return false;
}
