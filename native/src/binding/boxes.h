// Boxes as JS has them: Float32Arrays of so many numbers a box.
#pragma once
#include <napi.h>

#include <string>
#include <vector>

#include "../settings.h"

namespace vantage {

/** Five numbers a box: class index, x1, y1, x2, y2. */
constexpr int kTruthNumbers = 5;
/** Six numbers a box: x1, y1, x2, y2, confidence, class index. */
constexpr int kDetectionNumbers = 6;

std::vector<Truth> readTruths(const Napi::Value& value, const std::string& where);
std::vector<Detection> readDetections(const Napi::Value& value, const std::string& where);
/** The detections of one image as a Float32Array. */
Napi::Float32Array detectionArray(Napi::Env env, const std::vector<Detection>& detections);
/** A Float32Array for each image. */
Napi::Value toJs(Napi::Env env, const std::vector<std::vector<Detection>>& detections);

}  // namespace vantage
