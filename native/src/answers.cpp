// Answers of native/index.d.ts, made of plain values.
#include "convert.h"

#include <algorithm>
#include <cstring>

namespace vantage {
namespace {

constexpr int kFoundFloats = 6;

Napi::Float32Array floatArray(Napi::Env env, const float* values, size_t count) {
  Napi::Float32Array array = Napi::Float32Array::New(env, count);
  if (count > 0) std::memcpy(array.Data(), values, count * sizeof(float));
  return array;
}

Napi::Float32Array floatArray(Napi::Env env, const std::vector<float>& values) {
  return floatArray(env, values.data(), values.size());
}

template <typename Item, typename Convert>
Napi::Array arrayOf(Napi::Env env, const std::vector<Item>& items, Convert convert) {
  Napi::Array array = Napi::Array::New(env, items.size());
  for (uint32_t at = 0; at < items.size(); ++at) array.Set(at, convert(items[at]));
  return array;
}

Napi::Array texts(Napi::Env env, const std::vector<std::string>& items) {
  return arrayOf(env, items, [&](const std::string& item) { return Napi::String::New(env, item); });
}

Napi::Array numbers(Napi::Env env, const std::vector<int64_t>& items) {
  return arrayOf(env, items,
                 [&](int64_t item) { return Napi::Number::New(env, static_cast<double>(item)); });
}

Napi::Object headMaps(Napi::Env env, const HeadValues& head) {
  Napi::Object object = Napi::Object::New(env);
  const auto maps = [&](const std::vector<TensorValues>& levels) {
    return arrayOf(env, levels, [&](const TensorValues& map) { return toJs(env, map); });
  };
  object["box"] = maps(head.box);
  object["cls"] = maps(head.cls);
  if (!head.mask.empty()) object["mask"] = maps(head.mask);
  return object;
}

}  // namespace

Napi::Value toJs(Napi::Env env, const TensorValues& tensor) {
  Napi::Object object = Napi::Object::New(env);
  object["shape"] = numbers(env, tensor.shape);
  object["values"] = floatArray(env, tensor.values);
  return object;
}

Napi::Value toJs(Napi::Env env, const MapValues& maps) {
  Napi::Object object = Napi::Object::New(env);
  if (maps.hasO2m) object["o2m"] = headMaps(env, maps.o2m);
  object["o2o"] = headMaps(env, maps.o2o);
  if (maps.hasPrototypes) object["prototypes"] = toJs(env, maps.prototypes);
  return object;
}

Napi::Value toJs(Napi::Env env, const LoadReport& report) {
  Napi::Object object = Napi::Object::New(env);
  object["matched"] = texts(env, report.matched);
  object["mismatched"] = arrayOf(env, report.mismatched, [&](const LoadReport::Mismatch& mismatch) {
    Napi::Object entry = Napi::Object::New(env);
    entry["name"] = mismatch.name;
    entry["file"] = numbers(env, mismatch.file);
    entry["graph"] = numbers(env, mismatch.graph);
    return entry;
  });
  object["missing"] = texts(env, report.missing);
  object["unused"] = texts(env, report.unused);
  object["metadata"] = toJs(env, report.metadata);
  return object;
}

Napi::Value toJs(Napi::Env env, const std::map<std::string, std::string>& metadata) {
  Napi::Object object = Napi::Object::New(env);
  for (const auto& [name, value] : metadata) object.Set(name, Napi::String::New(env, value));
  return object;
}

Napi::Value toJs(Napi::Env env, const LossItems& losses) {
  Napi::Object object = Napi::Object::New(env);
  object["total"] = losses.total;
  object["box"] = losses.box;
  object["cls"] = losses.cls;
  object["dfl"] = losses.dfl;
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
  return object;
}

Napi::Value toJs(Napi::Env env, const Evaluation& evaluation, double seconds) {
  Napi::Object object = Napi::Object::New(env);
  object["precision"] = evaluation.precision;
  object["recall"] = evaluation.recall;
  object["mAP50"] = evaluation.mAP50;
  object["mAP50_95"] = evaluation.mAP50_95;
  object["confidence"] = evaluation.confidence;
  const auto ofClass = [&](const std::optional<ClassMetrics>& metrics) -> Napi::Value {
    if (!metrics) return env.Null();
    Napi::Object entry = Napi::Object::New(env);
    entry["precision"] = metrics->precision;
    entry["recall"] = metrics->recall;
    entry["mAP50"] = metrics->mAP50;
    entry["mAP50_95"] = metrics->mAP50_95;
    entry["truths"] = static_cast<double>(metrics->truths);
    return entry;
  };
  object["perClass"] = arrayOf(env, evaluation.perClass, ofClass);
  Napi::Object curves = Napi::Object::New(env);
  curves["precision"] = floatArray(env, evaluation.precisionCurve);
  curves["recall"] = floatArray(env, evaluation.recallCurve);
  curves["f1"] = floatArray(env, evaluation.f1Curve);
  object["curves"] = curves;
  object["precisionByRecall"] = floatArray(env, evaluation.precisionByRecall);
  Napi::Int32Array confusion = Napi::Int32Array::New(env, evaluation.confusion.size());
  std::copy(evaluation.confusion.begin(), evaluation.confusion.end(), confusion.Data());
  object["confusion"] = confusion;
  object["images"] = static_cast<double>(evaluation.images);
  object["seconds"] = seconds;
  return object;
}

Napi::Value toJs(Napi::Env env, const RenderedBatch& batch) {
  Napi::Object object = Napi::Object::New(env);
  object["images"] = floatArray(env, batch.images);
  object["count"] = batch.count;
  object["height"] = batch.size;
  object["width"] = batch.size;
  object["boxes"] = floatArray(env, batch.boxes);
  return object;
}

Napi::Value toJs(Napi::Env env, const Description& description) {
  Napi::Object object = Napi::Object::New(env);
  object["torch"] = description.torch;
  object["cudaKernels"] = description.cudaKernels;
  object["gpus"] = arrayOf(env, description.gpus, [&](const Gpu& gpu) {
    Napi::Object entry = Napi::Object::New(env);
    entry["name"] = gpu.name;
    entry["memoryBytes"] = static_cast<double>(gpu.memoryBytes);
    return entry;
  });
  object["bf16"] = description.bf16;
  return object;
}

Napi::Value toJs(Napi::Env env, const std::vector<std::vector<Found>>& detections) {
  static_assert(sizeof(Found) == kFoundFloats * sizeof(float));
  return arrayOf(env, detections, [&](const std::vector<Found>& found) {
    return floatArray(env, reinterpret_cast<const float*>(found.data()),
                      found.size() * kFoundFloats);
  });
}

}  // namespace vantage
