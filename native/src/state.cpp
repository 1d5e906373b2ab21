// Tensors lie one after another, each at a multiple of 64 bytes as vector instructions and cuDNN
// prefer it. Matrices of one shape are neighbours, so that one batched product takes them all.
#include "state.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "flags.h"

namespace vantage {
namespace {

/** Values between the starts of tensors are a multiple of this: 64 bytes. */
constexpr int64_t kAligned = 16;

int64_t padded(int64_t count) { return (count + kAligned - 1) / kAligned * kAligned; }

bool endsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/** What decides the order of slots: kind, then shape; equal ones keep the network's order. */
auto rankOf(const NamedTensor& named) {
  const bool matrix = named.tensor.dim() >= 2;
  // The semantic map has logits of classes too, but learns them from every cell of every image, and
  // masks from their own cells: neither needs the class branches' higher rate.
  const bool cls = named.name.find(".cls.") != std::string::npos;
  return std::make_tuple(!matrix, endsWith(named.name, ".bias"), cls,
                         matrix ? named.tensor.sizes().vec() : std::vector<int64_t>{});
}

std::vector<SlotGroup> groupsOf(const std::vector<NamedTensor>& sorted,
                                const std::vector<Slot>& slots) {
  std::vector<SlotGroup> groups;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto [plain, bias, cls, sizes] = rankOf(sorted[i]);
    const int64_t length = padded(sorted[i].tensor.numel());
    if (groups.empty() || groups.back().matrix == plain || groups.back().bias != bias ||
        groups.back().cls != cls) {
      groups.emplace_back();
      groups.back().start = slots[i].start;
      groups.back().matrix = !plain;
      groups.back().bias = bias;
      groups.back().cls = cls;
    }
    SlotGroup& group = groups.back();
    group.length += length;
    if (plain) continue;
    const bool same =
        i > 0 && !group.shapes.empty() && sorted[i - 1].tensor.sizes() == sorted[i].tensor.sizes();
    if (same) {
      ++group.shapes.back().count;
      continue;
    }
    const int64_t rows = sizes[0], columns = sorted[i].tensor.numel() / rows;
    const double across = static_cast<double>(sizes[sizes.size() - 2]) / sizes.back();
    group.shapes.push_back(
        {slots[i].start, 1, length, rows, columns, std::sqrt(std::max(1.0, across))});
  }
  return groups;
}

/** A view of `all` in a tensor's shape, in the order that it has in memory. */
at::Tensor viewOf(const at::Tensor& all, const Slot& slot) {
  return all.as_strided(slot.tensor.sizes(), slot.tensor.strides(),
                        all.storage_offset() + slot.start);
}

/** Whether values of equal shapes have the same order in memory. */
bool liesAs(const at::Tensor& one, const at::Tensor& other) {
  for (int64_t dim = 0; dim < one.dim(); ++dim)
    if (one.size(dim) > 1 && one.stride(dim) != other.stride(dim)) return false;
  return true;
}

std::vector<NamedTensor> viewsOf(const at::Tensor& all, const std::vector<Slot>& slots,
                                 TensorKind kind) {
  std::vector<NamedTensor> views;
  for (const Slot& slot : slots) views.push_back({slot.name, viewOf(all, slot), kind});
  return views;
}

/** Moves the slots' tensors into one, and returns it. */
at::Tensor moved(std::vector<Slot>& slots, const at::TensorOptions& options) {
  int64_t length = 0;
  for (Slot& slot : slots) {
    slot.start = length;
    length += padded(slot.tensor.numel());
  }
  const auto all = at::zeros({length}, options);
  for (Slot& slot : slots) {
    const auto view = viewOf(all, slot);
    view.copy_(slot.tensor.detach());
    slot.tensor.set_data(view);
  }
  return all;
}

}  // namespace

PackedState::PackedState(const std::vector<NamedTensor>& state) {
  at::NoGradGuard none;
  std::vector<NamedTensor> sorted;
  for (const NamedTensor& named : state) {
    order_.push_back(named.name);
    if (named.kind == TensorKind::frozen) frozen_.push_back(named);
    else if (named.isLearned()) sorted.push_back(named);
    else (named.tensor.dim() > 0 ? averaged_ : counted_).push_back({named.name, named.tensor, 0});
  }
  std::stable_sort(
      sorted.begin(), sorted.end(),
      [](const NamedTensor& one, const NamedTensor& other) { return rankOf(one) < rankOf(other); });
  for (const NamedTensor& named : sorted) learned_.push_back({named.name, named.tensor, 0});
  const auto options = state.at(0).tensor.options().requires_grad(kNoGradient);
  values_ = moved(learned_, options);
  statistics_ = moved(averaged_, options);
  counters_ = moved(counted_, options);
  groups_ = groupsOf(sorted, learned_);
}

std::vector<NamedTensor> PackedState::learnedOf(const at::Tensor& all) const {
  return viewsOf(all, learned_, TensorKind::parameter);
}

PackedState::Copy PackedState::copy() const {
  at::NoGradGuard none;
  Copy copy{values_.clone(), statistics_.clone(), counters_.clone(), {}};
  std::map<std::string, NamedTensor> byName;
  const auto take = [&](const at::Tensor& all, const std::vector<Slot>& slots, TensorKind kind) {
    for (const NamedTensor& view : viewsOf(all, slots, kind)) byName[view.name] = view;
  };
  take(copy.values, learned_, TensorKind::parameter);
  take(copy.statistics, averaged_, TensorKind::buffer);
  take(copy.counters, counted_, TensorKind::buffer);
  for (const NamedTensor& named : frozen_) byName[named.name] = named;
  for (const std::string& name : order_) copy.state.push_back(byName.at(name));
  return copy;
}

std::vector<at::Tensor> PackedState::gradients() const {
  std::vector<at::Tensor> all;
  for (const Slot& slot : learned_) all.push_back(slot.tensor.grad());
  return all;
}

void PackedState::setGradients(const std::vector<at::Tensor>& gradients) const {
  for (size_t i = 0; i < learned_.size(); ++i) learned_[i].tensor.mutable_grad() = gradients[i];
}

void PackedState::takeGradients(at::Tensor& all) const {
  at::NoGradGuard none;
  std::vector<at::Tensor> parts;
  const auto gap = at::zeros({kAligned}, all.options());
  for (const Slot& slot : learned_) {
    at::Tensor& gradient = slot.tensor.mutable_grad();
    const int64_t count = slot.tensor.numel(), rest = padded(count) - count;
    if (!gradient.defined()) {
      // No path led from the loss to it.
      parts.push_back(at::zeros({count}, all.options()));
    } else {
      const auto laid =
          liesAs(gradient, slot.tensor) ? gradient : at::empty_like(slot.tensor).copy_(gradient);
      parts.push_back(laid.as_strided({count}, {1}, laid.storage_offset()));
    }
    if (rest > 0) parts.push_back(gap.narrow(0, 0, rest));
    gradient.reset();
  }
  all.add_(at::cat(parts));
}

}  // namespace vantage
