// A statement of a contract, and the test that holds it.

/** One statement of a contract. */
export interface Statement {
  /** Number in the list of the contract's statements, from 1. */
  number: number;
  /** The statement in short. */
  text: string;
  /** File of the test that fails where the statement does not hold. */
  file: string;
  /** Title of that test, as it stands in the file. */
  test: string;
  /** Where the product decided otherwise, or more: what it does. */
  note?: string;
}
