// Average precision by COCO's rules, its curves and the confusion matrix, over ten IoU thresholds.
// No torch here.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "mask.h"
#include "settings.h"

namespace vantage {

/** Bins of confidences from 0 to 1; those of `shared/detector/confidence-bins.ts`. */
inline constexpr int kConfidenceBins = 20;

/** Losses of validation, means over images. */
struct ValidationLosses {
  double box = 0, cls = 0, dfl = 0;
  /** None for detection. */
  std::optional<double> mask;
};

/** Curves of a class at IoU 0.5, 101 points each. */
struct ClassCurves {
  /** Over confidences from 0 to 1. */
  std::vector<float> precision, recall, f1;
  /** Precision over recalls from 0 to 1: the values whose mean is the average precision. */
  std::vector<float> precisionByRecall;
};

struct ClassMetrics {
  double precision = 0, recall = 0, mAP50 = 0, mAP50_95 = 0;
  int64_t truths = 0;
  /** By the overlap of masks; of segmentation. */
  std::optional<double> maskMAP50, maskMAP50_95;
  ClassCurves curves;
};

struct Evaluation {
  double precision = 0, recall = 0, mAP50 = 0, mAP50_95 = 0, confidence = 0;
  /** By the overlap of masks, means over classes; of segmentation. */
  std::optional<double> maskMAP50, maskMAP50_95;
  std::vector<std::optional<ClassMetrics>> perClass;
  /** 1,000 points each. */
  std::vector<float> precisionCurve, recallCurve, f1Curve, precisionByRecall;
  /** [classes + 1]², row = predicted, column = true, last = background. */
  std::vector<int32_t> confusion;
  /** All detections by confidence, the least confident first. */
  std::vector<int32_t> confidenceBins;
  /** None where detections were made elsewhere. */
  std::optional<ValidationLosses> losses;
  int64_t images = 0;
  /** What the evaluation took; 0 of detections made elsewhere. */
  double seconds = 0;
};

/** IoU of a detection and a truth of an image, by their indices. */
using Overlap = std::function<double(int, int)>;

/** Takes image after image, then evaluates. */
class Evaluator {
 public:
  explicit Evaluator(int classes);
  /** Fails with `bad_argument` on a class that is none, or a confidence that is no number. */
  void add(const std::vector<Detection>& detections, const std::vector<Truth>& truths);
  /** The same, matched by another overlap than that of boxes; without a confusion matrix. */
  void add(const std::vector<Detection>& detections, const std::vector<Truth>& truths,
           const Overlap& overlap);
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
  void check(const std::vector<Detection>& detections, const std::vector<Truth>& truths) const;
  void checkClass(float cls) const;
  void match(const std::vector<Detection>& detections, const std::vector<Truth>& truths,
             const Overlap& overlap);
  void confuse(const std::vector<Detection>& detections, const std::vector<Truth>& truths);

  int classes_;
  int64_t images_ = 0;
  std::vector<RankedDetection> ranked_;
  std::vector<int64_t> truths_;
  std::vector<int32_t> confusion_;
  std::vector<int32_t> confidenceBins_ = std::vector<int32_t>(kConfidenceBins);
};

/** Average precision by masks beside that by boxes, in one evaluation. */
class MaskEvaluator {
 public:
  explicit MaskEvaluator(int classes) : masks_(classes) {}
  /**
   * `truths` and their masks; `maskOf` gives that of a detection, which is asked for once, and not
   * at all where no truth is of its class. Masks are of one size.
   */
  void add(const std::vector<Detection>& detections, const std::vector<Truth>& truths,
           const std::vector<Bitmap>& truthMasks, const std::function<Bitmap(int)>& maskOf);
  /** Adds its figures to those by boxes, where an object had a mask. */
  void complete(Evaluation& boxes) const;

 private:
  Evaluator masks_;
};

}  // namespace vantage
