// The gradient of masks is written out: autograd would keep a map of logits for every positive,
// some gigabytes for a crowded batch. So logits are made for a few images at a time, their slopes
// at once become those of weights and prototypes, and a product with these hands them to autograd.
#include "mask-loss.h"

#include <algorithm>

#include "flags.h"
#include "mask.h"

namespace vantage {
namespace {

constexpr double kScoreMin = 1e-6;
/** Values of logits that are made at once: fits a CPU's caches, fills a GPU. */
constexpr int64_t kChunkCpu = 1 << 20, kChunkGpu = 1 << 26;

/**
 * Whether any of `width` neighbouring bits is set, for all such groups of a byte:
 * [..., bytes] becomes [..., bytes · 8 / width].
 */
at::Tensor anyOf(const at::Tensor& bits, int width) {
  // Made on the device: a copy from memory that is not pinned would wait for it.
  const auto counts = at::arange(kMaskBits / width, bits.options().dtype(at::kLong));
  const auto groups = at::pow(1 << width, counts) * ((1 << width) - 1);
  return bits.unsqueeze(-1).bitwise_and(groups.to(at::kByte)).ne(0).flatten(-2);
}

at::Tensor hasMask(const at::Tensor& masks) { return masks.flatten(2).amax(2).gt(0); }

/** Whether centres of cells lie between two sides: [b, K, cells]. */
at::Tensor between(const at::Tensor& low, const at::Tensor& high, int64_t cells) {
  const auto centres = at::arange(cells, low.options()).add_(0.5).mul_(kMaskStride);
  return centres.ge(low.unsqueeze(2)).logical_and_(centres.lt(high.unsqueeze(2)));
}

/** What the positives of a few images learn. */
struct Positives {
  /** [b, 32, K] and [b, 32, cells]. */
  at::Tensor weights, prototypes;
  /** [b, K]: index of the object, and weight of a cell's entropy. */
  at::Tensor object, share;
  /** [b, K, 4] in pixels. */
  at::Tensor boxes;
  /** [b, M, h, w / 8]. */
  at::Tensor masks;
};

struct Slopes {
  at::Tensor loss, weights, prototypes;
};

Slopes slopesOf(const Positives& of, bool ofPrototypes) {
  const int64_t images = of.object.size(0), count = of.object.size(1);
  const int64_t rows = of.masks.size(2), bytes = of.masks.size(3);
  const auto sides = of.boxes.unbind(2);
  const auto inside = between(sides[1], sides[3], rows)
                          .unsqueeze(3)
                          .logical_and(between(sides[0], sides[2], bytes * kMaskBits).unsqueeze(2))
                          .flatten(2);
  const auto cellShares = inside * of.share.unsqueeze(2);
  const auto objects = of.object.view({images, count, 1, 1}).expand({images, count, rows, bytes});
  const auto target = anyOf(of.masks.gather(1, objects), 1).flatten(2).to(at::kFloat);
  const auto logits = of.weights.transpose(1, 2).bmm(of.prototypes);
  Slopes slopes;
  slopes.loss = (at::softplus(logits) - logits * target).mul_(cellShares).sum();
  const auto slope = logits.sigmoid().sub_(target).mul_(cellShares);
  slopes.weights = of.prototypes.bmm(slope.transpose(1, 2));
  if (ofPrototypes) slopes.prototypes = of.weights.bmm(slope);
  return slopes;
}

/** Zero, with a gradient of `slopes` towards `values`. */
at::Tensor sloping(const at::Tensor& values, const at::Tensor& slopes) {
  const auto product = (values * slopes).sum();
  return product - product.detach();
}

}  // namespace

at::Tensor maskLoss(const MaskTask& task, const Labels& labels) {
  std::vector<at::Tensor> levels;
  for (const at::Tensor& map : task.weights) levels.push_back(map.flatten(2));
  const auto all = at::cat(levels, 2), prototypes = task.prototypes.flatten(2);
  const at::Tensor &truths = labels.truths, &masks = labels.masks;
  const int64_t images = all.size(0), width = all.size(1), cells = prototypes.size(2);
  int64_t slots = std::min(truths.size(1) * task.positivesMax, all.size(2));
  // A CPU can wait for the count: slots that stay empty would cost as much as others.
  if (!all.is_cuda())
    slots = std::max<int64_t>(task.targets.score.gt(kScoreMin).sum(1).max().item<int64_t>(), 1);
  const auto [score, anchor] = task.targets.score.topk(slots, 1);
  const auto weights = all.gather(2, anchor.unsqueeze(1).expand({images, width, slots}));
  const auto object = task.targets.object.gather(1, anchor);
  const auto boxes =
      truths.narrow(2, 1, 4).gather(1, object.unsqueeze(2).expand({images, slots, 4}));
  const auto learns = score.gt(kScoreMin).logical_and_(hasMask(masks).gather(1, object));
  const auto area = (boxes.select(2, 2) - boxes.select(2, 0)) *
                    (boxes.select(2, 3) - boxes.select(2, 1)) / (kMaskStride * kMaskStride);
  const auto share = learns / area.clamp_min(1) / labels.sum(learns.sum()).clamp_min(1);

  std::vector<at::Tensor> losses, ofWeights, ofPrototypes;
  const bool learnsPrototypes = prototypes.requires_grad();
  const int64_t chunk = (all.is_cuda() ? kChunkGpu : kChunkCpu) / (slots * cells);
  for (int64_t from = 0; from < images;) {
    const at::NoGradGuard none;
    const int64_t count = std::min(std::max<int64_t>(chunk, 1), images - from);
    const auto part = [&](const at::Tensor& of) { return of.detach().narrow(0, from, count); };
    const Slopes slopes = slopesOf(
        {part(weights), part(prototypes), part(object), part(share), part(boxes), part(masks)},
        learnsPrototypes);
    losses.push_back(slopes.loss);
    ofWeights.push_back(slopes.weights);
    if (learnsPrototypes) ofPrototypes.push_back(slopes.prototypes);
    from += count;
  }
  auto loss = at::stack(losses).sum() + sloping(weights, at::cat(ofWeights));
  if (learnsPrototypes) loss = loss + sloping(prototypes, at::cat(ofPrototypes));
  return loss;
}

at::Tensor semanticLoss(const at::Tensor& logits, const Labels& labels) {
  const at::Tensor &truths = labels.truths, &masks = labels.masks;
  const int64_t images = logits.size(0), rows = logits.size(2);
  const auto classes = truths.select(2, 0);
  const auto target = at::zeros_like(logits);
  for (int64_t i = 0; i < images; ++i) {
    const auto pairs = masks[i].view({-1, rows, 2, masks.size(3)});
    const auto either = pairs.select(2, 0).bitwise_or(pairs.select(2, 1));
    const auto covered = anyOf(either, 2).to(at::kFloat);
    target[i].index_add_(0, classes[i].clamp_min(0).to(at::kLong), covered);
  }
  target.clamp_max_(1);
  const auto counted = hasMask(masks).logical_or(classes.lt(0)).all(1);
  const auto flat = [](const at::Tensor& map) { return map.flatten(2); };
  const auto entropy = (at::softplus(logits) - logits * target).flatten(2).mean(2);
  const auto likely = logits.sigmoid();
  const auto shared = flat(likely * target).sum(2), both = flat(likely + target).sum(2);
  const auto dice = 1 - (2 * shared + 1) / (both + 1);
  const auto each = (entropy + dice).mean(1) / 2;
  return (each * counted).sum() / labels.sum(counted.sum()).clamp_min(1);
}

}  // namespace vantage
