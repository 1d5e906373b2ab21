// Target assignment of predictions that were made elsewhere.
#include "arguments.h"
#include "boxes.h"
#include "functions.h"
#include "values.h"

namespace vantage {
namespace {

constexpr int kClassesMax = 4096, kCorners = 4;

/** A view of the caller's arrays, for a call that is done at once. */
AssignmentInput readAssignment(const Napi::Value& value) {
  const Fields from(value, "input");
  AssignmentInput input;
  input.classes = from.integer("classes", 1, kClassesMax);
  input.height = from.integer("height", kSideMin, kSideMax);
  input.width = from.integer("width", kSideMin, kSideMax);
  input.images = from.integer("images", 1, kImagesMax);
  input.oneToOne = from.flag("oneToOne");
  const Napi::Float32Array boxes = from.floats("boxes"), logits = from.floats("logits"),
                           truths = from.floats("truths");
  const auto images = static_cast<size_t>(input.images);
  const size_t anchors = boxes.ElementLength() / (images * kCorners);
  const size_t objects = truths.ElementLength() / (images * kTruthNumbers);
  if (boxes.ElementLength() != images * kCorners * anchors)
    refuseArgument(from.pathOf("boxes"), "must be four numbers an anchor");
  if (logits.ElementLength() != images * static_cast<size_t>(input.classes) * anchors)
    refuseArgument(from.pathOf("logits"), "must be a number an anchor and class");
  if (objects == 0 || truths.ElementLength() != images * kTruthNumbers * objects)
    refuseArgument(from.pathOf("truths"),
                   "must be five numbers an object, as many for every image");
  for (size_t row = 0; row < truths.ElementLength(); row += kTruthNumbers)
    if (!(truths[row] >= -1 && truths[row] < static_cast<float>(input.classes)))
      refuseArgument(from.pathOf("truths"), "must be of a class or padding");
  input.anchors = static_cast<int64_t>(anchors);
  input.objects = static_cast<int64_t>(objects);
  input.boxes = boxes.Data();
  input.logits = logits.Data();
  input.truths = truths.Data();
  return input;
}

Napi::Value toJs(Napi::Env env, const Assignment& assignment) {
  Napi::Object object = Napi::Object::New(env);
  object["scores"] = floatArray(env, assignment.scores);
  object["objects"] = floatArray(env, assignment.objects);
  return object;
}

}  // namespace

Napi::Value assignTargetsOf(const Napi::CallbackInfo& info) {
  return throwing(info,
                  [&](Napi::Env env) { return toJs(env, assignTargets(readAssignment(info[0]))); });
}

}  // namespace vantage
