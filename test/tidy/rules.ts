// What no line of the repository may hold, as a table: each rule with a planted violation, which
// the tidy test must find. Rules of structure (imports, names of files) stand beside it.

export interface Rule {
  advice: string;
  /** Files that it is about. */
  files: RegExp;
  except?: RegExp;
  /** Line numbers, from 1, of the violations in a file's text. */
  find(text: string): number[];
  /** A file's path and text that break it. */
  planted: readonly [file: string, text: string];
}

const CODE = /\.(ts|tsx|mjs)$/;
const ANY_CODE = /\.(ts|tsx|mjs|js|cpp|h|cu|css|py)$/;
const NATIVE = /^native\/src\/.*\.(cpp|h|cu)$/;
export const FILE_LINES_MAX = 500;
export const COLUMNS_MAX = 100;
/** Lines of a C++ function; the linter bounds those of TypeScript. */
const FUNCTION_LINES_MAX = 99;

/** Past participles that do not end in "ed", as the last word of a name. */
const PARTICIPLES =
  "Begun|Built|Chosen|Done|Drawn|Found|Given|Gone|Heard|Held|Kept|Known|Left|Lost|Made|Meant|Read|" +
  "Said|Seen|Sent|Set|Shown|Standing|Taken|Told|Waiting|Written";
const PARTICIPLE = `(\\w*[a-z](?<!Se|Fe|Spe|Ne)ed|\\w*(${PARTICIPLES}))`;

/** Lines that a pattern matches. */
const lines = (pattern: RegExp) => (text: string) =>
  text.split("\n").flatMap((line, index) => (pattern.test(line) ? [index + 1] : []));

/** Lines that a pattern matches outside of texts: what users and wires read stays in its words. */
const outsideTexts = (pattern: RegExp) => (text: string) =>
  lines(pattern)(
    text
      .replace(/"(?:[^"\\\n]|\\.)*"/g, '""')
      .replace(/(?<=[([,]\s*)\/(?:[^/\\\n]|\\.)+\//g, "")
      .replace(/`(?:[^`\\]|\\.)*`/g, (whole) => whole.replace(/[^\n]/g, "")),
  );

const isComment = (line = "") => /^\s*(\/\/|\/?\*|<!--|#)/.test(line);

/** Lines that a pattern matches and neither they nor the line above carry a comment. */
const unexplained = (pattern: RegExp) => (text: string) => {
  const all = text.split("\n");
  return all.flatMap((line, index) => {
    const explained = isComment(line) || /\/\/ \w/.test(line) || isComment(all[index - 1]);
    return pattern.test(line) && !explained ? [index + 1] : [];
  });
};

/** The first lines of comments that begin with what a thing is of: the thing itself is not said. */
const headless = (text: string) => {
  const all = text.split("\n");
  return all.flatMap((line, index) => {
    const before = all[index - 1] ?? "";
    const isFirst =
      /^\s*\/\*\* Of\b/.test(line) ||
      (/^\s*\* Of\b/.test(line) && /^\s*\/\*\*$/.test(before)) ||
      (/^\s*\/\/ Of\b/.test(line) && !/^\s*\/\//.test(before));
    return isFirst ? [index + 1] : [];
  });
};

/** First lines of C++ functions that are too long; a line that closes one stands as far in. */
const longFunctions = (text: string) => {
  const all = text.split("\n");
  return all.flatMap((line, index) => {
    const isHead = /^ {0,2}[^\s#/].*\) .*\{$|^ {0,2}[^\s#/].*\)? \{$/.test(line);
    if (!isHead || /\b(namespace|struct|class|enum)\b/.test(line)) return [];
    const indent = /^ */.exec(line)?.[0] ?? "";
    const length = all.slice(index).findIndex((one) => one.startsWith(`${indent}}`)) + 1;
    return length > FUNCTION_LINES_MAX ? [index + 1] : [];
  });
};

/** Functions that leave their file with no comment above them; overloads share that of the first. */
const undocumented = (text: string) => {
  const all = text.split("\n");
  const declared = (line = "") => /^export (?:async )?function\*? (\w+)/.exec(line)?.[1];
  return all.flatMap((line, index) => {
    const name = declared(line);
    const above = all[index - 1];
    const isTold = isComment(above) || declared(above) === name;
    return name !== undefined && !isTold ? [index + 1] : [];
  });
};

export const RULES: readonly Rule[] = [
  {
    advice: "use the logger",
    files: CODE,
    except: /^edge\/http\/log\.ts$/,
    find: lines(/\bconsole\.log\(/),
    planted: ["edge/markets/x.ts", `console.log("rows")`],
  },
  {
    advice: "declare it by route() and list it in its room",
    files: /^edge\/.*\.tsx?$/,
    except: /^edge\/http\/route\.ts$/,
    find: lines(/\bcreateRoute\(|\bapp\.openapi\(/),
    planted: ["edge/vision/media/x.ts", 'const read = createRoute({ method: "get" });'],
  },
  {
    advice: "take the time from a clock",
    files: CODE,
    except: /^(shared\/time\.ts|edge\/local|test)/,
    find: lines(/\bDate\.now\(\)|new Date\(\)/),
    planted: ["edge/markets/x.ts", "const now = Date.now();"],
  },
  {
    advice: "parse it in config.ts",
    files: CODE,
    except: /^(edge\/local|test)\/|^gpu-node\/(main|models|agent\/device|onnx\/cuda)\.ts/,
    find: lines(/\bprocess\.env\b/),
    planted: ["gpu-node/node/x.ts", "const url = process.env.VANTAGE_URL;"],
  },
  {
    advice: "finish it before merge",
    files: ANY_CODE,
    find: lines(/\b(TODO|FIXME|XXX)\b/),
    planted: ["native/src/x.cpp", "// TO" + "DO: later"],
  },
  {
    advice: "parse the value at the boundary",
    files: CODE,
    find: lines(/\bas any\b|: any\b/),
    planted: ["shared/x.ts", "const rows = reply as any" + ";"],
  },
  {
    advice: "parse numbers by shared/scalars.ts: coercion makes 0 of an empty text",
    files: CODE,
    except: /^test\//,
    find: lines(/\bz\.coerce\b|\bcoerce\./),
    planted: ["edge/markets/x.ts", "limit: z.coer" + "ce.number(),"],
  },
  {
    advice: "give the reason of the cast beside it, or type the value",
    files: CODE,
    find: unexplained(/\bas (never|unknown as)\b/),
    planted: ["edge/vision/x.ts", "const rows = reply as unknown" + " as Row[];"],
  },
  {
    advice: "write the members out: a spread of a fresh literal escapes the excess-property check",
    files: /\.(ts|tsx|mjs|js)$/,
    find: lines(/\.\.\.\{/),
    planted: ["shared/x.ts", "const point = { x, .." + ".{ y, z } };"],
  },
  {
    advice: "name a type by a noun",
    files: ANY_CODE,
    find: lines(new RegExp(`^\\s*(export )?(interface|type|class|struct) ${PARTICIPLE}\\b`)),
    planted: ["gpu-node/node/x.ts", "export interface Heard {"],
  },
  {
    advice: "name a schema or a component by a noun",
    files: CODE,
    find: lines(new RegExp(`^(export )?const (?=[A-Z]\\w*[a-z])${PARTICIPLE}(:| =)`)),
    planted: ["gpu-node/agent/x.ts", "const Asked = z.object({ url: z.string() });"],
  },
  {
    advice: "run is a training's: say execution in our own names",
    files: /^edge\/markets\/.*\.ts$/,
    find: lines(
      /^(export )?(async )?(function|class|interface|type|const) (\w*[a-z]Runs?|runs?)\b/,
    ),
    planted: ["edge/markets/ingest/x.ts", "export interface QueuedRun {"],
  },
  {
    advice: "begin a comment with the thing itself, not with what it is of",
    files: /\.(ts|tsx|mjs|js|cpp|h|cu|css)$/,
    except: /^test\//,
    find: headless,
    planted: ["edge/http/x.ts", "/** Of" + " a request, bytes. */"],
  },
  {
    advice: "say image or frame",
    files: ANY_CODE,
    // A dataset's summary calls a field so.
    find: outsideTexts(/(?<!outside_)picture/i),
    planted: ["gpu-node/media/x.ts", "const pict" + "ureWidth = 3;"],
  },
  {
    advice: "say min and max",
    files: CODE,
    find: lines(
      /\b(most|least)[A-Z]\w*|\b(?!readAtLeast\b)[a-z]\w*(Most|Least)\b|\b(const|let|function) (most|least)\b/,
    ),
    planted: ["edge/http/x.ts", "const rowsMo" + "st = 5;"],
  },
  {
    advice: "say index, offset or position",
    files: CODE,
    find: lines(/\b(const|let|function) places?\b|\bplaces?\??: (number|string)\b|\(places?\) =>/),
    planted: ["gpu-node/tasks/x.ts", "const pla" + "ce = frames.indexOf(frame);"],
  },
  {
    advice: "say canceled in our own names",
    files: CODE,
    find: lines(/\b(const|let|function|interface|type|class) \w*[cC]ancelled\w*/),
    planted: ["edge/vision/tasks/x.ts", "const isCanc" + "elled = true;"],
  },
  {
    advice: "settle belongs to a market's settlement",
    files: CODE,
    except:
      /^edge\/markets|^edge\/console|^edge\/local\/sandbox|^test\/(markets|ingest|console|sim|local)/,
    find: lines(/\b(const|let|function|interface|type|class) [sS]ettl\w*/),
    planted: ["edge/vision/labeling/x.ts", "function sett" + "leJob() {}"],
  },
  {
    advice: "keep SQL in the room's life file, not beside the routes",
    files: /^edge\/.*routes\.ts$/,
    find: lines(/\bsql`|import .*\bsql\b.* from "drizzle-orm"/),
    planted: [
      "edge/vision/labeling/review/routes.ts",
      "await database.execute(sql" + "`SELECT 1`);",
    ],
  },
  {
    advice: "say above an exported function what it promises",
    files: CODE,
    except: /^test\//,
    find: undocumented,
    planted: ["edge/vision/x.ts", "\nexport async function read() {}"],
  },
  {
    advice: "name the boolean: an options object, an enum or a constant",
    files: NATIVE,
    find: lines(/\w\((?:[^()]*, )?(true|false)(?:, [^()]*)?\)/),
    planted: ["native/src/x.cpp", "  write(path, tr" + "ue);"],
  },
  {
    advice: `cut it at its joints: a function has ${FUNCTION_LINES_MAX} lines at most`,
    files: NATIVE,
    find: longFunctions,
    planted: ["native/src/x.cpp", `int x() {\n${"  y();\n".repeat(FUNCTION_LINES_MAX - 1)}}`],
  },
  {
    advice: `keep lines within ${COLUMNS_MAX} columns`,
    files: /\.(cpp|h|cu|css)$/,
    find: lines(new RegExp(`^.{${COLUMNS_MAX + 1},}`)),
    planted: ["native/src/x.h", `  ${"x".repeat(COLUMNS_MAX)}`],
  },
  {
    advice: `keep prose within ${COLUMNS_MAX} columns`,
    files: CODE,
    find: lines(new RegExp(`^(?=.{${COLUMNS_MAX + 1},})\\s*(\\/\\/|\\*|\\/\\*\\*)`)),
    planted: ["shared/x.ts", `// ${"x".repeat(COLUMNS_MAX)}`],
  },
  {
    advice: `split it by noun: a file has ${FILE_LINES_MAX} lines at most`,
    files: ANY_CODE,
    find: (text) => (text.split("\n").length > FILE_LINES_MAX + 1 ? [FILE_LINES_MAX + 1] : []),
    planted: ["edge/console/x.css", "\n".repeat(FILE_LINES_MAX + 1)],
  },
];

/** The violations of a file, a sentence each. */
export const violationsOf = (file: string, text: string): string[] =>
  RULES.flatMap(({ advice, files, except, find }) =>
    files.test(file) && !except?.test(file)
      ? find(text).map((line) => `${file}:${line}: ${advice}`)
      : [],
  );

/** Words that name nothing, and those of files that tell of themselves by a participle. */
const BANNED_NAMES = [
  /(^|\/)(utils?|helpers?|common|misc|types|constants|manager|info)(\.|\/)/,
  // `npm run models` is its users' word.
  /(^|\/)(?<!^gpu-node\/)models\./,
  /(^|\/)(?<!^native\/)index\./,
  /(^|[/-])(?!(?<=\/)ended\.)(\w*(?<!se|fe|spe|ne)ed|begun|chosen|drawn|found|heard|kept|left|settle|settling|standing|told)\.(ts|tsx|mjs|cpp|h|cu)$/,
];

/** Whether a file's name says what it holds. */
export const isNameBanned = (file: string): boolean =>
  BANNED_NAMES.some((pattern) => pattern.test(file));
