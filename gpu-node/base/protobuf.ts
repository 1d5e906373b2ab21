// Protocol Buffers messages from a table of their public field numbers, for the runtime of
// @bufbuild/protobuf: no compiler and no generated file. Fields that a table leaves out survive
// decoding and encoding as they are.

import { create, type DescFile, type Message, toBinary } from "@bufbuild/protobuf";
import { fileDesc } from "@bufbuild/protobuf/codegenv2";
import {
  FileDescriptorProtoSchema,
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
} from "@bufbuild/protobuf/wkt";

const SCALARS = {
  bool: Type.BOOL,
  bytes: Type.BYTES,
  double: Type.DOUBLE,
  float: Type.FLOAT,
  int32: Type.INT32,
  int64: Type.INT64,
  string: Type.STRING,
  uint64: Type.UINT64,
} as const;
type Scalar = keyof typeof SCALARS;

/** `type number` or `repeated type number`; a type is a scalar's or one of the table's messages. */
export type FieldRule = `${string} ${number}` | `repeated ${string} ${number}`;
/** Fields by their snake_case names, by message. An enum is an int32. */
export type MessageTable = Readonly<Record<string, Readonly<Record<string, FieldRule>>>>;

type Camel<Text extends string> = Text extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<Camel<Tail>>}`
  : Text;
/** Values of scalar fields: 64-bit integers are bigints. */
interface ScalarValues {
  bool: boolean;
  bytes: Uint8Array;
  double: number;
  float: number;
  int32: number;
  int64: bigint;
  string: string;
  uint64: bigint;
}
type ValueOf<Package extends string, Table, Type extends string> = Type extends Scalar
  ? ScalarValues[Type]
  : Type extends keyof Table & string
    ? MessageOf<Package, Table, Type>
    : never;
type FieldsOf<Package extends string, Table, Fields> = {
  -readonly [Key in keyof Fields as Fields[Key] extends `repeated ${string}` | `${Scalar} ${number}`
    ? Camel<Key & string>
    : never]: Fields[Key] extends `repeated ${infer Type} ${number}`
    ? ValueOf<Package, Table, Type>[]
    : Fields[Key] extends `${infer Type} ${number}`
      ? ValueOf<Package, Table, Type>
      : never;
} & {
  -readonly [Key in keyof Fields as Fields[Key] extends `repeated ${string}` | `${Scalar} ${number}`
    ? never
    : Camel<Key & string>]?: Fields[Key] extends `${infer Type} ${number}`
    ? ValueOf<Package, Table, Type>
    : never;
};

/**
 * A message of a table, which is given as its type: single messages may be absent, other fields
 * have their defaults.
 */
export type MessageOf<
  Package extends string,
  Table,
  Name extends keyof Table & string,
> = Message<`${Package}.${Name}`> & FieldsOf<Package, Table, Table[Name]>;

const isScalar = (type: string): type is Scalar => type in SCALARS;

/**
 * The descriptor of a package of messages, in the table's order. Every single field knows whether
 * it was set, and repeated numbers are packed.
 */
export function describeMessages(packageName: string, table: MessageTable): DescFile {
  const file = create(FileDescriptorProtoSchema, {
    name: `${packageName}.proto`,
    package: packageName,
    syntax: "proto2",
    messageType: Object.entries(table).map(([name, fields]) => ({
      name,
      field: Object.entries(fields).map(([field, rule]) => fieldOf(packageName, field, rule)),
    })),
  });
  return fileDesc(Buffer.from(toBinary(FileDescriptorProtoSchema, file)).toString("base64"));
}

function fieldOf(packageName: string, name: string, rule: FieldRule) {
  const [number = "", type = "", repeated] = rule.split(" ").reverse();
  const packed = repeated !== undefined && isScalar(type) && type !== "bytes" && type !== "string";
  return {
    name,
    number: Number(number),
    label: repeated === undefined ? Label.OPTIONAL : Label.REPEATED,
    type: isScalar(type) ? SCALARS[type] : Type.MESSAGE,
    ...(isScalar(type) ? {} : { typeName: `.${packageName}.${type}` }),
    ...(packed ? { options: { packed } } : {}),
  };
}
