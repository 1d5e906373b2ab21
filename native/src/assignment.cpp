// Predictions made elsewhere, as `assignTargets` takes them, and what it gives back.
#include "convert.h"

namespace vantage {
namespace {

constexpr int kSideMax = 8192, kCountMax = 4096, kTruthNumbers = 5, kCorners = 4;

Napi::Float32Array arrayOf(Napi::Env env, const std::vector<float>& values) {
  Napi::Float32Array array = Napi::Float32Array::New(env, values.size());
  std::copy(values.begin(), values.end(), array.Data());
  return array;
}

}  // namespace

AssignmentInput readAssignment(const Napi::Value& value) {
  const Fields from(value, "input");
  AssignmentInput input;
  input.classes = from.integer("classes", 1, kCountMax);
  input.height = from.integer("height", 32, kSideMax);
  input.width = from.integer("width", 32, kSideMax);
  input.images = from.integer("images", 1, kCountMax);
  input.oneToOne = from.flag("oneToOne");
  const Napi::Float32Array boxes = from.floats("boxes"), logits = from.floats("logits"),
                           truths = from.floats("truths");
  const auto images = static_cast<size_t>(input.images);
  const size_t anchors = boxes.ElementLength() / (images * kCorners);
  const size_t objects = truths.ElementLength() / (images * kTruthNumbers);
  if (boxes.ElementLength() != images * kCorners * anchors)
    refuseArgument(from.at("boxes"), "must be four numbers an anchor");
  if (logits.ElementLength() != images * static_cast<size_t>(input.classes) * anchors)
    refuseArgument(from.at("logits"), "must be a number an anchor and class");
  if (objects == 0 || truths.ElementLength() != images * kTruthNumbers * objects)
    refuseArgument(from.at("truths"), "must be five numbers an object, as many for every image");
  for (size_t at = 0; at < truths.ElementLength(); at += kTruthNumbers)
    if (!(truths[at] >= -1 && truths[at] < static_cast<float>(input.classes)))
      refuseArgument(from.at("truths"), "must be of a class or padding");
  input.anchors = static_cast<int64_t>(anchors);
  input.objects = static_cast<int64_t>(objects);
  input.boxes = boxes.Data();
  input.logits = logits.Data();
  input.truths = truths.Data();
  return input;
}

Napi::Value toJs(Napi::Env env, const Assignment& assignment) {
  Napi::Object object = Napi::Object::New(env);
  object["scores"] = arrayOf(env, assignment.scores);
  object["objects"] = arrayOf(env, assignment.objects);
  return object;
}

}  // namespace vantage
