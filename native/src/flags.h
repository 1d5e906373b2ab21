// Names for the booleans that torch's operations take by position.
#pragma once

namespace vantage {

/** `sum`, `amax`: the reduced dimensions stay, with a length of 1. */
constexpr bool kKeepDim = true;
/** `sort`, `argsort`. */
constexpr bool kStable = true, kDescending = true, kAscending = false;
/** `to`: the host does not wait for the copy. */
constexpr bool kNonBlocking = true, kBlocking = false;
/** `to`: a copy also where device and type are the same. */
constexpr bool kCopy = true;
/** `batch_norm`: cuDNN where it can. */
constexpr bool kCudnn = true;
/** `pinned_memory`: memory of the host that a GPU copies from without a wait. */
constexpr bool kPinned = true;
/** `requires_grad`. */
constexpr bool kNoGradient = false;
/** `autograd::grad`: gradients have no gradients, and may be undefined. */
constexpr bool kNoNewGraph = false, kMayLack = true;
/** Switches of torch's contexts. */
constexpr bool kEnabled = true, kDisabled = false;

}  // namespace vantage
