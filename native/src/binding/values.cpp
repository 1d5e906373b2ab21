#include "values.h"

#include <cstring>

namespace vantage {

Napi::Float32Array floatArray(Napi::Env env, const float* numbers, size_t count) {
  Napi::Float32Array array = Napi::Float32Array::New(env, count);
  if (count > 0) std::memcpy(array.Data(), numbers, count * sizeof(float));
  return array;
}

Napi::Float32Array floatArray(Napi::Env env, const std::vector<float>& numbers) {
  return floatArray(env, numbers.data(), numbers.size());
}

Napi::Uint8Array byteArray(Napi::Env env, const std::vector<uint8_t>& numbers) {
  Napi::Uint8Array array = Napi::Uint8Array::New(env, numbers.size());
  if (!numbers.empty()) std::memcpy(array.Data(), numbers.data(), numbers.size());
  return array;
}

Napi::Array stringArray(Napi::Env env, const std::vector<std::string>& items) {
  return arrayOf(env, items, [&](const std::string& item) { return Napi::String::New(env, item); });
}

Napi::Array numberArray(Napi::Env env, const std::vector<int64_t>& items) {
  return arrayOf(env, items,
                 [&](int64_t item) { return Napi::Number::New(env, static_cast<double>(item)); });
}

}  // namespace vantage
