// Processes that train as one with this one: each has an engine of its own and its part of every
// batch. This process is the first of them: it alone evaluates, and writes checkpoints and models.
// What any of them does to itself ends the epoch of all, at once where it dies and within
// ANSWER_SECONDS_MAX where it hangs; the run then goes on in a new team of those that are left.

import { type ChildProcess, fork } from "node:child_process";
import { randomUUID } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type {
  Dataset,
  Engine,
  EngineOptions,
  EpochResult,
  GroupOptions,
} from "../../native/index.d.ts";
import { engineCode } from "./engine-failure.ts";

/** What the first process has another one do. */
export type ToFollower =
  | { type: "open"; options: EngineOptions; dataset: Dataset }
  | { type: "join"; group: GroupOptions }
  | { type: "epoch"; epoch: number; from: number };

/** What another process answers to what it was to do last. */
export type FromFollower = { type: "done" } | { type: "failed"; code: string; message: string };

/** The slowest step of the slowest process, and what its machine does beside. */
const ANSWER_SECONDS_MAX = 120;
/** So long those who saw that another one is gone may take to say so. */
const SURVIVORS_MS = 10_000;
const PROGRAM = join(import.meta.dirname, "follower-main.ts");

/** Processes of a team are gone: training goes on from a checkpoint with those that are left. */
export class LostProcesses extends Error {
  override name = "LostProcesses";
  /** Processes that are left, this one included. */
  readonly left: number;
  /** One of them had too little memory. */
  readonly isFull: boolean;
  constructor(left: number, why: string, isFull = false) {
    super(why);
    this.left = left;
    this.isFull = isFull;
  }
}

export interface TeamOptions {
  /** What each engine is opened with; `threads` are those of one. */
  engine: EngineOptions;
  /** The images to train on. */
  dataset: Dataset;
  /** Processes, this one included; at least 2. */
  size: number;
  synchronizedNorm: boolean;
  /** One that hangs for so long is lost. */
  answerSecondsMax?: number;
}

export class Team {
  readonly #engine: Engine;
  readonly #followers: Follower[];
  readonly #answerMs: number;

  private constructor(engine: Engine, followers: Follower[], answerMs: number) {
    this.#engine = engine;
    this.#followers = followers;
    this.#answerMs = answerMs;
  }

  /** A team around an engine that has its weights and images. The engine stays the caller's. */
  static async form(engine: Engine, options: TeamOptions): Promise<Team> {
    const { size, synchronizedNorm, dataset, answerSecondsMax = ANSWER_SECONDS_MAX } = options;
    const store = meetingFile();
    const followers = Array.from({ length: size - 1 }, () => new Follower());
    const team = new Team(engine, followers, answerSecondsMax * 1_000);
    const groupOf = (rank: number): GroupOptions => ({
      store,
      rank,
      size,
      synchronizedNorm,
      timeoutSeconds: answerSecondsMax,
    });
    try {
      for (const follower of followers) {
        follower.ask({ type: "open", options: options.engine, dataset });
      }
      const opened = await team.#answers(team.#answerMs);
      // Nobody waits in a group for one that never comes.
      if (opened.some(isFailure))
        throw lost(
          opened,
          opened.filter((answer) => !isFailure(answer)),
        );
      for (const [index, follower] of followers.entries()) {
        follower.ask({ type: "join", group: groupOf(index + 1) });
      }
      await team.#withFollowers(engine.join(groupOf(0)));
      return team;
    } catch (thrown) {
      team.close();
      // Such as a torch without Gloo: one process is what there is.
      if (engineCode(thrown) === "bad_argument")
        throw new LostProcesses(1, (thrown as Error).message);
      throw thrown;
    } finally {
      rmSync(store, { force: true });
    }
  }

  /** Trains an epoch as `Engine` does, on all processes; fails with `LostProcesses`. */
  async trainEpoch(...[at, onProgress]: Parameters<Engine["trainEpoch"]>): Promise<EpochResult> {
    for (const follower of this.#followers) follower.ask({ type: "epoch", ...at });
    return this.#withFollowers(this.#engine.trainEpoch(at, onProgress));
  }

  /** What the engine's own part of a call of all comes to, once the others did theirs. */
  async #withFollowers<Result>(own: Promise<Result>): Promise<Result> {
    let result: Result;
    try {
      result = await own;
    } catch (thrown) {
      if (engineCode(thrown) !== "peer_lost") throw thrown;
      const answers = await this.#answers(SURVIVORS_MS);
      throw lost(
        answers,
        answers.filter((answer) => !isFailure(answer) || answer.code === "peer_lost"),
      );
    }
    // Its part of the last sum may be the last that was heard of one.
    const answers = await this.#answers(this.#answerMs);
    if (answers.some(isFailure))
      throw lost(
        answers,
        answers.filter((answer) => !isFailure(answer)),
      );
    return result;
  }

  /** What the others answer in so many milliseconds; a failure where one does not. */
  async #answers(ms: number): Promise<FromFollower[]> {
    const hangs: FromFollower = { type: "failed", code: "silent", message: "it hangs" };
    const late = after(ms, hangs);
    try {
      return await Promise.all(
        this.#followers.map((follower) => Promise.race([follower.answer(), late.promise])),
      );
    } finally {
      late.clear();
    }
  }

  /** Ends the other processes; they have nothing that would be lost. */
  close(): void {
    for (const follower of this.#followers) follower.end();
  }
}

/** A file by which processes meet; where there can be none, c10d would try for its whole time. */
function meetingFile(): string {
  const path = join(tmpdir(), `vantage-team-${randomUUID()}`);
  try {
    writeFileSync(path, "", { mode: 0o600 });
    return path;
  } catch (thrown) {
    throw new LostProcesses(1, `they have nowhere to meet (${(thrown as Error).message})`);
  }
}

const isFailure = (answer: FromFollower) => answer.type === "failed";

function lost(answers: readonly FromFollower[], survivors: readonly FromFollower[]) {
  const failures = answers.filter((answer) => answer.type === "failed");
  const own = failures.filter(({ code }) => code !== "peer_lost");
  // Where each blames another one, what it met is all that is known.
  const reasons = own.length > 0 ? own : failures.slice(0, 1);
  const why = reasons.map(({ message }) => message).join("; ") || "it does not answer";
  const isFull = own.some(({ code }) => code === "out_of_memory");
  return new LostProcesses(1 + survivors.length, why, isFull);
}

function after<Value>(ms: number, value: Value) {
  let clear = () => {};
  const promise = new Promise<Value>((resolve) => {
    const timer = setTimeout(() => resolve(value), ms);
    clear = () => clearTimeout(timer);
  });
  return { promise, clear: () => clear() };
}

/** Another process of a team, as the first one sees it. */
class Follower {
  readonly #process: ChildProcess;
  readonly #ended: Promise<FromFollower>;
  #answer: Promise<FromFollower> = Promise.resolve({ type: "done" });

  constructor() {
    this.#process = fork(PROGRAM, [], {
      execArgv: ["--disable-warning=ExperimentalWarning"],
      // Typed arrays of a dataset go over as they are.
      serialization: "advanced",
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    this.#ended = new Promise((resolve) => {
      const end = (how: string) => resolve({ type: "failed", code: "gone", message: how });
      this.#process.once("error", (error) => end(`a process does not start: ${error.message}`));
      this.#process.once("exit", (code, signal) =>
        end(`a process ended by ${signal ?? `itself (${code})`}`),
      );
    });
  }

  /** Has it do something; its answer is waited for next. */
  ask(what: ToFollower) {
    const said = new Promise<FromFollower>((resolve) => {
      this.#process.once("message", (message) => resolve(message as FromFollower));
    });
    this.#answer = Promise.race([said, this.#ended]);
    // One that is gone says so by its end.
    this.#process.send(what, () => {});
  }

  /** What it answered to what it was asked last, or how it ended. */
  answer(): Promise<FromFollower> {
    return this.#answer;
  }

  end() {
    this.#process.kill("SIGKILL");
  }
}
