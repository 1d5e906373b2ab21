// JS values to the engine's plain ones and back, on the main thread. Whatever is read is checked
// here first: a wrong value fails with `bad_argument` and says where it was.
#pragma once
#include <napi.h>

#include <string>
#include <vector>

#include "engine.h"

namespace vantage {

/** A JS object being read. */
class Fields {
 public:
  Fields(const Napi::Value& value, std::string path);

  bool has(const char* name) const;
  double number(const char* name, double least, double most) const;
  int integer(const char* name, double least, double most) const;
  bool flag(const char* name) const;
  std::string text(const char* name) const;
  Fields object(const char* name) const;
  std::vector<Napi::Value> list(const char* name) const;
  std::vector<int> integers(const char* name) const;
  Napi::Float32Array floats(const char* name) const;
  Napi::Value value(const char* name) const { return object_.Get(name); }
  std::string at(const char* name) const { return path_.empty() ? name : path_ + "." + name; }

 private:
  Napi::Object object_;
  std::string path_;
};

[[noreturn]] void refuseArgument(const std::string& where, const std::string& why);

EngineOptions readOptions(const Napi::Value& value);
std::string readText(const Napi::Value& value, const char* name);
std::map<std::string, std::string> readMetadata(const Napi::Value& value);
std::vector<ImageEntry> readImages(const Fields& dataset);
/** Detections and truths made elsewhere, by image. */
struct EvaluationInput {
  int classes = 0;
  std::vector<std::vector<Found>> detections;
  std::vector<std::vector<Truth>> truths;
};
EvaluationInput readEvaluation(const Napi::Value& value);
/** A view of the caller's arrays, for a call that is done at once. */
AssignmentInput readAssignment(const Napi::Value& value);
/** A copy of the caller's arrays, who may change or give them away while the engine reads. */
struct OwnedBatch {
  std::shared_ptr<std::vector<float>> images, boxes;
  int count = 0, height = 0, width = 0;
  BatchView view() const;
};
OwnedBatch readBatch(const Napi::Value& value, bool boxes);

Napi::Value toJs(Napi::Env env, const TensorValues& tensor);
Napi::Value toJs(Napi::Env env, const MapValues& maps);
Napi::Value toJs(Napi::Env env, const LoadReport& report);
Napi::Value toJs(Napi::Env env, const std::map<std::string, std::string>& metadata);
Napi::Value toJs(Napi::Env env, const LossItems& losses);
Napi::Value toJs(Napi::Env env, const StepProgress& progress);
Napi::Value toJs(Napi::Env env, const EpochResult& result);
Napi::Value toJs(Napi::Env env, const Evaluation& evaluation, double seconds);
Napi::Value toJs(Napi::Env env, const RenderedBatch& batch);
Napi::Value toJs(Napi::Env env, const Description& description);
Napi::Value toJs(Napi::Env env, const Assignment& assignment);
Napi::Value toJs(Napi::Env env, const std::vector<std::vector<Found>>& detections);

}  // namespace vantage
