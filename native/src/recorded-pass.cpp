#include "recorded-pass.h"

#include <torch/csrc/autograd/autograd.h>

#include "flags.h"

namespace vantage {
namespace {

/** Times that a shape is met before it is recorded, and shapes that are recorded. */
constexpr int kMetBefore = 2;
constexpr size_t kShapesMax = 32;

/** All maps that there are, in one order. */
std::vector<at::Tensor*> listed(NetworkMaps& maps) {
  std::vector<at::Tensor*> all;
  for (BranchMaps* branch : {&maps.o2m, &maps.o2o})
    for (auto* levels : {&branch->box, &branch->cls, &branch->mask})
      for (at::Tensor& map : *levels) all.push_back(&map);
  for (at::Tensor* map : {&maps.prototypes, &maps.semantic})
    if (map->defined()) all.push_back(map);
  return all;
}

std::vector<at::Tensor> valuesOf(NetworkMaps& maps) {
  std::vector<at::Tensor> values;
  for (const at::Tensor* map : listed(maps)) values.push_back(*map);
  return values;
}

std::vector<at::Tensor> learnedOf(const Network& network) {
  std::vector<at::Tensor> learned;
  for (const NamedTensor& named : network.state())
    if (named.isLearned()) learned.push_back(named.tensor);
  return learned;
}

}  // namespace

RecordedPass::RecordedPass(Network& network, const at::Tensor& images, const RecordedPass* beside)
    : network_(network),
      forward_(network.device()),
      backward_(network.device()),
      images_(images.clone()) {
  // What steps before left in the allocator is no memory of a recording's.
  releaseMemory(network.device());
  forward_.record([this] { maps_ = network_.forward(images_, BatchNorm::training); },
                  beside ? &beside->forward_ : nullptr);
}

NetworkMaps RecordedPass::forward(const at::Tensor& images) {
  images_.copy_(images);
  forward_.replay();
  leaves_ = maps_;
  for (at::Tensor* map : listed(leaves_)) *map = map->detach().requires_grad_();
  return leaves_;
}

void RecordedPass::backward() {
  const at::NoGradGuard none;
  const std::vector<at::Tensor> leaves = valuesOf(leaves_);
  const std::vector<at::Tensor> learned = learnedOf(network_);
  if (!hasBackward_) {
    slopes_.clear();
    for (const at::Tensor& leaf : leaves) slopes_.push_back(at::empty_like(leaf));
    backward_.record(
        [this, learned] {
          gradients_ =
              torch::autograd::grad(valuesOf(maps_), learned, slopes_, {}, kNoNewGraph, kMayLack);
        },
        &forward_);
    hasBackward_ = true;
  }
  for (size_t i = 0; i < slopes_.size(); ++i) {
    const at::Tensor& slope = leaves[i].grad();
    if (slope.defined()) slopes_[i].copy_(slope);
    else slopes_[i].zero_();
  }
  backward_.replay();
  for (size_t i = 0; i < learned.size(); ++i) learned[i].mutable_grad() = gradients_[i];
}

RecordedPass* RecordedPasses::passFor(const at::Tensor& images) {
  const Shape shape{images.size(0), images.size(2), images.size(3), network_.precision()};
  if (!entries_.count(shape) && entries_.size() == kShapesMax) return nullptr;
  Entry& entry = entries_[shape];
  if (entry.met++ < kMetBefore) return nullptr;
  if (!entry.pass) {
    entry.pass = std::make_unique<RecordedPass>(network_, images, first_);
    if (!first_) first_ = entry.pass.get();
  }
  return entry.pass.get();
}

}  // namespace vantage
