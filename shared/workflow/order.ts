// The order of steps by what they need, and the circles that keep some from having one.

export interface StepOrder {
  /** Each after what it needs, else as written; steps on circles and behind them left out. */
  order: readonly string[];
  /** Circles, each with its steps in the order in which they were written. */
  circles: readonly (readonly string[])[];
}

/** Orders steps, given as id → ids that it needs. Linear in both. */
export function orderOf(needs: ReadonlyMap<string, ReadonlySet<string>>): StepOrder {
  const dependents = new Map<string, string[]>();
  const missing = new Map<string, number>();
  for (const [id, needed] of needs) {
    const known = [...needed].filter((each) => needs.has(each));
    missing.set(id, known.length);
    for (const each of known) {
      const list = dependents.get(each) ?? [];
      list.push(id);
      dependents.set(each, list);
    }
  }
  const order = [...needs.keys()].filter((id) => missing.get(id) === 0);
  // The list grows while it is gone through.
  for (const id of order)
    for (const dependent of dependents.get(id) ?? []) {
      const left = (missing.get(dependent) ?? 0) - 1;
      missing.set(dependent, left);
      if (left === 0) order.push(dependent);
    }
  const ordered = new Set(order);
  const rest = [...needs.keys()].filter((id) => !ordered.has(id));
  return { order, circles: circlesOf(rest, needs) };
}

/** Strongly connected components that hold a circle, by Tarjan's algorithm. */
function circlesOf(
  ids: readonly string[],
  needs: ReadonlyMap<string, ReadonlySet<string>>,
): string[][] {
  const [numbers, lowest] = [new Map<string, number>(), new Map<string, number>()];
  const stack: string[] = [];
  const onStack = new Set<string>();
  const circles: string[][] = [];
  const position = new Map(ids.map((id, index) => [id, index]));
  const visit = (id: string): void => {
    const number = numbers.size;
    numbers.set(id, number);
    lowest.set(id, number);
    stack.push(id);
    onStack.add(id);
    for (const next of needs.get(id) ?? []) {
      if (!position.has(next)) continue;
      if (!numbers.has(next)) visit(next);
      if (!onStack.has(next)) continue;
      lowest.set(id, Math.min(lowest.get(id) ?? number, lowest.get(next) ?? number));
    }
    if (lowest.get(id) === number) {
      const circle = stack.splice(stack.indexOf(id));
      for (const each of circle) onStack.delete(each);
      const isCircle = circle.length > 1 || (needs.get(id)?.has(id) ?? false);
      if (isCircle) {
        circles.push(circle.sort((a, b) => (position.get(a) ?? 0) - (position.get(b) ?? 0)));
      }
    }
  };
  for (const id of ids) if (!numbers.has(id)) visit(id);
  return circles;
}
