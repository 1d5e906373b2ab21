// Devices and their memory, and what differs between the generations of torch: the only file that
// reads torch's version.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "engine.h"

namespace vantage {

/** `cpu` or `cuda`; fails with `gpu_unavailable`. */
at::Device deviceOf(const std::string& name);
std::vector<Gpu> gpus();
std::string torchVersion();
/** Whether this build's torch is a `wheel` of PyPI or of the `system`. */
std::string torchSource();
/** The CPU has instructions for bf16; without them torch computes it in software, slowly. */
bool hasCpuBf16();

/** Bytes in use: of the GPU by tensors of this process, of the CPU by the whole process. */
uint64_t memoryBytes(const at::Device& device);
/** The maximum of `memoryBytes` since `resetPeakMemory`. */
uint64_t peakMemoryBytes(const at::Device& device);
void resetPeakMemory(const at::Device& device);
/** Bytes that are free on that GPU beside what torch keeps for later tensors; else 0. */
uint64_t freeBytes(const at::Device& device);
/** Bytes of GPU memory that tensors of this process hold. */
int64_t gpuBytes();
/** Gives unused memory, which allocators would keep, back to the system. */
void releaseMemory(const at::Device& device);
/** Waits until the device has done what it was given. */
void synchronize(const at::Device& device);
/** The cudaStream_t that torch is using; null on the CPU. */
void* currentStream(const at::Device& device);

/** Autocast to a precision on the device while it lives; no effect for fp32. */
class Autocast {
 public:
  Autocast(Precision precision, const at::Device& device);
  ~Autocast();
  Autocast(const Autocast&) = delete;

 private:
  bool isOn_, before_ = false, cache_ = false;
  at::DeviceType type_;
};

}  // namespace vantage
