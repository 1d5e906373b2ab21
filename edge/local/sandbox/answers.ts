// What every provider of the sandbox is asked and answers.

export interface SandboxRequest {
  method: string;
  url: URL;
  /** Lower-case names. */
  headers: Readonly<Record<string, string | undefined>>;
  body: string;
}

export interface SandboxAnswer {
  status: number;
  /** Text or bytes as they are; anything else as JSON. */
  body: unknown;
  headers?: Readonly<Record<string, string>>;
}
