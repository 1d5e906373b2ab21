// Average precision by COCO's rules, its curves and the confusion matrix, over ten IoU thresholds.
// No torch here.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "settings.h"

namespace vantage {

struct ClassMetrics {
  double precision = 0, recall = 0, mAP50 = 0, mAP50_95 = 0;
  int64_t truths = 0;
};

struct Evaluation {
  double precision = 0, recall = 0, mAP50 = 0, mAP50_95 = 0, confidence = 0;
  std::vector<std::optional<ClassMetrics>> perClass;
  /** 1,000 points each. */
  std::vector<float> precisionCurve, recallCurve, f1Curve, precisionByRecall;
  /** [classes + 1]², row = predicted, column = true, last = background. */
  std::vector<int32_t> confusion;
  int64_t images = 0;
  /** What the evaluation took; 0 of detections made elsewhere. */
  double seconds = 0;
};

/** Takes image after image, then evaluates. */
class Evaluator {
 public:
  explicit Evaluator(int classes);
  /** Fails with `bad_argument` on a class that is none, or a confidence that is no number. */
  void add(const std::vector<Detection>& detections, const std::vector<Truth>& truths);
  Evaluation evaluate() const;

 private:
  struct RankedDetection {
    float confidence;
    int cls;
    /** Bit i: it matched a truth at the IoU threshold i of 0.5, 0.55, …, 0.95. */
    uint32_t matched;
  };
  struct Curves;
  static Curves measure(std::vector<RankedDetection>& all, ClassMetrics& metrics);
  void checkClass(float cls) const;
  void match(const std::vector<Detection>& detections, const std::vector<Truth>& truths);
  void confuse(const std::vector<Detection>& detections, const std::vector<Truth>& truths);

  int classes_;
  int64_t images_ = 0;
  std::vector<RankedDetection> ranked_;
  std::vector<int64_t> truths_;
  std::vector<int32_t> confusion_;
};

}  // namespace vantage
