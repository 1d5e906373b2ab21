// The state of a network in one long tensor of what is learned and one of statistics: a step of an
// optimiser or an average is then a few operations over all of it, on either device. The network's
// tensors become views of them.
#pragma once
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "network.h"

namespace vantage {

/** Where a tensor lies in its long one. */
struct Slot {
  std::string name;
  at::Tensor tensor;
  int64_t start = 0;
};

/** Slots of one kind, one after another. */
struct SlotGroup {
  int64_t start = 0, length = 0;
  /** Of two dimensions or more: they decay. Biases of convolutions and of norms warm up apart. */
  bool matrix = false, bias = false;
  /** Of the head's class branches. */
  bool cls = false;
  /** Of matrices alone, those of one shape: `count` of [rows, columns], `step` values apart. */
  struct Shape {
    int64_t start = 0, count = 0, step = 0, rows = 0, columns = 0;
    double factor = 1;
  };
  std::vector<Shape> shapes;
};

class Packed {
 public:
  /** Moves the tensors of `state`; they stay the network's own and keep their values. */
  explicit Packed(const std::vector<NamedTensor>& state);

  /** What is learned; means and variances of batch norm; its counters. Gaps stay 0. */
  const at::Tensor& values() const { return values_; }
  const at::Tensor& statistics() const { return statistics_; }
  const at::Tensor& counters() const { return counters_; }
  /** Of `values`. */
  const std::vector<SlotGroup>& groups() const { return groups_; }

  /** Views of `all`, as long as `values`, by the names of what is learned. */
  std::vector<NamedTensor> learnedOf(const at::Tensor& all) const;
  /** Copies of all three, as a state in the network's order. */
  struct Copy {
    at::Tensor values, statistics, counters;
    std::vector<NamedTensor> state;
  };
  Copy copy() const;
  /** What a backward pass left, undefined where no path led to a tensor; and to set it again. */
  std::vector<at::Tensor> gradients() const;
  void setGradients(const std::vector<at::Tensor>& gradients) const;
  /** Adds the gradients that a backward pass left to `all`, and takes them away. */
  void takeGradients(at::Tensor& all) const;

 private:
  at::Tensor values_, statistics_, counters_;
  std::vector<Slot> learned_, averaged_, counted_;
  std::vector<SlotGroup> groups_;
  std::vector<std::string> order_;
};

}  // namespace vantage
