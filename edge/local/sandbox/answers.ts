// What every provider of the sandbox is asked and answers.

/** A request as the sandbox received it. */
export interface SandboxRequest {
  method: string;
  url: URL;
  /** Lower-case names. */
  headers: Readonly<Record<string, string | undefined>>;
  body: string;
}

/** An answer of the sandbox; `status` is the HTTP status. */
export interface SandboxAnswer {
  status: number;
  /** Text or bytes as they are; anything else as JSON. */
  body: unknown;
  headers?: Readonly<Record<string, string>>;
}

/** One provider of the sandbox: its wire format over data of our own. */
export interface SandboxProvider {
  /** Answers as the provider would at `now`. */
  answer: (request: SandboxRequest, now: number) => SandboxAnswer;
  /** The same answer after the provider renamed a field. */
  drifted: (answer: SandboxAnswer) => SandboxAnswer;
  /** How it refuses a wrong credential; null where it asks for none. */
  refusal: SandboxAnswer | null;
}

/**
 * A fault on demand. `down`: 503. `storm`: 429, whatever the pause. `truncated`: the body ends in
 * its middle. `drifted`: a field has another name. `refused`: the credential is wrong. `silent`: no
 * answer for half a minute.
 */
export const FAULTS = ["down", "storm", "truncated", "drifted", "refused", "silent"] as const;
/** The name of a fault on demand. */
export type Fault = (typeof FAULTS)[number];
