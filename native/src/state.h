// The state of a network in three long tensors: parameters, statistics and counters. A step of an
// optimiser or an average is then a few operations over all values, on either device. The network's
// tensors become views of the long ones.
#pragma once
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "network.h"

namespace vantage {

/** A tensor and where it starts in its long tensor. */
struct Slot {
  std::string name;
  at::Tensor tensor;
  int64_t start = 0;
};

/** Slots of one kind, one after another. */
struct SlotGroup {
  int64_t start = 0, length = 0;
  /** Tensors of two dimensions or more decay. Biases, of norms too, have a warm-up of their own. */
  bool matrix = false, bias = false;
  /** They belong to the head's class branches. */
  bool cls = false;
  /** Matrices of one shape: `count` of [rows, columns], each `step` values after the one before. */
  struct Shape {
    int64_t start = 0, count = 0, step = 0, rows = 0, columns = 0;
    double factor = 1;
  };
  std::vector<Shape> shapes;
};

class PackedState {
 public:
  /** Moves the tensors of `state`; they stay the network's own and keep their values. */
  explicit PackedState(const std::vector<NamedTensor>& state);

  /** Parameters; means and variances of batch norm; its counters. Gaps between tensors stay 0. */
  const at::Tensor& values() const { return values_; }
  const at::Tensor& statistics() const { return statistics_; }
  const at::Tensor& counters() const { return counters_; }
  /** Groups of `values`. */
  const std::vector<SlotGroup>& groups() const { return groups_; }

  /** Views of `all`, which is as long as `values`, by the names of the parameters. */
  std::vector<NamedTensor> learnedOf(const at::Tensor& all) const;
  /** Copies of all three, as a state in the network's order. */
  struct Copy {
    at::Tensor values, statistics, counters;
    std::vector<NamedTensor> state;
  };
  Copy copy() const;
  /** The gradients of a backward pass, undefined where no path led to a parameter. */
  std::vector<at::Tensor> gradients() const;
  void setGradients(const std::vector<at::Tensor>& gradients) const;
  /** Adds the gradients that a backward pass left to `all`, and takes them away. */
  void takeGradients(at::Tensor& all) const;

 private:
  at::Tensor values_, statistics_, counters_;
  std::vector<Slot> learned_, averaged_, counted_;
  /** They stay where they were, and so do their copies: nothing changes them. */
  std::vector<NamedTensor> frozen_;
  std::vector<SlotGroup> groups_;
  std::vector<std::string> order_;
};

}  // namespace vantage
