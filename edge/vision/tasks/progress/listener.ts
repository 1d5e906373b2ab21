// The Listener object, one a person: which sockets the person has, at whatever topics, so that
// their number is bounded. Topics know which of them are open, and are asked only once so many were
// opened; so nobody has to say that a socket closed, and one that was cut takes nothing away.

import { DurableObject } from "cloudflare:workers";
import { z } from "zod";
import { LISTENERS_PERSON_MAX, type ListenerRpc, topicOf } from "./progress.ts";

/** What the object reads of the service's bindings. */
const Environment = z.object({ PROGRESS: z.custom<DurableObjectNamespace>() });

/** By when a topic says which sockets are open. */
const LOOK_MS_MAX = 5_000;
const pause = () => new Promise<null>((done) => setTimeout(done, LOOK_MS_MAX, null));

export class Listener extends DurableObject implements ListenerRpc {
  readonly #sql: SqlStorage;
  readonly #topics: DurableObjectNamespace;
  /** A look for closed sockets that is under way: whoever waits for one waits for the same. */
  #looking: Promise<void> | null = null;

  constructor(context: DurableObjectState, environment: object) {
    // The base class types its environment by bindings that the object has no use for.
    super(context, environment as never);
    this.#sql = context.storage.sql;
    this.#topics = Environment.parse(environment).PROGRESS;
    this.#sql.exec("CREATE TABLE IF NOT EXISTS socket (id TEXT PRIMARY KEY, topic TEXT NOT NULL)");
  }

  async enter(topic: string, id: string): Promise<boolean> {
    if (this.#take(topic, id)) return true;
    const before = this.#looking;
    await (before ?? this.#look());
    if (this.#take(topic, id)) return true;
    // A look that was under way may have asked before a socket was closed.
    if (!before) return false;
    await (this.#looking ?? this.#look());
    return this.#take(topic, id);
  }

  #look(): Promise<void> {
    this.#looking = this.#forgetClosed().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  #take(topic: string, id: string): boolean {
    const { count } = this.#sql
      .exec("SELECT count(*) AS count FROM socket WHERE id <> ?", id)
      .one();
    if (Number(count) >= LISTENERS_PERSON_MAX) return false;
    this.#sql.exec("INSERT OR IGNORE INTO socket (id, topic) VALUES (?, ?)", id, topic);
    return true;
  }

  async #forgetClosed(): Promise<void> {
    const rows = this.#sql.exec<{ id: string; topic: string }>("SELECT id, topic FROM socket");
    const topics = Map.groupBy(rows.toArray(), ({ topic }) => topic);
    // Sockets of a topic that cannot be reached, or keeps silent, count as open.
    await Promise.allSettled(
      [...topics].map(async ([topic, sockets]) => {
        const ids = sockets.map(({ id }) => id);
        const answer = topicOf({ topics: this.#topics }, topic).listOpen(ids);
        const listed = await Promise.race([answer, pause()]);
        if (listed === null) return;
        const open = new Set(listed);
        for (const id of ids) {
          if (!open.has(id)) this.#sql.exec("DELETE FROM socket WHERE id = ?", id);
        }
      }),
    );
  }
}
