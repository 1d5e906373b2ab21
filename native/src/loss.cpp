// Task-aligned assignment and the losses of both branches, over planes [B, A] so that every
// operation runs over long rows. Only the claims need [objects, anchors] tensors: they are made in
// blocks of objects, and what follows works on the few anchors that were claimed.
#include "loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "blocks.h"
#include "flags.h"
#include "mask-loss.h"

namespace vantage {
namespace {

constexpr double kIouEps = 1e-7, kDivisionEps = 1e-9, kInsideEps = 1e-9;
/** Sides below kTinySide pixels count as kTinyGrown pixels in the test of what is inside. */
constexpr double kTinySide = kStrides[0], kTinyGrown = kStrides[1];
/** Elements (objects × anchors) that are processed at once: fits a CPU's caches, fills a GPU. */
constexpr int64_t kBlockCpu = 1 << 18, kBlockGpu = 1 << 23;
/** Elements below which the operations of a block cost more than what it computes. */
constexpr int64_t kFreeCpu = 1 << 14, kFreeGpu = 1 << 21;

/** Predictions with autograd's graph behind them, and the distances [B, 4, A] that boxes come from.
 */
struct Predictions : AnchorPredictions {
  at::Tensor distances;
};

Predictions predictionsOf(const BranchMaps& maps) {
  std::vector<at::Tensor> distances, logits;
  for (size_t level = 0; level < maps.box.size(); ++level) {
    const double stride = kStrides[level];
    distances.push_back(maps.box[level].to(at::kFloat).flatten(2) * stride);
    logits.push_back(maps.cls[level].to(at::kFloat).flatten(2));
  }
  const at::Tensor& finest = maps.box[0];
  const auto centres =
      anchorCentres(finest.size(2) * kStrides[0], finest.size(3) * kStrides[0], finest.device());
  Predictions all;
  all.distances = at::cat(distances, 2);
  all.logits = at::cat(logits, 2);
  all.centres = centres;
  all.boxes = at::cat(
      {all.centres - all.distances.narrow(1, 0, 2), all.centres + all.distances.narrow(1, 2, 2)},
      1);
  return all;
}

Corners cornersOf(const at::Tensor& boxes, int64_t dim) {
  const auto planes = boxes.unbind(dim);
  return {planes[0], planes[1], planes[2], planes[3]};
}

/** The truths' boxes as [b, M, 1] planes. */
Corners truthCorners(const at::Tensor& truths) {
  return cornersOf(truths.narrow(2, 1, 4).unsqueeze(2), 3);
}

/** Whether an anchor's centre lies in a box, small boxes grown: [b, M, A]. */
at::Tensor insideOf(const Corners& truth, const at::Tensor& centres) {
  const auto grown = [](const at::Tensor& low, const at::Tensor& high) {
    const auto tiny = (high - low).lt(kTinySide);
    const auto middle = (low + high) / 2;
    return std::make_pair(at::where(tiny, middle - kTinyGrown / 2, low),
                          at::where(tiny, middle + kTinyGrown / 2, high));
  };
  const auto [left, right] = grown(truth.x1, truth.x2);
  const auto [top, bottom] = grown(truth.y1, truth.y2);
  const at::Tensor x = centres[0], y = centres[1];
  return (x - left)
      .gt(kInsideEps)
      .logical_and_((right - x).gt(kInsideEps))
      .logical_and_((y - top).gt(kInsideEps))
      .logical_and_((bottom - y).gt(kInsideEps));
}

/**
 * Keys that order as the values (none negative) do, and equal values by their position, the
 * lower one first. So no two keys are equal, and the best ones are the same on every device.
 */
at::Tensor ordered(const at::Tensor& values, const at::Tensor& positions) {
  return values.contiguous().view(at::kInt).to(at::kLong).mul_(int64_t{1} << 32).sub_(positions);
}

/** What objects claim: metric, IoU and anchor, best first, [b, M, first]; metric 0 is no claim. */
struct Claims {
  at::Tensor metric, iou, anchor;
};

Claims claimsOf(const AnchorPredictions& predictions, const at::Tensor& truths, int first) {
  const auto& [boxes, logits, centres] = predictions;
  const int64_t images = truths.size(0), objects = truths.size(1), anchors = boxes.size(2);
  const Corners truth = truthCorners(truths);
  const auto classes = truths.select(2, 0);
  const auto inside = insideOf(truth, centres).logical_and_(classes.ge(0).unsqueeze(2));
  const auto iou = completeIou(cornersOf(boxes.unsqueeze(2), 1), truth).clamp_min_(0).mul_(inside);
  const auto rows = classes.clamp_min(0).to(at::kLong).unsqueeze(2);
  auto metric = logits.gather(1, rows.expand({images, objects, anchors})).sigmoid_().sqrt_();
  const auto squared = iou.square();
  metric.mul_(squared).mul_(squared).mul_(squared);
  const auto positions = at::arange(anchors, rows.options());
  const auto best =
      std::get<1>(ordered(metric, positions).topk(std::min<int64_t>(first, anchors), 2));
  return {metric.gather(2, best), iou.gather(2, best), best};
}

}  // namespace

at::Tensor anchorCentres(int64_t height, int64_t width, const at::Device& device) {
  std::vector<at::Tensor> levels;
  const auto options = at::TensorOptions(device).dtype(at::kFloat);
  for (const double stride : kStrides) {
    const auto middles = [&](int64_t side) {
      return at::arange(side / static_cast<int64_t>(stride), options).add_(0.5).mul_(stride);
    };
    const auto x = middles(width), y = middles(height);
    const int64_t columns = x.size(0), rows = y.size(0);
    levels.push_back(at::stack({x.view({1, columns}).expand({rows, columns}),
                                y.view({rows, 1}).expand({rows, columns})})
                         .flatten(1));
  }
  return at::cat(levels, 1);
}

at::Tensor completeIou(const Corners& predicted, const Corners& truth) {
  const auto side = [](const at::Tensor& low, const at::Tensor& high) {
    return (high - low).clamp_min(0);
  };
  const auto& [px1, py1, px2, py2] = predicted;
  const auto& [tx1, ty1, tx2, ty2] = truth;
  const auto pw = side(px1, px2), ph = side(py1, py2), tw = side(tx1, tx2), th = side(ty1, ty2);
  const auto inter = side(at::maximum(px1, tx1), at::minimum(px2, tx2)) *
                     side(at::maximum(py1, ty1), at::minimum(py2, ty2));
  const auto iou = inter / (pw * ph + tw * th - inter + kIouEps);
  const auto diagonal = (at::maximum(px2, tx2) - at::minimum(px1, tx1)).square() +
                        (at::maximum(py2, ty2) - at::minimum(py1, ty1)).square() + kIouEps;
  const auto apart =
      (((tx1 + tx2) - (px1 + px2)).square() + ((ty1 + ty2) - (py1 + py2)).square()) / 4;
  const auto angles = (tw / (th + kIouEps)).atan() - (pw / (ph + kIouEps)).atan();
  const auto aspect = angles.square() * (4 / (M_PI * M_PI));
  const auto weight = (aspect.detach() / (aspect.detach() - iou.detach() + (1 + kIouEps)));
  return iou - (apart / diagonal + aspect * weight);
}

Targets assign(const AnchorPredictions& predictions, const Labels& labels,
               AssignerSettings settings) {
  const auto& [boxes, logits, centres] = predictions;
  const at::Tensor& truths = labels.truths;
  at::NoGradGuard none;
  const int64_t images = boxes.size(0), anchors = boxes.size(2), objects = truths.size(1);
  if (std::accumulate(labels.counts.begin(), labels.counts.end(), int64_t{0}) == 0)
    return {at::zeros({images, anchors}, boxes.options()),
            at::zeros({images, anchors}, truths.options().dtype(at::kLong))};
  const bool isGpu = boxes.is_cuda();
  std::vector<at::Tensor> metrics, ious, claimed;
  for (const Block& block : blocksOf(labels.counts, {(isGpu ? kBlockGpu : kBlockCpu) / anchors,
                                                     (isGpu ? kFreeGpu : kFreeCpu) / anchors})) {
    const auto part = [&](const at::Tensor& all) {
      return all.narrow(0, block.image, block.images);
    };
    const Claims claims = claimsOf({part(boxes), part(logits), centres},
                                   part(truths).narrow(1, block.row, block.rows), settings.first);
    for (int64_t image = 0; image < block.images; ++image) {
      const int64_t own = labels.counts[block.image + image] - block.row;
      const auto take = [&](const at::Tensor& all, std::vector<at::Tensor>& into) {
        into.push_back(all[image].narrow(0, 0, std::min(own, block.rows)));
      };
      take(claims.metric, metrics);
      take(claims.iou, ious);
      take(claims.anchor, claimed);
    }
  }
  // A row an object, image after image: [N, first].
  const auto metric = at::cat(metrics), iou = at::cat(ious), anchor = at::cat(claimed);
  const auto indices = at::arange(images * objects, anchor.options()).view({images, objects});
  std::vector<at::Tensor> rows;
  for (int64_t image = 0; image < images; ++image)
    rows.push_back(indices[image].narrow(0, 0, labels.counts[image]));
  const auto row = at::cat(rows).unsqueeze(1);
  const auto object = row.remainder(objects).expand_as(anchor);
  const auto start = row.div(objects, "floor") * anchors;
  // Claims sorted by anchor, those of one anchor by IoU: the first of each anchor wins. Entries
  // that are no claims get the index of the batch's anchors that is one beyond the last.
  const int64_t beyond = images * anchors;
  const auto column =
      at::where(metric.gt(0), anchor + start, at::full_like(anchor, beyond)).flatten();
  const auto byIou = ordered(iou, row).flatten().argsort(0, kDescending);
  const auto [sorted, byAnchor] = column.gather(0, byIou).sort(kStable, 0, kAscending);
  auto isFirst = at::ones_like(sorted, at::kBool);
  isFirst.slice(0, 1).copy_(sorted.slice(0, 1).ne(sorted.slice(0, 0, -1)));
  const auto wins = at::zeros_like(isFirst).scatter_(0, byIou.gather(0, byAnchor), isFirst);
  auto kept = wins.view_as(metric).logical_and_(metric.gt(0));
  // An object's claims are best first, so its best remaining ones are its first.
  kept = kept.logical_and(kept.cumsum(1).le(settings.last));
  const auto remaining = metric * kept;
  const auto score =
      remaining / (remaining.amax(1, kKeepDim) + kDivisionEps) * (iou * kept).amax(1, kKeepDim);
  const auto columns = at::where(kept, anchor + start, at::full_like(anchor, beyond)).flatten();
  const auto laid = [&](const at::Tensor& values) {
    const auto all = at::zeros({beyond + 1}, values.options());
    return all.scatter_(0, columns, values.flatten()).narrow(0, 0, beyond).view({images, anchors});
  };
  return {laid(score), laid(object.contiguous())};
}

BranchLoss branchLoss(const BranchTask& task, const Labels& labels,
                      const TrainingSettings& settings) {
  const BranchMaps& maps = task.maps;
  const Predictions predicted = predictionsOf(maps);
  const int64_t images = predicted.boxes.size(0), anchors = predicted.boxes.size(2);
  const Targets targets =
      assign({predicted.boxes.detach(), predicted.logits.detach(), predicted.centres}, labels,
             task.assigner);
  const auto sum = labels.sum(targets.score.sum()).clamp_min(1);
  const auto learned =
      labels.truths.gather(1, targets.object.unsqueeze(2).expand({images, anchors, 5}));
  const auto planes = learned.transpose(1, 2).contiguous();
  const auto wanted = planes.narrow(1, 1, 4);

  BranchLoss loss;
  const auto iou = completeIou(cornersOf(predicted.boxes, 1), cornersOf(wanted, 1));
  loss.box = ((1 - iou) * targets.score).sum() / sum;
  // Cross entropy of a logit x and a target t is softplus(x) − x·t: most targets are 0.
  const auto rows = planes.narrow(1, 0, 1).clamp_min(0).to(at::kLong);
  const auto matched = predicted.logits.gather(1, rows).squeeze(1) * targets.score;
  loss.cls = (at::softplus(predicted.logits).sum() - matched.sum()) / sum;
  const double strides = kStrides[0];
  const double width = maps.box[0].size(3) * strides, height = maps.box[0].size(2) * strides;
  const auto distances = at::cat(
      {predicted.centres - wanted.narrow(1, 0, 2), wanted.narrow(1, 2, 2) - predicted.centres}, 1);
  const auto off = (predicted.distances - distances).abs();
  const auto across = (off.select(1, 0) + off.select(1, 2)) / (4 * width);
  const auto down = (off.select(1, 1) + off.select(1, 3)) / (4 * height);
  loss.dfl = ((across + down) * targets.score).sum() / sum;
  auto weighted =
      loss.box * settings.boxGain + loss.cls * settings.clsGain + loss.dfl * settings.dflGain;
  if (task.prototypes.defined()) {
    loss.mask = maskLoss({maps.mask, task.prototypes, targets, task.assigner.last}, labels);
    weighted = weighted + loss.mask * settings.maskGain;
  }
  loss.total = weighted * static_cast<double>(labels.images());
  return loss;
}

TotalLoss totalLoss(const NetworkMaps& maps, const Labels& labels, double o2mShare,
                    const TrainingSettings& settings) {
  const at::Tensor& prototypes = maps.prototypes;
  TotalLoss loss;
  const at::Tensor detached = prototypes.defined() ? prototypes.detach() : at::Tensor();
  loss.o2o = branchLoss({maps.o2o, detached, kOneAnchor}, labels, settings);
  loss.total = loss.o2o.total;
  if (maps.o2m.box.empty()) return loss;
  loss.o2m = branchLoss({maps.o2m, prototypes, kManyAnchors}, labels, settings);
  auto many = loss.o2m.total;
  if (maps.semantic.defined()) {
    loss.semantic = semanticLoss(maps.semantic, labels);
    many = many + loss.semantic * (settings.semanticGain * static_cast<double>(labels.images()));
  }
  loss.total = many * o2mShare + loss.o2o.total * (1 - o2mShare);
  return loss;
}

double o2mShareAt(int epoch, int epochs) {
  const int last = std::max(epochs - 1, 1);
  return 0.8 - 0.7 * std::clamp(epoch, 0, last) / last;
}

}  // namespace vantage
