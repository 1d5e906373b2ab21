// How deep JSON may be in itself: what recursion can follow on every host, and no deeper.

/** Lists in lists and objects in objects, of a value that flows through a workflow. */
export const NESTING_MAX = 64;
/** The same of what goes over the wire, in which such values are in batches and requests. */
export const WIRE_NESTING_MAX = 128;

// Pixels are no JSON, and many.
const isContainer = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !ArrayBuffer.isView(value);

/** The lists and objects in one. Keys of very many members are read faster than these. */
function containersIn(value: object): object[] {
  if (Array.isArray(value)) return value.filter(isContainer);
  const members = value as Readonly<Record<string, unknown>>;
  return Object.keys(members)
    .map((key) => members[key])
    .filter(isContainer);
}

/** Whether a value holds no more in each other than `max`; it does not recurse itself. */
export function isShallow(value: unknown, max = NESTING_MAX): boolean {
  let level = [value].filter(isContainer);
  for (let depth = 0; level.length > 0; depth++) {
    if (depth === max) return level.every((each) => Object.keys(each).length === 0);
    level = level.flatMap(containersIn);
  }
  return true;
}
