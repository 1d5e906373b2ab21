#include "boxes.h"

#include "arguments.h"
#include "values.h"

namespace vantage {

std::vector<Truth> readTruths(const Napi::Value& value, const std::string& where) {
  const Napi::Float32Array numbers = readFloats(value, where);
  if (numbers.ElementLength() % kTruthNumbers != 0)
    refuseArgument(where, "must be five numbers a box");
  std::vector<Truth> truths(numbers.ElementLength() / kTruthNumbers);
  const float* row = numbers.Data();
  for (Truth& truth : truths) {
    truth = {row[0], row[1], row[2], row[3], row[4]};
    row += kTruthNumbers;
  }
  return truths;
}

std::vector<Detection> readDetections(const Napi::Value& value, const std::string& where) {
  const Napi::Float32Array numbers = readFloats(value, where);
  if (numbers.ElementLength() % kDetectionNumbers != 0)
    refuseArgument(where, "must be six numbers a detection");
  std::vector<Detection> detections(numbers.ElementLength() / kDetectionNumbers);
  const float* row = numbers.Data();
  for (Detection& detection : detections) {
    detection = {row[0], row[1], row[2], row[3], row[4], row[5]};
    row += kDetectionNumbers;
  }
  return detections;
}

Napi::Float32Array detectionArray(Napi::Env env, const std::vector<Detection>& detections) {
  static_assert(sizeof(Detection) == kDetectionNumbers * sizeof(float));
  return floatArray(env, reinterpret_cast<const float*>(detections.data()),
                    detections.size() * kDetectionNumbers);
}

Napi::Value toJs(Napi::Env env, const std::vector<std::vector<Detection>>& detections) {
  return arrayOf(env, detections,
                 [&](const std::vector<Detection>& image) { return detectionArray(env, image); });
}

}  // namespace vantage
