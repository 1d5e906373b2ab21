// Metrics: of an engine's weights on a split, and of detections that were made elsewhere.
#include <algorithm>

#include "arguments.h"
#include "boxes.h"
#include "engine-object.h"
#include "functions.h"
#include "values.h"

namespace vantage {
namespace {

constexpr int kClassesMax = 10'000;

Napi::Value toJs(Napi::Env env, const ClassMetrics& metrics) {
  Napi::Object object = Napi::Object::New(env);
  object["precision"] = metrics.precision;
  object["recall"] = metrics.recall;
  object["mAP50"] = metrics.mAP50;
  object["mAP50_95"] = metrics.mAP50_95;
  object["truths"] = static_cast<double>(metrics.truths);
  return object;
}

Napi::Value toJs(Napi::Env env, const Evaluation& evaluation) {
  Napi::Object object = Napi::Object::New(env);
  object["precision"] = evaluation.precision;
  object["recall"] = evaluation.recall;
  object["mAP50"] = evaluation.mAP50;
  object["mAP50_95"] = evaluation.mAP50_95;
  object["confidence"] = evaluation.confidence;
  const auto ofClass = [&](const std::optional<ClassMetrics>& metrics) {
    return metrics ? toJs(env, *metrics) : env.Null();
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
  object["seconds"] = evaluation.seconds;
  return object;
}

/** Detections and ground truths made elsewhere, by image. */
struct EvaluationInput {
  int classes = 0;
  std::vector<std::vector<Detection>> detections;
  std::vector<std::vector<Truth>> truths;
};

template <typename Box>
void checkClasses(const std::vector<std::vector<Box>>& images, int classes, const char* where) {
  for (const auto& image : images)
    for (const Box& box : image)
      if (!(box.cls >= 0 && box.cls < static_cast<float>(classes)))
        refuseArgument(where, "name a class that is not there");
}

EvaluationInput readInput(const Napi::Value& value) {
  const Fields from(value, "");
  EvaluationInput input;
  input.classes = from.integer("classes", 1, kClassesMax);
  for (const Napi::Value& detections : from.list("detections"))
    input.detections.push_back(readDetections(detections, from.pathOf("detections")));
  for (const Napi::Value& truths : from.list("truths"))
    input.truths.push_back(readTruths(truths, from.pathOf("truths")));
  if (input.detections.size() != input.truths.size())
    refuseArgument("truths", "must be as many as detections");
  checkClasses(input.detections, input.classes, "detections");
  checkClasses(input.truths, input.classes, "truths");
  return input;
}

}  // namespace

Napi::Value EngineObject::evaluate(Info info) {
  return promised(info, [&] {
    const Fields options(info[0], "options");
    EvaluationOptions request;
    request.split = readSplit(options.text("split"));
    request.batch = options.integer("batch", 1, kImagesMax);
    request.imageSize = options.imageSize("imageSize");
    const auto work = [this, request](Reporter& report) {
      return engine().evaluate(request, [&](int64_t images, int64_t of) {
        report([images, of](Napi::Env env) {
          Napi::Object progress = Napi::Object::New(env);
          progress["images"] = static_cast<double>(images);
          progress["of"] = static_cast<double>(of);
          return progress;
        });
      });
    };
    return call(info.Env(), info[1], work,
                [](Napi::Env env, const Evaluation& evaluation) { return toJs(env, evaluation); });
  });
}

Napi::Value evaluateDetections(const Napi::CallbackInfo& info) {
  return throwing(info, [&](Napi::Env env) {
    const EvaluationInput input = readInput(info[0]);
    Evaluator evaluator(input.classes);
    for (size_t image = 0; image < input.detections.size(); ++image)
      evaluator.add(input.detections[image], input.truths[image]);
    return toJs(env, evaluator.evaluate());
  });
}

}  // namespace vantage
