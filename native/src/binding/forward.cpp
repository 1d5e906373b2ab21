// Passes through the network, and the tensors of its state.
#include "arguments.h"
#include "batch.h"
#include "boxes.h"
#include "engine-object.h"
#include "values.h"

namespace vantage {
namespace {

Napi::Value toJs(Napi::Env env, const TensorValues& tensor) {
  Napi::Object object = Napi::Object::New(env);
  object["shape"] = numberArray(env, tensor.shape);
  object["values"] = floatArray(env, tensor.values);
  return object;
}

Napi::Object toJs(Napi::Env env, const HeadValues& head) {
  Napi::Object object = Napi::Object::New(env);
  const auto maps = [&](const std::vector<TensorValues>& levels) {
    return arrayOf(env, levels, [&](const TensorValues& map) { return toJs(env, map); });
  };
  object["box"] = maps(head.box);
  object["cls"] = maps(head.cls);
  if (!head.mask.empty()) object["mask"] = maps(head.mask);
  return object;
}

double readConfidence(const Napi::Value& value) {
  if (!value.IsNumber()) refuseArgument("confidence", "must be a number");
  return value.As<Napi::Number>().DoubleValue();
}

Napi::Value toJs(Napi::Env env, const MapValues& maps) {
  Napi::Object object = Napi::Object::New(env);
  if (maps.hasO2m) object["o2m"] = toJs(env, maps.o2m);
  object["o2o"] = toJs(env, maps.o2o);
  if (maps.hasPrototypes) object["prototypes"] = toJs(env, maps.prototypes);
  if (maps.hasSemantic) object["semantic"] = toJs(env, maps.semantic);
  return object;
}

}  // namespace

Napi::Value EngineObject::forward(Info info) {
  return promised(info, [&] {
    const BatchCopy batch = readImages(info[0]);
    const bool training = Fields(info[1], "options").flag("training");
    const auto work = [this, batch, training](Reporter&) {
      return engine().forward(batch.view(), training);
    };
    return call(info.Env(), {}, work,
                [](Napi::Env env, const MapValues& maps) { return toJs(env, maps); });
  });
}

Napi::Value EngineObject::predict(Info info) {
  return promised(info, [&] {
    const BatchCopy batch = readImages(info[0]);
    const double confidence = readConfidence(info[1]);
    const auto work = [this, batch, confidence](Reporter&) {
      return engine().predict(batch.view(), confidence);
    };
    return call(info.Env(), {}, work,
                [](Napi::Env env, const auto& detections) { return toJs(env, detections); });
  });
}

Napi::Value EngineObject::predictMasks(Info info) {
  return promised(info, [&] {
    const BatchCopy batch = readImages(info[0]);
    const double confidence = readConfidence(info[1]);
    const auto work = [this, batch, confidence](Reporter&) {
      return engine().predictMasks(batch.view(), confidence);
    };
    const auto toJs = [](Napi::Env env, const MaskedImage& image) {
      Napi::Object object = Napi::Object::New(env);
      object["detections"] = detectionArray(env, image.boxes);
      object["masks"] = byteArray(env, image.masks);
      return object;
    };
    return call(info.Env(), {}, work, [toJs](Napi::Env env, const auto& images) {
      return arrayOf(env, images, [&](const MaskedImage& image) { return toJs(env, image); });
    });
  });
}

Napi::Value EngineObject::tensor(Info info) {
  return promised(info, [&] {
    const std::string name = readText(info[0], "name"), of = readText(info[1], "of");
    if (of != "model" && of != "ema" && of != "gradient")
      refuseArgument("of", "is model, ema or gradient");
    const auto work = [this, name, of](Reporter&) { return engine().tensor(name, of); };
    return call(info.Env(), {}, work,
                [](Napi::Env env, const TensorValues& values) { return toJs(env, values); });
  });
}

}  // namespace vantage
