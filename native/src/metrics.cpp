// Matching and average precision are COCO's (cocodataset.org/#detection-eval and pycocotools'
// cocoeval.py, to the order of equal values), without crowds and areas, which our datasets do not
// have: an import leaves crowds out, and what is to be ignored. All sums are in double.
#include "metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "error.h"

namespace vantage {
namespace {

/** IoU thresholds: 0.5, 0.55, …, 0.95. */
constexpr int kThresholds = 10;
/** Points of a curve of means over classes, and of a class's own curve over confidences. */
constexpr int kPoints = 1000, kClassPoints = 101;
/** Recalls that average precision is the area over. */
constexpr int kRecalls = 101;
/** Points of the box filter that the mean F1 is smoothed with before its peak is sought. */
constexpr int kSmoothing = 101;
constexpr double kConfusionIou = 0.45;
constexpr float kConfusionConfidence = 0.25f;

/** Detections of a class that count on an image, the most confident. */
constexpr int kDetectionsMax = 100;

/** `numpy.linspace(0.5, 0.95, 10)`, to the last digit. */
double thresholdAt(int index) {
  return index == kThresholds - 1 ? 0.95 : 0.5 + index * ((0.95 - 0.5) / (kThresholds - 1));
}

double iouOf(const Detection& a, const Truth& b) {
  const auto area = [](double x1, double y1, double x2, double y2) {
    return std::max(0.0, x2 - x1) * std::max(0.0, y2 - y1);
  };
  const double shared =
      area(std::max(a.x1, b.x1), std::max(a.y1, b.y1), std::min(a.x2, b.x2), std::min(a.y2, b.y2));
  const double all = area(a.x1, a.y1, a.x2, a.y2) + area(b.x1, b.y1, b.x2, b.y2) - shared;
  return all > 0 ? shared / all : 0;
}

/** Indices of a detection and a truth, and their overlap. */
struct MatchedPair {
  double iou;
  int detection, truth;
};

/**
 * Pairs for the confusion matrix, of at least `iouMin`, best first; each detection and each truth
 * is in one of them at most. Of equal pairs the one of higher confidence counts, then the earlier.
 */
std::vector<MatchedPair> matchPairs(const std::vector<Detection>& detections,
                                    const std::vector<Truth>& truths, double iouMin,
                                    const std::function<bool(int, int)>& mayMatch) {
  std::vector<MatchedPair> candidates, chosen;
  for (int i = 0; i < static_cast<int>(detections.size()); i++)
    for (int j = 0; j < static_cast<int>(truths.size()); j++) {
      if (!mayMatch(i, j)) continue;
      const double iou = iouOf(detections[i], truths[j]);
      if (iou >= iouMin) candidates.push_back({iou, i, j});
    }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const MatchedPair& a, const MatchedPair& b) {
                     if (a.iou != b.iou) return a.iou > b.iou;
                     return detections[a.detection].confidence > detections[b.detection].confidence;
                   });
  std::vector<char> detectionUsed(detections.size()), truthUsed(truths.size());
  for (const MatchedPair& pair : candidates) {
    if (detectionUsed[pair.detection] || truthUsed[pair.truth]) continue;
    detectionUsed[pair.detection] = truthUsed[pair.truth] = 1;
    chosen.push_back(pair);
  }
  return chosen;
}

/** Precision and recall after each detection of a class, the most confident first. */
struct Ranking {
  std::vector<double> recall, precision;
};

/**
 * The highest precision at a recall or any higher one, at `points` recalls from 0 to 1; 0 beyond
 * the last detection's.
 */
std::vector<double> precisionsByRecall(const Ranking& ranking, int points) {
  std::vector<double> highest = ranking.precision;
  for (size_t i = highest.size(); i-- > 1;) highest[i - 1] = std::max(highest[i - 1], highest[i]);
  std::vector<double> values;
  const double step = 1.0 / (points - 1);
  size_t first = 0;
  for (int i = 0; i < points; i++) {
    // `numpy.linspace(0, 1, points)`, to the last digit.
    const double recall = i == points - 1 ? 1 : i * step;
    while (first < highest.size() && ranking.recall[first] < recall) first++;
    values.push_back(first < highest.size() ? highest[first] : 0);
  }
  return values;
}

double averagePrecision(const Ranking& ranking) {
  double sum = 0;
  for (double precision : precisionsByRecall(ranking, kRecalls)) sum += precision;
  return sum / kRecalls;
}

/**
 * Values at `pointCount` confidences from 0 to 1, linear between detections; `above` the first of
 * them.
 */
std::vector<double> byConfidence(const std::vector<float>& confidences,
                                 const std::vector<double>& values, double above, int pointCount) {
  std::vector<double> points(static_cast<size_t>(pointCount));
  size_t count = 0;  // detections of at least this confidence
  for (int i = pointCount - 1; i >= 0; i--) {
    const double confidence = static_cast<double>(i) / (pointCount - 1);
    while (count < confidences.size() && confidences[count] >= confidence) count++;
    if (count == 0) points[i] = above;
    else if (count == confidences.size()) points[i] = values.back();
    else {
      const double high = confidences[count - 1], low = confidences[count];
      const double share = (high - confidence) / (high - low);
      points[i] = values[count - 1] + share * (values[count] - values[count - 1]);
    }
  }
  return points;
}

/** Harmonic means of two curves' values; 0 where both are 0. */
std::vector<double> f1Of(const std::vector<double>& precision, const std::vector<double>& recall) {
  std::vector<double> f1;
  for (size_t i = 0; i < precision.size(); i++) {
    const double sum = precision[i] + recall[i];
    f1.push_back(sum > 0 ? 2 * precision[i] * recall[i] / sum : 0);
  }
  return f1;
}

std::vector<float> floatsOf(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

/** Curves of a class without a detection. */
ClassCurves zeroCurves() {
  const std::vector<float> byConfidence(kClassPoints), byRecall(kRecalls);
  return {byConfidence, byConfidence, byConfidence, byRecall};
}

/** Index of the highest value of a curve under a box filter that goes on with the end values. */
int smoothedPeak(const std::vector<double>& curve) {
  const int half = kSmoothing / 2, last = static_cast<int>(curve.size()) - 1;
  int best = 0;
  double highest = 0;
  for (int i = 0; i <= last; i++) {
    double sum = 0;
    for (int j = i - half; j <= i + half; j++) sum += curve[std::clamp(j, 0, last)];
    // The first point of a plateau counts, whatever the last digits of its sums.
    if (sum > highest + 1e-9) highest = sum, best = i;
  }
  return best;
}

/** The bin of a confidence. What is a bin's lower bound but for its last digits is of that bin. */
size_t binOf(float confidence) {
  const double bin = std::floor(static_cast<double>(confidence) * kConfidenceBins + 1e-9);
  return static_cast<size_t>(std::clamp(bin, 0.0, kConfidenceBins - 1.0));
}

std::vector<float> meanOf(const std::vector<double>& sums, int64_t count) {
  std::vector<float> means;
  for (double sum : sums) means.push_back(static_cast<float>(count ? sum / count : 0));
  return means;
}

}  // namespace

/** Curves of a class, or their sums over classes. */
struct Evaluator::Curves {
  std::vector<double> precision = std::vector<double>(kPoints);
  std::vector<double> recall = precision, f1 = precision, byRecall = precision;

  void add(const Curves& other) {
    const auto sum = [](std::vector<double>& to, const std::vector<double>& from) {
      for (int i = 0; i < kPoints; i++) to[i] += from[i];
    };
    sum(precision, other.precision);
    sum(recall, other.recall);
    sum(f1, other.f1);
    sum(byRecall, other.byRecall);
  }
};

Evaluator::Evaluator(int classes)
    : classes_(classes),
      truths_(static_cast<size_t>(classes)),
      confusion_(static_cast<size_t>(classes + 1) * static_cast<size_t>(classes + 1)) {}

void Evaluator::checkClass(float cls) const {
  if (!(cls >= 0 && cls < static_cast<float>(classes_)) || cls != std::floor(cls))
    throw EngineError("bad_argument",
                      "a box is of none of the " + std::to_string(classes_) + " classes");
}

void Evaluator::check(const std::vector<Detection>& detections,
                      const std::vector<Truth>& truths) const {
  for (const Truth& truth : truths) checkClass(truth.cls);
  for (const Detection& detection : detections) {
    checkClass(detection.cls);
    if (std::isnan(detection.confidence))
      throw EngineError("bad_argument", "a detection's confidence is not a number");
  }
}

void Evaluator::add(const std::vector<Detection>& detections, const std::vector<Truth>& truths) {
  add(detections, truths, [&](int i, int j) { return iouOf(detections[i], truths[j]); });
  for (const Detection& detection : detections) confidenceBins_[binOf(detection.confidence)]++;
  confuse(detections, truths);
}

void Evaluator::add(const std::vector<Detection>& detections, const std::vector<Truth>& truths,
                    const Overlap& overlap) {
  check(detections, truths);
  images_++;
  for (const Truth& truth : truths) truths_[static_cast<size_t>(truth.cls)]++;
  match(detections, truths, overlap);
}

/**
 * At each threshold by itself, from the most confident detection down: each takes the free truth of
 * its class that it overlaps most, the later one of equals.
 */
void Evaluator::match(const std::vector<Detection>& detections, const std::vector<Truth>& truths,
                      const Overlap& overlap) {
  std::vector<int> order(detections.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return detections[a].confidence > detections[b].confidence;
  });
  std::vector<std::vector<int>> own(static_cast<size_t>(classes_));
  for (size_t j = 0; j < truths.size(); j++)
    own[static_cast<size_t>(truths[j].cls)].push_back(static_cast<int>(j));
  std::vector<int> counts(static_cast<size_t>(classes_));
  std::vector<uint32_t> used(truths.size());
  for (int index : order) {
    const Detection& detection = detections[index];
    const auto cls = static_cast<size_t>(detection.cls);
    if (counts[cls]++ >= kDetectionsMax) continue;
    int best[kThresholds];
    double highest[kThresholds];
    for (int t = 0; t < kThresholds; t++) best[t] = -1, highest[t] = thresholdAt(t);
    for (int j : own[cls]) {
      const double iou = overlap(index, j);
      for (int t = 0; t < kThresholds && iou >= thresholdAt(t); t++)
        if (!(used[j] >> t & 1) && iou >= highest[t]) best[t] = j, highest[t] = iou;
    }
    uint32_t matched = 0;
    for (int t = 0; t < kThresholds; t++)
      if (best[t] >= 0) used[best[t]] |= 1u << t, matched |= 1u << t;
    ranked_.push_back({detection.confidence, static_cast<int>(cls), matched});
  }
}

void Evaluator::confuse(const std::vector<Detection>& detections,
                        const std::vector<Truth>& truths) {
  const auto sure = [&](int i, int) { return detections[i].confidence >= kConfusionConfidence; };
  const int background = classes_;
  std::vector<int> predicted(truths.size(), background);
  std::vector<char> used(detections.size());
  for (const MatchedPair& pair : matchPairs(detections, truths, kConfusionIou, sure)) {
    predicted[pair.truth] = static_cast<int>(detections[pair.detection].cls);
    used[pair.detection] = 1;
  }
  const auto count = [&](int row, int column) {
    confusion_[static_cast<size_t>(row) * (classes_ + 1) + column]++;
  };
  for (size_t j = 0; j < truths.size(); j++) count(predicted[j], static_cast<int>(truths[j].cls));
  for (size_t i = 0; i < detections.size(); i++)
    if (!used[i] && sure(static_cast<int>(i), 0))
      count(static_cast<int>(detections[i].cls), background);
}

/** Average precisions of a class at every threshold, and its curves at the first. */
Evaluator::Curves Evaluator::measure(std::vector<RankedDetection>& all, ClassMetrics& metrics) {
  std::stable_sort(all.begin(), all.end(), [](const RankedDetection& a, const RankedDetection& b) {
    return a.confidence > b.confidence;
  });
  const auto rankingAt = [&](int threshold) {
    Ranking ranking;
    double hits = 0, seen = 0;
    for (const RankedDetection& detection : all) {
      hits += detection.matched >> threshold & 1, seen++;
      ranking.recall.push_back(hits / static_cast<double>(metrics.truths));
      ranking.precision.push_back(hits / seen);
    }
    return ranking;
  };
  for (int threshold = 0; threshold < kThresholds; threshold++)
    metrics.mAP50_95 += averagePrecision(rankingAt(threshold)) / kThresholds;
  const Ranking ranking = rankingAt(0);
  metrics.mAP50 = averagePrecision(ranking);
  std::vector<float> confidences;
  for (const RankedDetection& detection : all) confidences.push_back(detection.confidence);
  const auto precision = byConfidence(confidences, ranking.precision, 1, kClassPoints);
  const auto recall = byConfidence(confidences, ranking.recall, 0, kClassPoints);
  metrics.curves = {floatsOf(precision), floatsOf(recall), floatsOf(f1Of(precision, recall)),
                    floatsOf(precisionsByRecall(ranking, kRecalls))};
  Curves curves;
  curves.precision = byConfidence(confidences, ranking.precision, 1, kPoints);
  curves.recall = byConfidence(confidences, ranking.recall, 0, kPoints);
  curves.byRecall = precisionsByRecall(ranking, kPoints);
  curves.f1 = f1Of(curves.precision, curves.recall);
  return curves;
}

Evaluation Evaluator::evaluate() const {
  std::vector<std::vector<RankedDetection>> ranked(static_cast<size_t>(classes_));
  for (const RankedDetection& detection : ranked_) ranked[detection.cls].push_back(detection);
  Evaluation result;
  result.images = images_;
  result.confusion = confusion_;
  result.confidenceBins = confidenceBins_;
  result.perClass.resize(static_cast<size_t>(classes_));
  std::vector<Curves> curves(static_cast<size_t>(classes_));
  Curves sums;
  int64_t counted = 0;
  for (int cls = 0; cls < classes_; cls++) {
    if (truths_[cls] == 0) continue;
    counted++;
    ClassMetrics& metrics = result.perClass[cls].emplace();
    metrics.truths = truths_[cls];
    metrics.curves = zeroCurves();
    // A class without any detection scores 0 everywhere, its precision included.
    if (!ranked[cls].empty()) curves[cls] = measure(ranked[cls], metrics);
    sums.add(curves[cls]);
  }
  const int peak = smoothedPeak(sums.f1);
  result.confidence = static_cast<double>(peak) / (kPoints - 1);
  for (int cls = 0; cls < classes_; cls++) {
    if (!result.perClass[cls]) continue;
    ClassMetrics& metrics = *result.perClass[cls];
    metrics.precision = curves[cls].precision[peak];
    metrics.recall = curves[cls].recall[peak];
    result.precision += metrics.precision / static_cast<double>(counted);
    result.recall += metrics.recall / static_cast<double>(counted);
    result.mAP50 += metrics.mAP50 / static_cast<double>(counted);
    result.mAP50_95 += metrics.mAP50_95 / static_cast<double>(counted);
  }
  result.precisionCurve = meanOf(sums.precision, counted);
  result.recallCurve = meanOf(sums.recall, counted);
  result.f1Curve = meanOf(sums.f1, counted);
  result.precisionByRecall = meanOf(sums.byRecall, counted);
  return result;
}

void MaskEvaluator::add(const std::vector<Detection>& detections, const std::vector<Truth>& truths,
                        const std::vector<Bitmap>& truthMasks,
                        const std::function<Bitmap(int)>& maskOf) {
  struct CountedMask {
    Bitmap bitmap;
    int64_t area;
  };
  std::vector<std::optional<CountedMask>> masks(detections.size());
  std::vector<int64_t> areas;
  for (const Bitmap& mask : truthMasks) areas.push_back(mask.count());
  masks_.add(detections, truths, [&](int i, int j) -> double {
    auto& mask = masks[i];
    if (!mask) {
      Bitmap bitmap = maskOf(i);
      const int64_t area = bitmap.count();
      mask = {std::move(bitmap), area};
    }
    const int64_t shared = mask->bitmap.shared(truthMasks[j]);
    const int64_t all = mask->area + areas[j] - shared;
    return all > 0 ? static_cast<double>(shared) / static_cast<double>(all) : 0;
  });
}

void MaskEvaluator::complete(Evaluation& boxes) const {
  const Evaluation masks = masks_.evaluate();
  bool isAny = false;
  for (size_t cls = 0; cls < masks.perClass.size(); cls++) {
    if (!masks.perClass[cls] || !boxes.perClass[cls]) continue;
    isAny = true;
    boxes.perClass[cls]->maskMAP50 = masks.perClass[cls]->mAP50;
    boxes.perClass[cls]->maskMAP50_95 = masks.perClass[cls]->mAP50_95;
  }
  if (!isAny) return;
  boxes.maskMAP50 = masks.mAP50;
  boxes.maskMAP50_95 = masks.mAP50_95;
}

}  // namespace vantage
