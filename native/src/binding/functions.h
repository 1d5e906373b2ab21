// The addon's plain functions, which need no engine: they run on Node's thread and throw errors
// with a code. Each is defined in the file of its noun.
#pragma once
#include <napi.h>

#include "async.h"

namespace vantage {

/** `describe()`: description.cpp. */
Napi::Value describeMachine(const Napi::CallbackInfo& info);
/** `alive()`: description.cpp. */
Napi::Value countAlive(const Napi::CallbackInfo& info);
/** `evaluateDetections(input)`: evaluation.cpp. */
Napi::Value evaluateDetections(const Napi::CallbackInfo& info);
/** `assignTargets(input)`: assignment.cpp. */
Napi::Value assignTargetsOf(const Napi::CallbackInfo& info);

/** Runs the body of a plain function; what the engine throws becomes a JS error with its code. */
template <typename Body>
Napi::Value throwing(const Napi::CallbackInfo& info, Body body) {
  try {
    return body(info.Env());
  } catch (const Napi::Error&) {
    throw;
  } catch (...) {
    throw Napi::Error(info.Env(), errorValue(info.Env(), errorOf(std::current_exception())));
  }
}

}  // namespace vantage
