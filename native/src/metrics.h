// Average precision, its curves and the confusion matrix, as facts 1.8. No torch here.
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
};

/** Takes image after image, then evaluates. */
class Evaluator {
 public:
  explicit Evaluator(int classes);
  /** Fails with `bad_argument` on a class that is none, or a confidence that is no number. */
  void add(const std::vector<Found>& found, const std::vector<Truth>& truths);
  Evaluation evaluate() const;

 private:
  struct Scored {
    float confidence;
    int cls;
    /** Thresholds at which it found a truth: the first so many of 0.5, 0.55, …, 0.95. */
    int found;
  };
  struct Curves;
  static Curves measure(std::vector<Scored>& all, ClassMetrics& metrics);
  void checkClass(float cls) const;
  void match(const std::vector<Found>& found, const std::vector<Truth>& truths);
  void confuse(const std::vector<Found>& found, const std::vector<Truth>& truths);

  int classes_;
  int64_t images_ = 0;
  std::vector<Scored> scored_;
  std::vector<int64_t> truths_;
  std::vector<int32_t> confusion_;
};

}  // namespace vantage
