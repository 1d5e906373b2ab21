// Arguments of JS calls as plain values, read on Node's thread. A wrong value fails with
// `bad_argument` and says at which field of which argument it was.
#pragma once
#include <napi.h>

#include <limits>
#include <string>
#include <vector>

#include "../engine.h"

namespace vantage {

constexpr double kIntMax = std::numeric_limits<int>::max();
/** The largest integer up to which JS counts without gaps: 2^53 − 1. */
constexpr double kSafeIntegerMax = 9007199254740991.0;
/** Images of a batch. */
constexpr int kImagesMax = 4096;
/** Sides of an input in pixels. */
constexpr int kSideMin = 32, kSideMax = 8192;
/** Epochs of a training, and batches of an epoch. */
constexpr double kEpochsMax = 1e6, kBatchesMax = 1e9;

[[noreturn]] void refuseArgument(const std::string& where, const std::string& why);

/** The fields of a JS object. Readers of a field fail where it is of another type or range. */
class Fields {
 public:
  /** `path` names the object in errors; empty for the call's only argument. */
  Fields(const Napi::Value& value, std::string path);

  bool has(const char* name) const;
  double number(const char* name, double min, double max) const;
  int integer(const char* name, double min, double max) const;
  /** Side of a square input in pixels: a multiple of 32. */
  int imageSize(const char* name) const;
  bool flag(const char* name) const;
  std::string text(const char* name) const;
  Fields object(const char* name) const;
  std::vector<Napi::Value> list(const char* name) const;
  /** Integers from 0: indices of nodes. */
  std::vector<int> indices(const char* name) const;
  Napi::Float32Array floats(const char* name) const;
  Napi::Uint8Array bytes(const char* name) const;
  Napi::Int32Array integers(const char* name) const;
  Napi::Value value(const char* name) const { return object_.Get(name); }
  /** How errors name a field of this object. */
  std::string pathOf(const char* name) const { return path_.empty() ? name : path_ + "." + name; }
  /** How errors name an item of a list of this object. */
  std::string pathOf(const char* name, size_t index) const;

 private:
  Napi::Object object_;
  std::string path_;
};

std::string readText(const Napi::Value& value, const char* name);
Napi::Float32Array readFloats(const Napi::Value& value, const std::string& where);
Napi::Uint8Array readBytes(const Napi::Value& value, const std::string& where);
/** `train` or `val`. */
std::string readSplit(const std::string& split);

}  // namespace vantage
