// ONNX's messages, as onnx.proto numbers their fields: those that we write or look into. 64-bit
// integers are bigints.

import { type GenMessage, messageDesc } from "@bufbuild/protobuf/codegenv2";
import { describeMessages, type MessageOf } from "../base/protobuf.ts";

const MESSAGES = {
  ModelProto: {
    ir_version: "int64 1",
    producer_name: "string 2",
    producer_version: "string 3",
    domain: "string 4",
    model_version: "int64 5",
    doc_string: "string 6",
    graph: "GraphProto 7",
    opset_import: "repeated OperatorSetIdProto 8",
    metadata_props: "repeated StringStringEntryProto 14",
  },
  GraphProto: {
    node: "repeated NodeProto 1",
    name: "string 2",
    initializer: "repeated TensorProto 5",
    doc_string: "string 10",
    input: "repeated ValueInfoProto 11",
    output: "repeated ValueInfoProto 12",
    value_info: "repeated ValueInfoProto 13",
  },
  NodeProto: {
    input: "repeated string 1",
    output: "repeated string 2",
    name: "string 3",
    op_type: "string 4",
    attribute: "repeated AttributeProto 5",
    doc_string: "string 6",
    domain: "string 7",
  },
  AttributeProto: {
    name: "string 1",
    f: "float 2",
    i: "int64 3",
    s: "bytes 4",
    t: "TensorProto 5",
    g: "GraphProto 6",
    floats: "repeated float 7",
    ints: "repeated int64 8",
    strings: "repeated bytes 9",
    tensors: "repeated TensorProto 10",
    graphs: "repeated GraphProto 11",
    doc_string: "string 13",
    type: "int32 20",
    ref_attr_name: "string 21",
  },
  TensorProto: {
    dims: "repeated int64 1",
    data_type: "int32 2",
    float_data: "repeated float 4",
    int32_data: "repeated int32 5",
    string_data: "repeated bytes 6",
    int64_data: "repeated int64 7",
    name: "string 8",
    raw_data: "bytes 9",
    double_data: "repeated double 10",
    uint64_data: "repeated uint64 11",
    doc_string: "string 12",
    external_data: "repeated StringStringEntryProto 13",
    data_location: "int32 14",
  },
  ValueInfoProto: { name: "string 1", type: "TypeProto 2", doc_string: "string 3" },
  TypeProto: { tensor_type: "TensorTypeProto 1", denotation: "string 6" },
  TensorTypeProto: { elem_type: "int32 1", shape: "TensorShapeProto 2" },
  TensorShapeProto: { dim: "repeated DimensionProto 1" },
  DimensionProto: { dim_value: "int64 1", dim_param: "string 2", denotation: "string 3" },
  OperatorSetIdProto: { domain: "string 1", version: "int64 2" },
  StringStringEntryProto: { key: "string 1", value: "string 2" },
} as const;
type Name = keyof typeof MESSAGES;

/** A message of the table: single messages may be absent, other fields have their defaults. */
export type OnnxMessage<Of extends Name> = MessageOf<"onnx", typeof MESSAGES, Of>;

const file = describeMessages("onnx", MESSAGES);
const names = Object.keys(MESSAGES);
const schema = <Of extends Name>(name: Of): GenMessage<OnnxMessage<Of>> =>
  messageDesc<OnnxMessage<Of>>(file, names.indexOf(name));

export const ModelProto = schema("ModelProto");
export const NodeProto = schema("NodeProto");
export const AttributeProto = schema("AttributeProto");
export const TensorProto = schema("TensorProto");
export const ValueInfoProto = schema("ValueInfoProto");
export const StringStringEntryProto = schema("StringStringEntryProto");
