// Plain values as JS arrays.
#pragma once
#include <napi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace vantage {

/** A Float32Array with a copy of `count` numbers. */
Napi::Float32Array floatArray(Napi::Env env, const float* numbers, size_t count);
Napi::Float32Array floatArray(Napi::Env env, const std::vector<float>& numbers);
/** A Uint8Array with a copy of the numbers. */
Napi::Uint8Array byteArray(Napi::Env env, const std::vector<uint8_t>& numbers);
Napi::Array stringArray(Napi::Env env, const std::vector<std::string>& items);
/** Numbers of JS: exact up to 2^53. */
Napi::Array numberArray(Napi::Env env, const std::vector<int64_t>& items);

/** An array of what `convert` makes of each item. */
template <typename Item, typename Convert>
Napi::Array arrayOf(Napi::Env env, const std::vector<Item>& items, Convert convert) {
  Napi::Array array = Napi::Array::New(env, items.size());
  for (uint32_t i = 0; i < items.size(); ++i) array.Set(i, convert(items[i]));
  return array;
}

}  // namespace vantage
