// Where onnxruntime's CUDA provider and the libraries behind it lie, told without loading them.
// `npm run engine -- install --cuda` brings them as wheels. The runtime looks for a provider beside
// its own library, and the binding finds that by the library path: so a process that has the
// wheels' folders there runs the wheel's runtime, which is of the provider's build and, by its
// version, of the binding's, too.

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

/** A process's own, where none is given: the loader read it as the process began. */
type Environment = Readonly<Record<string, string | undefined>>;

/** The environment that `npm run engine` makes. */
const ENGINE = join(import.meta.dirname, "../../.vantage/engine");
const PROVIDER = "libonnxruntime_providers_cuda.so";
/** What the runtime and its providers share. */
const BRIDGE = "libonnxruntime_providers_shared.so";
/** What the provider opens when it first needs it, and so does not name as a library it links. */
const OPENED_LATER = ["libcudnn.so.9", "libcufft.so.12", "libnvrtc.so.13"];
/** The loader of every program of Linux x64 lists what a library links, and from where. */
const LOADER = "/lib64/ld-linux-x86-64.so.2";
/** NVIDIA's driver brings it, and no wheel does. */
export const DRIVER = "libcuda.so.1";
const PACKAGE = createRequire(import.meta.url).resolve("onnxruntime-node/package.json");

/** Why no model runs on the GPU where there is no provider. */
export const NO_PROVIDER = "onnxruntime's CUDA provider is not installed";

const pathOf = (environment: Environment): string[] =>
  environment.LD_LIBRARY_PATH?.split(":").filter(Boolean) ?? [];

/** Version of the binding. */
const bindingVersion = (): string =>
  (JSON.parse(readFileSync(PACKAGE, "utf8")) as { version: string }).version;

/**
 * The folders of the provider that the engine's wheels brought and of CUDA's libraries; none where
 * it is not there or is of another version than the binding, which could then load neither.
 */
export function providerFolders(engine = ENGINE): string[] {
  const libraries = join(engine, "lib");
  if (!existsSync(libraries)) return [];
  for (const python of readdirSync(libraries)) {
    const packages = join(libraries, python, "site-packages");
    const runtime = join(packages, "onnxruntime/capi");
    const whole = [PROVIDER, "libonnxruntime.so.1", `libonnxruntime.so.${bindingVersion()}`];
    if (!whole.every((name) => existsSync(join(runtime, name)))) continue;
    const nvidia = join(packages, "nvidia");
    const parts = existsSync(nvidia) ? readdirSync(nvidia).sort() : [];
    const folders = parts.map((part) => join(nvidia, part, "lib"));
    return [runtime, ...folders.filter((folder) => existsSync(folder))];
  }
  return [];
}

/**
 * An environment in which child processes find the provider, where there is one. A library path
 * that has a provider is its operator's choice, or was made here before.
 */
export function withProvider<Given extends Environment>(
  environment: Given,
  engine = ENGINE,
): Given & { LD_LIBRARY_PATH?: string } {
  const given = pathOf(environment);
  if (given.some((folder) => existsSync(join(folder, PROVIDER)))) return environment;
  const folders = providerFolders(engine);
  if (folders.length === 0) return environment;
  return { ...environment, LD_LIBRARY_PATH: [...folders, ...given].join(":") };
}

/**
 * For a program that opens models itself: runs it again with the provider on the library path,
 * which is read when a process begins, and returns its exit status; null where that is not needed.
 */
export function rerunWithProvider(): number | null {
  const environment = withProvider(process.env);
  if (environment.LD_LIBRARY_PATH === process.env.LD_LIBRARY_PATH) return null;
  const [program = process.execPath, ...args] = process.argv;
  const options = { stdio: "inherit", env: environment } as const;
  return spawnSync(program, [...process.execArgv, ...args], options).status ?? 1;
}

/** The provider that a process with this environment would load, or null. */
export function providerLibrary(environment: Environment = process.env): string | null {
  const beside = join(dirname(PACKAGE), "bin/napi-v6/linux/x64");
  const folders = [...pathOf(environment), beside];
  // Beside the first runtime alone: that one is loaded.
  const folder = folders.find((one) => existsSync(join(one, "libonnxruntime.so.1")));
  const library = folder && join(folder, PROVIDER);
  return library && existsSync(library) ? library : null;
}

/** How the libraries of a provider are found: how many, and the names of those that are not. */
export interface Resolution {
  found: number;
  missing: string[];
}

/**
 * Asks the machine's loader for each library that the provider links, which it does not load
 * without; for an account of all, also for those that it opens later from the library path.
 */
export function resolveLibraries(
  provider: string,
  { all }: { all: boolean },
  environment: Environment = process.env,
): Resolution {
  if (!existsSync(LOADER)) return { found: 0, missing: [] };
  const folders = pathOf(environment);
  const later = (all ? OPENED_LATER : []).map((name) => {
    const folder = folders.find((one) => existsSync(join(one, name)));
    return folder ? join(folder, name) : name;
  });
  const found = new Set<string>();
  const missing = new Set<string>();
  for (const library of [provider, join(dirname(provider), BRIDGE), ...later]) {
    const env = { ...environment, LD_TRACE_LOADED_OBJECTS: "1" };
    const { stdout = "", status } = spawnSync(LOADER, [library], { env, encoding: "utf8" });
    if (status === 0) found.add(library);
    else missing.add(library.split("/").at(-1) ?? library);
    for (const [, name = "", where] of stdout.matchAll(/^\s*(\S+) => (.+?)(?: \(0x\w+\))?$/gm))
      (where === "not found" ? missing : found).add(name);
  }
  return { found: found.size, missing: [...missing].sort() };
}
