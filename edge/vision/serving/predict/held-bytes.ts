// What files of requests take of this isolate's memory. All requests of an isolate share its 128
// MB, so together they may hold a part of it, and who comes beyond is told to come again in a
// moment. The oldest request has what it announced set aside: without it, files that arrive
// together fill the memory with their halves, and each is refused because of the others.

import { Failure } from "../../../../shared/errors.ts";
import type { Clock } from "../../../../shared/time.ts";

/** Half of an isolate's memory; the other is for all that is not a file. */
export const HELD_BYTES_MAX = 64 * 1024 * 1024;
/** A file lies in memory in pieces, and again in the request that is made of it for a node. */
const COPIES = 2;
/**
 * A request that the platform canceled says nothing of its end. One that takes no more of its file
 * is answered long before this, or gone.
 */
export const HELD_MS_MAX = 180_000;

/** The part of one request. */
export interface HeldShare {
  /**
   * Holds so many bytes more of a file; fails with `overloaded` where others have the room, and
   * after all was given back.
   */
  grow(bytes: number): void;
  /** Nothing more comes of what was announced: no room is set aside for it any longer. */
  end(): void;
  /** Gives all of it back; again is of no account. */
  free(): void;
}

interface Hold {
  /** Copies included. */
  bytes: number;
  /** What is still to come of what was announced, copies included. */
  bytesToCome: number;
  /** When it last grew, epoch milliseconds. */
  at: number;
}

/** What requests of this isolate hold now, oldest first. */
const holds = new Set<Hold>();

/** Fails with `overloaded` where so many bytes of a request, copies included, have no room. */
function checkRoom(hold: Hold, bytes: number): void {
  for (const other of holds) if (hold.at - other.at > HELD_MS_MAX) holds.delete(other);
  let taken = 0;
  for (const other of holds) taken += other.bytes;
  const [oldest] = holds;
  if (oldest && oldest !== hold) taken += oldest.bytesToCome;
  if (taken + bytes <= HELD_BYTES_MAX) return;
  throw new Failure("overloaded", "files of other requests fill the memory; try again", {
    data: { retry_after_seconds: 1 },
  });
}

/**
 * A share for a file of so many bytes, of which none are held yet. Fails with `overloaded` where
 * there is no room for it now: its sender is spared sending what would be refused on the way.
 */
export function openShare(clock: Clock, bytesExpected: number): HeldShare {
  const hold: Hold = { bytes: 0, bytesToCome: COPIES * bytesExpected, at: clock() };
  checkRoom(hold, hold.bytesToCome);
  holds.add(hold);
  let isFree = false;
  return {
    grow(bytes) {
      if (isFree) throw new Error("nobody waits for the file any more");
      hold.at = clock();
      // It may have been given up for lost.
      holds.add(hold);
      checkRoom(hold, COPIES * bytes);
      hold.bytes += COPIES * bytes;
      hold.bytesToCome = Math.max(0, hold.bytesToCome - COPIES * bytes);
    },
    end() {
      hold.bytesToCome = 0;
    },
    free() {
      isFree = true;
      holds.delete(hold);
    },
  };
}
