// What `require` gives Node: the names of native/index.d.ts, each with the file that binds it.
#include <napi.h>

#include "async.h"
#include "engine-object.h"
#include "functions.h"

namespace vantage {
namespace {

Napi::Object exportAll(Napi::Env env, Napi::Object exports) {
  ExitHooks::install(env);
  exports["Engine"] = EngineObject::define(env);
  const auto add = [&](const char* name, Napi::Value (*function)(const Napi::CallbackInfo&)) {
    exports[name] = Napi::Function::New(env, function, name);
  };
  add("describe", describeMachine);
  add("alive", countAlive);
  add("evaluateDetections", evaluateDetections);
  add("assignTargets", assignTargetsOf);
  return exports;
}

}  // namespace
}  // namespace vantage

static Napi::Object initialize(Napi::Env env, Napi::Object exports) {
  return vantage::exportAll(env, exports);
}
NODE_API_MODULE(vantage, initialize)
