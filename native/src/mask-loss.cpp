// The gradient of masks is written out: autograd would keep a map of logits for every positive,
// some gigabytes for a crowded batch. So logits are made for a block of positives at a time, their
// slopes at once become those of weights and prototypes, and a product with these hands them to
// autograd.
#include "mask-loss.h"

#include <algorithm>

#include "blocks.h"
#include "flags.h"
#include "mask.h"

namespace vantage {
namespace {

constexpr double kScoreMin = 1e-6;
/** Values of logits that are made at once: fits a CPU's caches, fills a GPU. */
constexpr int64_t kBlockCpu = 1 << 20, kBlockGpu = 1 << 26;
/** Values below which the operations of a block cost more than what it computes. */
constexpr int64_t kFreeCpu = 1 << 14, kFreeGpu = 1 << 23;

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

/** Whether objects have a mask: [N]. */
at::Tensor hasMask(const at::Tensor& masks) {
  if (masks.size(0) == 0) return masks.new_zeros({0}, at::kBool);
  return masks.flatten(1).amax(1).gt(0);
}

/** Index of each image's first object among all. */
std::vector<int64_t> startsOf(const Labels& labels) {
  std::vector<int64_t> starts;
  int64_t start = 0;
  for (const int64_t count : labels.counts) {
    starts.push_back(start);
    start += count;
  }
  return starts;
}

/** Whether centres of cells lie between two sides: [b, K, cells]. */
at::Tensor between(const at::Tensor& low, const at::Tensor& high, int64_t cells) {
  const auto centres = at::arange(cells, low.options()).add_(0.5).mul_(kMaskStride);
  return centres.ge(low.unsqueeze(2)).logical_and_(centres.lt(high.unsqueeze(2)));
}

/** What the positives of a block learn. */
struct Positives {
  /** [b, 32, K] and [b, 32, cells]. */
  at::Tensor weights, prototypes;
  /** [b, K]: weight of a cell's entropy. */
  at::Tensor share;
  /** [b, K, 4] in pixels. */
  at::Tensor boxes;
  /** [b, K, h, w / 8]. */
  at::Tensor masks;
};

struct Slopes {
  at::Tensor loss, weights, prototypes;
};

Slopes slopesOf(const Positives& of, bool ofPrototypes) {
  const int64_t rows = of.masks.size(2), bytes = of.masks.size(3);
  const auto sides = of.boxes.unbind(2);
  const auto inside = between(sides[1], sides[3], rows)
                          .unsqueeze(3)
                          .logical_and(between(sides[0], sides[2], bytes * kMaskBits).unsqueeze(2))
                          .flatten(2);
  const auto cellShares = inside * of.share.unsqueeze(2);
  const auto target = anyOf(of.masks, 1).flatten(2).to(at::kFloat);
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
  const at::Tensor isPositive = task.targets.score.gt(kScoreMin);
  std::vector<int64_t> slots;
  if (all.is_cuda()) {
    for (const int64_t count : labels.counts)
      slots.push_back(std::min(count * task.positivesMax, all.size(2)));
  } else {
    // A CPU can wait for the counts: slots that stay empty would cost as much as others.
    const auto counted = isPositive.sum(1);
    slots.assign(counted.data_ptr<int64_t>(), counted.data_ptr<int64_t>() + images);
  }
  const std::vector<int64_t> starts = startsOf(labels);
  // [B, A]: index of an anchor's object among all of the batch.
  std::vector<at::Tensor> shifted;
  for (int64_t image = 0; image < images; ++image)
    shifted.push_back((task.targets.object[image] + starts[image]).clamp_max_(masks.size(0) - 1));
  const auto object = at::stack(shifted);
  auto learns = isPositive;
  // Without an object nothing is positive.
  if (masks.size(0) > 0)
    learns =
        isPositive.logical_and(hasMask(masks).index_select(0, object.flatten()).view_as(object));
  const auto boxes = truths.narrow(2, 1, 4);
  const auto learning = labels.sum(learns.sum()).clamp_min(1);

  std::vector<at::Tensor> losses;
  const bool learnsPrototypes = prototypes.requires_grad();
  const auto ofWeights = at::zeros_like(all);
  const auto ofPrototypes = learnsPrototypes ? at::zeros_like(prototypes) : at::Tensor();
  const bool isGpu = all.is_cuda();
  for (const Block& block : blocksOf(slots, {(isGpu ? kBlockGpu : kBlockCpu) / cells,
                                             (isGpu ? kFreeGpu : kFreeCpu) / cells})) {
    const at::NoGradGuard none;
    const int64_t count = block.images, slotCount = block.rows;
    const auto part = [&](const at::Tensor& of) {
      return of.detach().narrow(0, block.image, count);
    };
    // The anchors of the best scores are those that learn. All blocks of an image ask for as many:
    // of equal scores another number might take others.
    const int64_t best = count == 1 ? slots[block.image] : slotCount;
    const auto anchor =
        std::get<1>(part(task.targets.score).topk(best, 1)).narrow(1, block.row, slotCount);
    const auto sides = part(boxes).gather(
        1, part(task.targets.object).gather(1, anchor).unsqueeze(2).expand({-1, -1, 4}));
    const auto area = (sides.select(2, 2) - sides.select(2, 0)) *
                      (sides.select(2, 3) - sides.select(2, 1)) / (kMaskStride * kMaskStride);
    const auto share = part(learns).gather(1, anchor) / area.clamp_min(1) / learning;
    const auto of = anchor.unsqueeze(1).expand({count, width, slotCount});
    const auto own = masks.index_select(0, part(object).gather(1, anchor).flatten());
    const Slopes slopes = slopesOf({part(all).gather(2, of), part(prototypes), share, sides,
                                    own.view({count, slotCount, masks.size(1), masks.size(2)})},
                                   learnsPrototypes);
    losses.push_back(slopes.loss);
    part(ofWeights).scatter_(2, of, slopes.weights);
    if (learnsPrototypes) part(ofPrototypes).add_(slopes.prototypes);
  }
  auto loss = losses.empty() ? at::zeros({}, all.options()) : at::stack(losses).sum();
  loss = loss + sloping(all, ofWeights);
  if (learnsPrototypes) loss = loss + sloping(prototypes, ofPrototypes);
  return loss;
}

at::Tensor semanticLoss(const at::Tensor& logits, const Labels& labels) {
  const at::Tensor& masks = labels.masks;
  const int64_t images = logits.size(0), rows = logits.size(2);
  const auto target = at::zeros_like(logits);
  const auto has = hasMask(masks);
  const std::vector<int64_t> starts = startsOf(labels);
  std::vector<at::Tensor> counts;
  for (int64_t i = 0; i < images; ++i) {
    const auto own = [&](const at::Tensor& all) {
      return all.narrow(0, starts[i], labels.counts[i]);
    };
    counts.push_back(own(has).all());
    if (labels.counts[i] == 0) continue;
    const auto pairs = own(masks).view({-1, rows, 2, masks.size(2)});
    const auto either = pairs.select(2, 0).bitwise_or(pairs.select(2, 1));
    const auto covered = anyOf(either, 2).to(at::kFloat);
    const auto classes = labels.truths[i].select(1, 0).narrow(0, 0, labels.counts[i]);
    target[i].index_add_(0, classes.to(at::kLong), covered);
  }
  target.clamp_max_(1);
  const auto counted = at::stack(counts);
  const auto flat = [](const at::Tensor& map) { return map.flatten(2); };
  const auto entropy = (at::softplus(logits) - logits * target).flatten(2).mean(2);
  const auto likely = logits.sigmoid();
  const auto shared = flat(likely * target).sum(2), both = flat(likely + target).sum(2);
  const auto dice = 1 - (2 * shared + 1) / (both + 1);
  const auto each = (entropy + dice).mean(1) / 2;
  return (each * counted).sum() / labels.sum(counted.sum()).clamp_min(1);
}

}  // namespace vantage
