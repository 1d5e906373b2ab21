// c10d's Gloo group over this machine's loopback. Its headers name types of Gloo, whose own headers
// come with no torch: `gloo-types.h` stands for all of these.
#include "group.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#ifdef VANTAGE_GLOO
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace vantage {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

/** What Gloo throws of a process that is gone, or does not answer in time. */
template <typename Body>
auto withPeers(Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw EngineError("peer_lost", "a process of the training is gone or does not answer (" +
                                       text.substr(0, text.find('\n')) + ")");
  }
}

class PendingWork : public PendingSum {
 public:
  explicit PendingWork(Work work) : work_(std::move(work)) {}
  void wait() override {
    withPeers([&] { work_->wait(); });
  }

 private:
  Work work_;
};

/**
 * The file by which processes meet. The store's end writes into it once more and ends the process
 * where that fails, as on a full disk, but not where the file is gone.
 */
class StoreFile {
 public:
  explicit StoreFile(const std::string& path) : path_(path) {}
  ~StoreFile() {
    if (!isKept_) std::remove(path_.c_str());
  }
  StoreFile(const StoreFile&) = delete;
  void keep() { isKept_ = true; }

 private:
  const std::string& path_;
  bool isKept_ = false;
};

}  // namespace

struct Group::Backend {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
};

Group::Group(const GroupOptions& options, const at::Device& device) : options_(options) {
  if (device.is_cuda())
    throw EngineError("bad_argument", "several processes train on CPUs alone in this build");
  if (options.size < 2 || options.rank < 0 || options.rank >= options.size)
    throw EngineError("bad_argument", "a rank is below the number of processes, of at least two");
  const std::chrono::milliseconds timeout(static_cast<int64_t>(options.timeoutSeconds * 1e3));
  withPeers([&] {
    auto store = c10::make_intrusive<c10d::FileStore>(options.store, options.size);
    StoreFile file(options.store);
    store->setTimeout(timeout);
    const auto of = c10d::ProcessGroupGloo::Options::create(timeout);
    of->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    backend_ = std::make_unique<Backend>();
    backend_->group =
        c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.size, of);
    file.keep();
  });
}

Group::~Group() = default;

std::unique_ptr<PendingSum> Group::startSum(const at::Tensor& tensor) const {
  std::vector<at::Tensor> tensors{tensor};
  return withPeers(
      [&] { return std::make_unique<PendingWork>(backend_->group->allreduce(tensors)); });
}

at::Tensor Group::sum(const at::Tensor& own) const {
  const at::NoGradGuard none;
  const auto all = own.detach().clone(at::MemoryFormat::Contiguous);
  startSum(all)->wait();
  return all;
}

void Group::copyFromFirst(const at::Tensor& tensor) const {
  std::vector<at::Tensor> tensors{tensor};
  withPeers([&] { backend_->group->broadcast(tensors)->wait(); });
}

}  // namespace vantage

#else

namespace vantage {

struct Group::Backend {};

Group::Group(const GroupOptions&, const at::Device&) {
  throw EngineError("bad_argument", "several processes cannot train: this torch has no Gloo");
}

Group::~Group() = default;

std::unique_ptr<PendingSum> Group::startSum(const at::Tensor&) const { return nullptr; }

at::Tensor Group::sum(const at::Tensor& own) const { return own; }

void Group::copyFromFirst(const at::Tensor&) const {}

}  // namespace vantage
#endif
