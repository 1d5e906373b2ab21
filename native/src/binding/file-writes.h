// Files that are written beside an engine's calls: a call copies what it writes on the engine's
// thread, which may then go on changing it, and the copy becomes a file on a thread of its own. In
// their order, so that what a later file refers to is there before it.
#pragma once
#include <deque>
#include <future>
#include <memory>
#include <utility>

#include "async.h"

namespace vantage {

/** Used on one thread. Ending it waits for what is being written. */
class FileWrites {
 public:
  /**
   * Waits until few are left: each holds a copy in memory. To be called before one is made. Two at
   * once, so that the best weights and the checkpoint that refers to them are one pause.
   */
  void makeRoom() {
    waitUntil(kWaitingMax - 1);
    if (!thread_) thread_ = std::make_unique<Thread>();
  }
  /** Waits until all were written. */
  void finish() { waitUntil(0); }

  /** Writes once there is room; `write` throws nothing. */
  void post(std::function<void()> write) {
    const auto task = std::make_shared<std::packaged_task<void()>>(std::move(write));
    waiting_.push_back(task->get_future());
    thread_->post([task] { (*task)(); });
  }

 private:
  static constexpr size_t kWaitingMax = 2;

  void waitUntil(size_t left) {
    for (; waiting_.size() > left; waiting_.pop_front()) waiting_.front().wait();
  }

  std::deque<std::future<void>> waiting_;
  /** Made for the first file: most engines write none. */
  std::unique_ptr<Thread> thread_;
};

}  // namespace vantage
