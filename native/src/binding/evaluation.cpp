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

Napi::Int32Array countArray(Napi::Env env, const std::vector<int32_t>& counts) {
  Napi::Int32Array array = Napi::Int32Array::New(env, counts.size());
  std::copy(counts.begin(), counts.end(), array.Data());
  return array;
}

/** The figures by masks, where there are any. */
template <typename Metrics>
void setMasks(Napi::Object& object, const Metrics& metrics) {
  if (!metrics.maskMAP50) return;
  object["maskMAP50"] = *metrics.maskMAP50;
  object["maskMAP50_95"] = *metrics.maskMAP50_95;
}

Napi::Value toJs(Napi::Env env, const ClassMetrics& metrics) {
  Napi::Object object = Napi::Object::New(env);
  object["precision"] = metrics.precision;
  object["recall"] = metrics.recall;
  object["mAP50"] = metrics.mAP50;
  object["mAP50_95"] = metrics.mAP50_95;
  object["truths"] = static_cast<double>(metrics.truths);
  Napi::Object curves = Napi::Object::New(env);
  curves["precision"] = floatArray(env, metrics.curves.precision);
  curves["recall"] = floatArray(env, metrics.curves.recall);
  curves["f1"] = floatArray(env, metrics.curves.f1);
  curves["precisionByRecall"] = floatArray(env, metrics.curves.precisionByRecall);
  object["curves"] = curves;
  setMasks(object, metrics);
  return object;
}

Napi::Value toJs(Napi::Env env, const ValidationLosses& losses) {
  Napi::Object object = Napi::Object::New(env);
  object["box"] = losses.box;
  object["cls"] = losses.cls;
  object["dfl"] = losses.dfl;
  if (losses.mask) object["mask"] = *losses.mask;
  return object;
}

Napi::Value toJs(Napi::Env env, const Evaluation& evaluation) {
  Napi::Object object = Napi::Object::New(env);
  object["precision"] = evaluation.precision;
  object["recall"] = evaluation.recall;
  object["mAP50"] = evaluation.mAP50;
  object["mAP50_95"] = evaluation.mAP50_95;
  object["confidence"] = evaluation.confidence;
  setMasks(object, evaluation);
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
  object["confusion"] = countArray(env, evaluation.confusion);
  object["confidenceBins"] = countArray(env, evaluation.confidenceBins);
  if (evaluation.losses) object["losses"] = toJs(env, *evaluation.losses);
  object["images"] = static_cast<double>(evaluation.images);
  object["seconds"] = evaluation.seconds;
  return object;
}

/** Detections and ground truths made elsewhere, by image. */
struct EvaluationInput {
  int classes = 0;
  std::vector<std::vector<Detection>> detections;
  std::vector<std::vector<Truth>> truths;
  /** Their masks, by image; none where the caller gives none. */
  std::vector<std::vector<Bitmap>> detectionMasks, truthMasks;
};

/** Bitmaps of [boxes, height, width] bytes. */
std::vector<Bitmap> readBitmaps(const Napi::Value& value, const Fields& masks, size_t boxes,
                                const char* name) {
  const int height = masks.integer("height", 1, kSideMax);
  const int width = masks.integer("width", 1, kSideMax);
  const Napi::Uint8Array cells = readBytes(value, masks.pathOf(name));
  const size_t count = static_cast<size_t>(height) * static_cast<size_t>(width);
  if (cells.ElementLength() != boxes * count)
    refuseArgument(masks.pathOf(name), "must be height * width numbers a box");
  std::vector<Bitmap> bitmaps(boxes, Bitmap(width, height));
  for (size_t box = 0; box < boxes; ++box)
    for (size_t i = 0; i < count; ++i)
      if (cells.Data()[box * count + i])
        bitmaps[box].set(static_cast<int>(i % width), static_cast<int>(i / width));
  return bitmaps;
}

template <typename Box>
std::vector<std::vector<Bitmap>> readMasks(const Fields& masks, const char* name,
                                           const std::vector<std::vector<Box>>& boxes) {
  const std::vector<Napi::Value> images = masks.list(name);
  if (images.size() != boxes.size()) refuseArgument(masks.pathOf(name), "must be one an image");
  std::vector<std::vector<Bitmap>> bitmaps;
  for (size_t i = 0; i < images.size(); ++i)
    bitmaps.push_back(readBitmaps(images[i], masks, boxes[i].size(), name));
  return bitmaps;
}

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
  if (!from.has("masks")) return input;
  const Fields masks = from.object("masks");
  input.detectionMasks = readMasks(masks, "detections", input.detections);
  input.truthMasks = readMasks(masks, "truths", input.truths);
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
    MaskEvaluator masks(input.classes);
    for (size_t image = 0; image < input.detections.size(); ++image) {
      const auto& detections = input.detections[image];
      evaluator.add(detections, input.truths[image]);
      if (!input.truthMasks.empty())
        masks.add(detections, input.truths[image], input.truthMasks[image],
                  [&](int box) { return input.detectionMasks[image][box]; });
    }
    Evaluation evaluation = evaluator.evaluate();
    masks.complete(evaluation);
    return toJs(env, evaluation);
  });
}

}  // namespace vantage
