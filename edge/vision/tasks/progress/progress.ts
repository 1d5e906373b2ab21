// Telling the listeners of a topic what happened. Progress is for show: a topic that cannot be
// reached is logged and never fails whoever reports.

import type { EVENT_TYPES, ProgressEvent } from "../../../../shared/wire/progress.ts";
import type { Parts } from "../../base/parts.ts";

/** Sockets that one person may have at one topic: windows and tabs, not a flood. */
export const LISTENERS_EACH_MAX = 16;
/** Sockets that one person may have at all topics together: two windows over thirty jobs. */
export const LISTENERS_PERSON_MAX = 64;

/**
 * An event to publish. Its data is laid over the topic's state, which is what snapshots show; that
 * of `log` and `edit` is not. `batch` may be laid together with later ones, or left out for slow
 * readers. After `end` nothing is taken.
 */
export interface NewEvent {
  type: Exclude<(typeof EVENT_TYPES)[number], "snapshot" | "presence">;
  data: Record<string, unknown>;
}

export interface PublishReply {
  /** Number of the topic's last event. */
  seq: number;
  accepted: number;
  /** Events that came after the topic's end. */
  refused: number;
}

/** What a ProgressTopic object answers to. */
export interface TopicRpc {
  publish(topic: string, events: readonly NewEvent[]): Promise<PublishReply>;
  snapshot(topic: string): Promise<ProgressEvent>;
  /** Those of these sockets that are open, or about to be. */
  listOpen(ids: readonly string[]): Promise<string[]>;
  fetch(request: Request): Promise<Response>;
}

/** The object of a topic. */
export const topicOf = ({ topics }: Pick<Parts, "topics">, topic: string): TopicRpc =>
  // The namespace does not know the class of its objects.
  topics.get(topics.idFromName(topic)) as unknown as TopicRpc;

/** What a Listener object answers to. */
export interface ListenerRpc {
  /** Whether its person may open a socket at a topic; the id is the ticket's. */
  enter(topic: string, id: string): Promise<boolean>;
}

/** The object of a person who listens. */
export const listenerOf = (listeners: Parts["topics"], accountId: string): ListenerRpc =>
  // The namespace does not know the class of its objects.
  listeners.get(listeners.idFromName(accountId)) as unknown as ListenerRpc;

/** Publishes events to a topic, in order; null when the topic could not be reached. */
export async function publish(
  parts: Pick<Parts, "topics" | "log">,
  topic: string,
  events: readonly NewEvent[],
): Promise<PublishReply | null> {
  try {
    const reply = await topicOf(parts, topic).publish(topic, events);
    if (reply.refused > 0) parts.log.warning("progress_after_end", { topic, ...reply });
    return { ...reply };
  } catch (error) {
    parts.log.warning("progress_not_published", { topic, count: events.length, error });
    return null;
  }
}
