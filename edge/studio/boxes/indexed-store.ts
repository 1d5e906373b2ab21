// The outbox in this browser's IndexedDB: entries and steps by job and key, so that a job's are
// read in their order. One write is one transaction, as durable as the disk.

import type { Step } from "./history.ts";
import type { OutboxEntry } from "./outbox-queue.ts";
import type { OutboxStore } from "./outbox-store.ts";

const VERSION = 1;
const TABLES = ["entries", "steps"] as const;

const answered = <Value>(request: IDBRequest<Value>): Promise<Value> =>
  new Promise((done, fail) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
  });

const completed = (transaction: IDBTransaction): Promise<void> =>
  new Promise((done, fail) => {
    transaction.oncomplete = () => done();
    transaction.onabort = () => fail(transaction.error);
  });

function openDatabase(name: string): Promise<IDBDatabase> {
  const request = indexedDB.open(name, VERSION);
  request.onupgradeneeded = () => {
    for (const table of TABLES)
      request.result.createObjectStore(table, { keyPath: ["job", "key"] });
  };
  return answered(request);
}

/** Storage by the name of a database, one for each account of a browser. */
export function indexedStore(name: string): OutboxStore {
  let opened: Promise<IDBDatabase> | undefined;
  const database = async () => {
    opened ??= openDatabase(name).then((found) => {
      // A newer release may change it, and the browser may close it: it is opened again then.
      found.onversionchange = () => found.close();
      found.onclose = () => {
        opened = undefined;
      };
      return found;
    });
    try {
      return await opened;
    } catch (failure) {
      opened = undefined;
      throw failure;
    }
  };
  const transactionOf = async (mode: IDBTransactionMode) => {
    const found = await database();
    try {
      return found.transaction(TABLES, mode, { durability: "strict" });
    } catch {
      // It was closed since.
      opened = undefined;
      return (await database()).transaction(TABLES, mode, { durability: "strict" });
    }
  };
  return {
    async load(job) {
      const transaction = await transactionOf("readonly");
      // An array sorts above every text.
      const range = IDBKeyRange.bound([job], [job, []]);
      const all = (table: string) => answered(transaction.objectStore(table).getAll(range));
      const [entries, steps] = await Promise.all([all("entries"), all("steps")]);
      // Only this file writes them.
      return { entries: entries as OutboxEntry[], steps: steps as Step[] };
    },
    async write(job, { put, remove, steps }) {
      const transaction = await transactionOf("readwrite");
      const done = completed(transaction);
      const [entryTable, stepTable] = TABLES.map((table) => transaction.objectStore(table));
      for (const entry of put) entryTable?.put(entry);
      for (const key of remove) entryTable?.delete([job, key]);
      for (const step of steps.put) stepTable?.put(step);
      for (const key of steps.remove) stepTable?.delete([job, key]);
      await done;
    },
  };
}
