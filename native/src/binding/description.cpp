// What this build can do on this machine, and what of it is alive in this process.
#include "functions.h"
#include "values.h"

namespace vantage {
namespace {

Napi::Value toJs(Napi::Env env, const Description& description) {
  Napi::Object object = Napi::Object::New(env);
  object["torch"] = description.torch;
  object["torchSource"] = description.torchSource;
  object["cudaKernels"] = description.cudaKernels;
  object["gpus"] = arrayOf(env, description.gpus, [&](const Gpu& gpu) {
    Napi::Object entry = Napi::Object::New(env);
    entry["name"] = gpu.name;
    entry["memoryBytes"] = static_cast<double>(gpu.memoryBytes);
    if (!gpu.pciBusId.empty()) entry["pciBusId"] = gpu.pciBusId;
    return entry;
  });
  object["bf16"] = description.bf16;
  object["cpuBf16"] = description.cpuBf16;
  return object;
}

}  // namespace

Napi::Value describeMachine(const Napi::CallbackInfo& info) {
  return throwing(info, [](Napi::Env env) { return toJs(env, describe()); });
}

Napi::Value countAlive(const Napi::CallbackInfo& info) {
  return throwing(info, [](Napi::Env env) {
    const LiveCounts counts = alive();
    Napi::Object object = Napi::Object::New(env);
    object["engines"] = static_cast<double>(counts.engines);
    object["gpuBytes"] = static_cast<double>(counts.gpuBytes);
    return object;
  });
}

}  // namespace vantage
