#include "arguments.h"

#include <cmath>

namespace vantage {
namespace {

/** Items of an array; a sparse one of four thousand million would take all memory. */
constexpr uint32_t kItemsMax = 10'000'000;

}  // namespace

void refuseArgument(const std::string& where, const std::string& why) {
  throw EngineError("bad_argument", where + " " + why);
}

Fields::Fields(const Napi::Value& value, std::string path) : path_(std::move(path)) {
  if (!value.IsObject())
    refuseArgument(path_.empty() ? "the argument" : path_, "must be an object");
  object_ = value.As<Napi::Object>();
}

std::string Fields::pathOf(const char* name, size_t index) const {
  return pathOf(name) + "[" + std::to_string(index) + "]";
}

bool Fields::has(const char* name) const { return !object_.Get(name).IsUndefined(); }

double Fields::number(const char* name, double min, double max) const {
  const Napi::Value value = object_.Get(name);
  if (!value.IsNumber()) refuseArgument(pathOf(name), "must be a number");
  const double number = value.As<Napi::Number>().DoubleValue();
  if (!(number >= min && number <= max)) refuseArgument(pathOf(name), "is out of its range");
  return number;
}

int Fields::integer(const char* name, double min, double max) const {
  const double value = number(name, min, max);
  if (value != std::floor(value)) refuseArgument(pathOf(name), "must be an integer");
  return static_cast<int>(value);
}

int Fields::imageSize(const char* name) const {
  const int side = integer(name, kSideMin, kSideMax);
  if (side % kSideMin != 0) refuseArgument(pathOf(name), "must be a multiple of 32");
  return side;
}

bool Fields::flag(const char* name) const {
  const Napi::Value value = object_.Get(name);
  if (!value.IsBoolean()) refuseArgument(pathOf(name), "must be true or false");
  return value.As<Napi::Boolean>().Value();
}

std::string Fields::text(const char* name) const {
  return readText(object_.Get(name), pathOf(name).c_str());
}

Fields Fields::object(const char* name) const { return {object_.Get(name), pathOf(name)}; }

std::vector<Napi::Value> Fields::list(const char* name) const {
  const Napi::Value value = object_.Get(name);
  if (!value.IsArray()) refuseArgument(pathOf(name), "must be an array");
  const Napi::Array array = value.As<Napi::Array>();
  std::vector<Napi::Value> items;
  const uint32_t length = array.Length();
  if (length > kItemsMax) refuseArgument(pathOf(name), "is too long");
  for (uint32_t i = 0; i < length; ++i) items.push_back(array.Get(i));
  return items;
}

std::vector<int> Fields::indices(const char* name) const {
  std::vector<int> indices;
  for (const Napi::Value& item : list(name)) {
    const double number = item.IsNumber() ? item.As<Napi::Number>().DoubleValue() : -1;
    if (!(number >= 0 && number <= kIntMax) || number != std::floor(number))
      refuseArgument(pathOf(name), "must be indices of nodes");
    indices.push_back(static_cast<int>(number));
  }
  return indices;
}

Napi::Float32Array Fields::floats(const char* name) const {
  return readFloats(object_.Get(name), pathOf(name));
}

Napi::Uint8Array Fields::bytes(const char* name) const {
  return readBytes(object_.Get(name), pathOf(name));
}

Napi::Int32Array Fields::integers(const char* name) const {
  const Napi::Value value = object_.Get(name);
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array)
    refuseArgument(pathOf(name), "must be an Int32Array");
  return value.As<Napi::Int32Array>();
}

std::string readText(const Napi::Value& value, const char* name) {
  if (!value.IsString()) refuseArgument(name, "must be a string");
  return value.As<Napi::String>().Utf8Value();
}

Napi::Float32Array readFloats(const Napi::Value& value, const std::string& where) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_float32_array)
    refuseArgument(where, "must be a Float32Array");
  return value.As<Napi::Float32Array>();
}

Napi::Uint8Array readBytes(const Napi::Value& value, const std::string& where) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array)
    refuseArgument(where, "must be a Uint8Array");
  return value.As<Napi::Uint8Array>();
}

std::string readSplit(const std::string& split) {
  if (split != "train" && split != "val") refuseArgument("split", "is train or val");
  return split;
}

}  // namespace vantage
