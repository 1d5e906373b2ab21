#include "recorded-pass.h"

#include <torch/csrc/autograd/autograd.h>

#include "flags.h"

namespace vantage {
namespace {

/** Shapes that are recorded: each has images, maps and gradients of its own. */
constexpr size_t kShapesMax = 8;

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

/** Keeps a network from being interrupted: what is recorded by half is of no use. */
class StopPause {
 public:
  explicit StopPause(Network& network) : network_(network), stop_(network.stop()) {
    // On a CPU nothing is recorded, and a pass takes long.
    if (canRecord(network.device())) network.setStop({});
  }
  ~StopPause() { network_.setStop(stop_); }
  StopPause(const StopPause&) = delete;

 private:
  Network& network_;
  std::shared_ptr<const std::atomic<bool>> stop_;
};

}  // namespace

RecordedPass::RecordedPass(Network& network, const at::Tensor& images, const RecordedPass* beside)
    : network_(network),
      images_(images.clone()),
      forward_(
          network.device(), [this] { runForward(); }, beside ? &beside->forward_ : nullptr),
      backward_(network.device(), [this] { runBackward(); }, &forward_) {}

void RecordedPass::runForward() { maps_ = network_.forward(images_, BatchNorm::training); }

void RecordedPass::runBackward() {
  gradients_ = torch::autograd::grad(valuesOf(maps_), learnedOf(network_), slopes_, {}, kNoNewGraph,
                                     kMayLack);
}

NetworkMaps RecordedPass::forward(const at::Tensor& images) {
  const StopPause pause(network_);
  images_.copy_(images);
  forward_.run();
  leaves_ = maps_;
  for (at::Tensor* map : listed(leaves_)) *map = map->detach().requires_grad_();
  return leaves_;
}

void RecordedPass::backward() {
  const at::NoGradGuard none;
  const StopPause pause(network_);
  const std::vector<at::Tensor> leaves = valuesOf(leaves_);
  if (slopes_.empty())
    for (const at::Tensor& leaf : leaves) slopes_.push_back(at::empty_like(leaf));
  for (size_t i = 0; i < slopes_.size(); ++i) {
    const at::Tensor& slope = leaves[i].grad();
    if (slope.defined()) slopes_[i].copy_(slope);
    else slopes_[i].zero_();
  }
  leaves_ = {};
  backward_.run();
  const std::vector<at::Tensor> learned = learnedOf(network_);
  for (size_t i = 0; i < learned.size(); ++i) learned[i].mutable_grad() = gradients_[i];
}

RecordedPass* RecordedPasses::passFor(const at::Tensor& images) {
  const auto found = entries_.find(shapeOf(images));
  if (found == entries_.end() || found->second.steps == 0) return nullptr;
  Entry& entry = found->second;
  if (!entry.pass) {
    entry.pass = std::make_unique<RecordedPass>(network_, images, first_);
    if (!first_) first_ = entry.pass.get();
  }
  return entry.pass.get();
}

void RecordedPasses::countStep(const at::Tensor& images) {
  const Shape shape = shapeOf(images);
  if (entries_.count(shape) || entries_.size() < kShapesMax) ++entries_[shape].steps;
}

}  // namespace vantage
