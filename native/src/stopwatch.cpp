// Marks of phases: by the clock on the CPU, by events of CUDA on a GPU.
#include "stopwatch.h"

#include "device.h"
#ifdef VANTAGE_GPU
#include <cuda_runtime_api.h>
#endif

namespace vantage {

#ifdef VANTAGE_GPU
namespace {

cudaEvent_t asEvent(void* event) { return static_cast<cudaEvent_t>(event); }

}  // namespace

/** An event that is recorded now; null where CUDA gives none: its mark then counts for nothing. */
void* Stopwatch::event() {
  cudaEvent_t event = nullptr;
  if (!spare_.empty()) {
    event = asEvent(spare_.back());
    spare_.pop_back();
  } else if (cudaEventCreate(&event) != cudaSuccess) {
    return nullptr;
  }
  cudaEventRecord(event, static_cast<cudaStream_t>(currentStream(device_)));
  return event;
}

Stopwatch::~Stopwatch() {
  for (const auto& [event, phase] : marks_) spare_.push_back(event);
  for (void* event : spare_)
    if (event) cudaEventDestroy(asEvent(event));
}

void LaunchLimit::afterStep() {
  if (!device_.is_cuda()) return;
  cudaEvent_t now = nullptr;
  if (cudaEventCreateWithFlags(&now, cudaEventDisableTiming | cudaEventBlockingSync) != cudaSuccess)
    return synchronize(device_);
  cudaEventRecord(now, static_cast<cudaStream_t>(currentStream(device_)));
  if (before_) {
    // A failure on the device is reported by the next call that torch makes to it.
    cudaEventSynchronize(asEvent(before_));
    cudaEventDestroy(asEvent(before_));
  }
  before_ = now;
}

LaunchLimit::~LaunchLimit() {
  if (before_) cudaEventDestroy(asEvent(before_));
}
#else
void* Stopwatch::event() { return nullptr; }
Stopwatch::~Stopwatch() = default;
void LaunchLimit::afterStep() {}
LaunchLimit::~LaunchLimit() = default;
#endif

Stopwatch::Stopwatch(const at::Device& device)
    : device_(device), last_(std::chrono::steady_clock::now()) {
  if (device_.is_cuda()) marks_.emplace_back(event(), data);
}

void Stopwatch::mark(Phase phase) {
  if (device_.is_cuda()) {
    marks_.emplace_back(event(), phase);
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  seconds_[phase] += std::chrono::duration<double>(now - last_).count();
  last_ = now;
}

const std::array<double, 4>& Stopwatch::seconds() {
#ifdef VANTAGE_GPU
  if (device_.is_cuda()) {
    synchronize(device_);
    for (size_t i = 1; i < marks_.size(); ++i) {
      float milliseconds = 0;
      const auto [before, after] = std::pair(marks_[i - 1].first, marks_[i].first);
      if (before && after &&
          cudaEventElapsedTime(&milliseconds, asEvent(before), asEvent(after)) == cudaSuccess)
        seconds_[marks_[i].second] += milliseconds / 1e3;
      if (before) spare_.push_back(before);
    }
    marks_.erase(marks_.begin(), marks_.end() - 1);
  }
#endif
  return seconds_;
}

}  // namespace vantage
