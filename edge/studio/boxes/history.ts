// What a person did in a job and can undo, up to 500 steps. A step knows the revision that it made
// of each annotation; its inverse is sent at that revision, so it can undo nobody else's work.
// Steps outlive the page: changes to them are stored in one transaction with the outbox.

import type { Edit, EditRow } from "./edit.ts";

/** A row of a step. */
export interface StepRow extends EditRow {
  /** Revision that the step's own edit made; null until the server answered. */
  made: number | null;
}

/** An edit that can be taken back; its key is the edit's id, which sorts by time. */
export interface Step {
  key: string;
  job: string;
  /** `undo`: the edit of a person. `redo`: the inverse of one. */
  stack: "undo" | "redo";
  label: string;
  rows: StepRow[];
}

/** Steps to store, and keys of steps to forget. */
export interface StepChanges {
  put: Step[];
  remove: string[];
}

/** What the server made of one row of an edit. */
export interface RowOutcome {
  /** The edit's id. */
  edit: string;
  /** The row as it was sent, which a rebase may have changed. */
  row: EditRow;
  /** Revision that it made; null where it changed nothing. */
  made: number | null;
}

export const STEPS_MAX = 500;
/** Steps of more rows are stored as they begin and once all is answered, not with each answer. */
const OFTEN_STORED_ROWS_MAX = 1_000;

export class History {
  readonly #stacks: Record<Step["stack"], Step[]> = { undo: [], redo: [] };
  readonly #byKey = new Map<string, Step>();
  /** Rows of both stacks by annotation. */
  readonly #byId = new Map<string, StepRow[]>();
  readonly #stepOfRow = new Map<StepRow, Step>();
  /** Rows of each step that are not answered. */
  readonly #open = new Map<Step, number>();
  /** Steps to store by their key; null: to forget. */
  readonly #changed = new Map<string, Step | null>();

  /**
   * Takes up stored steps. Rows whose outcome was never seen, though nothing of them waits in the
   * outbox, cannot be undone from here.
   */
  load(steps: readonly Step[], isWaiting: (edit: string, id: string) => boolean): void {
    for (const step of steps.toSorted((one, other) => (one.key < other.key ? -1 : 1))) {
      const rows = step.rows.filter(({ id, made }) => made !== null || isWaiting(step.key, id));
      if (rows.length > 0) this.#add({ ...step, rows });
      else this.#changed.set(step.key, null);
    }
  }

  /** The newest step that can be undone or redone. */
  top(stack: Step["stack"]): Step | undefined {
    return this.#stacks[stack].at(-1);
  }

  get undoCount(): number {
    return this.#stacks.undo.length;
  }

  get redoCount(): number {
    return this.#stacks.redo.length;
  }

  /** Adds a new edit of a person; what was undone before cannot be redone any more. */
  record(edit: Edit): void {
    for (const step of [...this.#stacks.redo]) this.#drop(step);
    this.#push(edit, "undo");
  }

  /** Moves the newest step of a stack, whose inverse is given, to the other one. */
  turn(stack: Step["stack"], inverse: Edit): void {
    const step = this.top(stack);
    if (!step) return;
    this.#drop(step);
    this.#push(inverse, stack === "undo" ? "redo" : "undo");
  }

  /** Notes what became of a row: its own revision, and that of older steps that it followed. */
  note({ edit, row: sent, made }: RowOutcome): void {
    const step = this.#byKey.get(edit);
    const rows = this.#byId.get(sent.id) ?? [];
    const own = rows.find((row) => this.#stepOfRow.get(row) === step);
    if (made !== null && sent.revision !== null) {
      for (const row of rows) {
        if (row !== own && row.made === sent.revision) this.#setMade(row, made);
      }
    }
    if (!step || !own) return;
    if (made !== null) {
      own.before = sent.before;
      this.#setMade(own, made);
    } else {
      if (own.made === null) this.#open.set(step, (this.#open.get(step) ?? 0) - 1);
      step.rows = step.rows.filter((row) => row !== own);
      this.#forget(own);
      if (step.rows.length === 0) this.#drop(step);
      else this.#changed.set(step.key, step);
    }
  }

  /** Steps that changed since the last call. */
  takeChanges(): StepChanges {
    const changes: StepChanges = { put: [], remove: [] };
    for (const [key, step] of this.#changed) {
      if (step) changes.put.push(step);
      else changes.remove.push(key);
    }
    this.#changed.clear();
    return changes;
  }

  #setMade(row: StepRow, made: number): void {
    const step = this.#stepOfRow.get(row);
    const open = step ? (this.#open.get(step) ?? 0) - Number(row.made === null) : 0;
    row.made = made;
    if (!step) return;
    this.#open.set(step, open);
    const isOften = step.rows.length <= OFTEN_STORED_ROWS_MAX;
    if (isOften || open === 0) this.#changed.set(step.key, step);
  }

  #push(edit: Edit, stack: Step["stack"]): void {
    const rows = edit.rows.map((row) => ({ ...row, made: null }));
    const step: Step = { key: edit.edit_id, job: edit.job, stack, label: edit.label, rows };
    this.#add(step);
    this.#changed.set(step.key, step);
    const oldest = this.#stacks[stack][0];
    if (oldest && this.#stacks[stack].length > STEPS_MAX) this.#drop(oldest);
  }

  #add(step: Step): void {
    this.#stacks[step.stack].push(step);
    this.#byKey.set(step.key, step);
    this.#open.set(step, step.rows.filter(({ made }) => made === null).length);
    for (const row of step.rows) {
      this.#stepOfRow.set(row, step);
      const rows = this.#byId.get(row.id);
      if (rows) rows.push(row);
      else this.#byId.set(row.id, [row]);
    }
  }

  #drop(step: Step): void {
    const steps = this.#stacks[step.stack];
    steps.splice(steps.lastIndexOf(step), 1);
    this.#byKey.delete(step.key);
    this.#open.delete(step);
    for (const row of step.rows) this.#forget(row);
    this.#changed.set(step.key, null);
  }

  #forget(row: StepRow): void {
    this.#stepOfRow.delete(row);
    const rows = (this.#byId.get(row.id) ?? []).filter((one) => one !== row);
    if (rows.length > 0) this.#byId.set(row.id, rows);
    else this.#byId.delete(row.id);
  }
}
