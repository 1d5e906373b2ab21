// The part of Core ML's messages that an ML program needs, as its public format numbers their
// fields (coremltools, mlmodel/format: Model.proto, FeatureTypes.proto, MIL.proto). A map is on the
// wire a list of entries of key and value.

import { type GenMessage, messageDesc } from "@bufbuild/protobuf/codegenv2";
import { describeMessages, type MessageOf } from "../base/protobuf.ts";

const MESSAGES = {
  Model: {
    specification_version: "int32 1",
    description: "ModelDescription 2",
    ml_program: "Program 502",
  },
  ModelDescription: {
    input: "repeated Feature 1",
    output: "repeated Feature 10",
    metadata: "Metadata 100",
  },
  Metadata: {
    short_description: "string 1",
    version_string: "string 2",
    author: "string 3",
    user_defined: "repeated TextEntry 100",
  },
  TextEntry: { key: "string 1", value: "string 2" },
  Feature: { name: "string 1", short_description: "string 2", type: "FeatureType 3" },
  FeatureType: { image_type: "ImageType 4", multi_array_type: "ArrayType 5" },
  ImageType: { width: "int64 1", height: "int64 2", color_space: "int32 3" },
  ArrayType: { shape: "repeated int64 1", data_type: "int32 2" },
  Program: { version: "int64 1", functions: "repeated FunctionEntry 2" },
  FunctionEntry: { key: "string 1", value: "Function 2" },
  Function: {
    inputs: "repeated NamedValueType 1",
    opset: "string 2",
    block_specializations: "repeated BlockEntry 3",
  },
  BlockEntry: { key: "string 1", value: "Block 2" },
  Block: { outputs: "repeated string 2", operations: "repeated Operation 3" },
  Operation: {
    type: "string 1",
    inputs: "repeated ArgumentEntry 2",
    outputs: "repeated NamedValueType 3",
    attributes: "repeated ValueEntry 5",
  },
  ArgumentEntry: { key: "string 1", value: "Argument 2" },
  Argument: { arguments: "repeated Binding 1" },
  Binding: { name: "string 1" },
  ValueEntry: { key: "string 1", value: "Value 2" },
  NamedValueType: { name: "string 1", type: "ValueType 2" },
  ValueType: { tensor_type: "TensorType 1" },
  TensorType: { data_type: "int32 1", rank: "int64 2", dimensions: "repeated Dimension 3" },
  Dimension: { constant: "ConstantDimension 1" },
  ConstantDimension: { size: "uint64 1" },
  Value: {
    type: "ValueType 2",
    immediate_value: "ImmediateValue 3",
    blob_file_value: "BlobFileValue 5",
  },
  ImmediateValue: { tensor: "TensorValue 1" },
  BlobFileValue: { file_name: "string 1", offset: "uint64 2" },
  TensorValue: {
    floats: "RepeatedFloats 1",
    ints: "RepeatedInts 2",
    bools: "RepeatedBools 3",
    strings: "RepeatedStrings 4",
    bytes: "RepeatedBytes 7",
  },
  RepeatedFloats: { values: "repeated float 1" },
  RepeatedInts: { values: "repeated int32 1" },
  RepeatedBools: { values: "repeated bool 1" },
  RepeatedStrings: { values: "repeated string 1" },
  RepeatedBytes: { values: "bytes 1" },
} as const;
type Name = keyof typeof MESSAGES;

/** A message of the table. */
export type CoremlMessage<Of extends Name> = MessageOf<"coreml", typeof MESSAGES, Of>;

const file = describeMessages("coreml", MESSAGES);
const names = Object.keys(MESSAGES);
const schema = <Of extends Name>(name: Of): GenMessage<CoremlMessage<Of>> =>
  messageDesc<CoremlMessage<Of>>(file, names.indexOf(name));

export const Model = schema("Model");
export const Operation = schema("Operation");
export const Value = schema("Value");

/** iOS 15 and macOS 12, the first with ML programs, and the operations they know. */
export const SPECIFICATION_VERSION = 6;
export const OPSET = "CoreML5";

/** Numbers of MIL's DataType. */
export const MIL_TYPES = { bool: 1, string: 2, float16: 10, float32: 11, int32: 23 } as const;
export type MilType = keyof typeof MIL_TYPES;

/** Values of ArrayFeatureType's ArrayDataType, and of ImageFeatureType's ColorSpace. */
export const ARRAY_FLOAT32 = 65_568;
export const COLOR_RGB = 20;

/** Files of a package under `Data/`, and the folder that the manifest names. */
export const MODEL_PATH = "com.apple.CoreML/model.mlmodel";
export const WEIGHTS_FOLDER = "com.apple.CoreML/weights";
export const WEIGHTS_FILE = "weight.bin";
/** What programs call the file of weights. */
export const WEIGHTS_REFERENCE = "@model_path/weights/weight.bin";
