// Training: epochs, single steps, losses, and what a step costs.
#include "arguments.h"
#include "batch.h"
#include "engine-object.h"
#include "options.h"

namespace vantage {
namespace {

constexpr double kProcessesMax = 64, kTimeoutSecondsMax = 3600;

Napi::Value toJs(Napi::Env env, const LossItems& losses) {
  Napi::Object object = Napi::Object::New(env);
  object["total"] = losses.total;
  object["box"] = losses.box;
  object["cls"] = losses.cls;
  object["dfl"] = losses.dfl;
  if (!losses.hasMasks) return object;
  object["mask"] = losses.mask;
  object["semantic"] = losses.semantic;
  return object;
}

Napi::Value toJs(Napi::Env env, const StepProgress& progress) {
  Napi::Object object = Napi::Object::New(env);
  object["epoch"] = progress.epoch;
  object["batch"] = progress.batch;
  object["batches"] = progress.batches;
  object["losses"] = toJs(env, progress.losses);
  object["lr"] = progress.lr;
  object["imagesPerSecond"] = progress.imagesPerSecond;
  object["memoryBytes"] = static_cast<double>(progress.memoryBytes);
  return object;
}

Napi::Value toJs(Napi::Env env, const EpochResult& result) {
  Napi::Object object = Napi::Object::New(env);
  object["losses"] = toJs(env, result.losses);
  object["lr"] = result.lr;
  object["batch"] = result.batch;
  object["batches"] = result.batches;
  object["images"] = static_cast<double>(result.images);
  Napi::Object seconds = Napi::Object::New(env);
  seconds["data"] = result.data;
  seconds["forward"] = result.forward;
  seconds["backward"] = result.backward;
  seconds["optimizer"] = result.optimizer;
  object["seconds"] = seconds;
  object["skipped"] = static_cast<double>(result.skipped);
  object["recorded"] = result.recorded;
  return object;
}

}  // namespace

Napi::Value EngineObject::trainEpoch(Info info) {
  return promised(info, [&] {
    const Fields options(info[0], "options");
    const int epoch = options.integer("epoch", 0, kEpochsMax);
    const int from = options.integer("from", 0, kBatchesMax);
    const auto work = [this, epoch, from](Reporter& report) {
      return engine().trainEpoch(epoch, from, [&](const StepProgress& progress) {
        report([progress](Napi::Env env) { return toJs(env, progress); });
      });
    };
    return call(info.Env(), info[1], work,
                [](Napi::Env env, const EpochResult& result) { return toJs(env, result); });
  });
}

Napi::Value EngineObject::join(Info info) {
  return promised(info, [&] {
    const Fields from(info[0], "options");
    GroupOptions options;
    options.store = from.text("store");
    options.size = from.integer("size", 2, kProcessesMax);
    options.rank = from.integer("rank", 0, options.size - 1);
    options.synchronizesNorms = from.flag("synchronizedNorm");
    options.timeoutSeconds = from.number("timeoutSeconds", 1, kTimeoutSecondsMax);
    const auto work = [this, options](Reporter&) {
      engine().join(options);
      return true;
    };
    return call(info.Env(), {}, work, [](Napi::Env env, bool) { return env.Undefined(); });
  });
}

Napi::Value EngineObject::step(Info info) {
  return promised(info, [&] {
    const BatchCopy batch = readLabeledImages(info[0]);
    const Fields options(info[1], "options");
    const int epoch = options.integer("epoch", 0, kEpochsMax);
    const int iteration = options.integer("iteration", 0, kBatchesMax);
    const auto work = [this, batch, epoch, iteration](Reporter&) {
      return engine().step(batch.view(), epoch, iteration);
    };
    return call(info.Env(), {}, work,
                [](Napi::Env env, const LossItems& items) { return toJs(env, items); });
  });
}

Napi::Value EngineObject::losses(Info info) {
  return promised(info, [&] {
    const BatchCopy batch = readLabeledImages(info[0]);
    const double share = Fields(info[1], "options").number("o2mShare", 0, 1);
    const auto work = [this, batch, share](Reporter&) {
      return engine().losses(batch.view(), share);
    };
    return call(info.Env(), {}, work,
                [](Napi::Env env, const LossItems& items) { return toJs(env, items); });
  });
}

Napi::Value EngineObject::probe(Info info) {
  return promised(info, [&] {
    const Fields from(info[0], "options");
    const ProbeOptions options{from.integer("batch", 1, kImagesMax), from.imageSize("imageSize"),
                               readPrecision(from)};
    const auto work = [this, options](Reporter&) { return engine().probe(options); };
    return call(info.Env(), {}, work, [](Napi::Env env, const ProbeResult& result) {
      Napi::Object answer = Napi::Object::New(env);
      answer["bytes"] = static_cast<double>(result.bytes);
      answer["seconds"] = result.seconds;
      answer["cpuSeconds"] = result.cpuSeconds;
      return answer;
    });
  });
}

}  // namespace vantage
