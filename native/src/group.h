// Processes that train as one, each on its own device and on its part of every batch: sums and
// copies between them, by torch's c10d. All processes make the same calls in the same order.
#pragma once
#include <memory>

#include <ATen/ATen.h>

#include "engine.h"

namespace vantage {

/** A sum under way; it has to be waited for. */
class PendingSum {
 public:
  virtual ~PendingSum() = default;
  /** Fails with `peer_lost`. */
  virtual void wait() = 0;
};

/** The images of the batch under way, and how many of them are this process's. */
struct BatchPart {
  int64_t images = 0;
  /** 0 where a process has none: it computes on a stand-in that counts nowhere. */
  double weight = 1;
};

class Group {
 public:
  /** Waits until all processes are there. Fails with `peer_lost` where one is not in time. */
  Group(const GroupOptions& options, const at::Device& device);
  /** The others' calls under way fail. */
  ~Group();
  Group(const Group&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  bool synchronizesNorms() const { return options_.synchronizesNorms; }

  /** This process's part of the batch under way, set before each pass. */
  BatchPart part;

  /** Sum of what the processes have; `own` stays as it is. No gradient passes through it. */
  at::Tensor sum(const at::Tensor& own) const;
  /** The same in place and beside what this process does next. */
  std::unique_ptr<PendingSum> startSum(const at::Tensor& tensor) const;
  /** Has every process take the values of the first. */
  void copyFromFirst(const at::Tensor& tensor) const;

 private:
  struct Backend;
  GroupOptions options_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace vantage
