// Batch norm and SiLU in one pass over a map, forward and backward: a step reads and writes the
// maps of a network many times, and on a GPU that is what it waits for. The arithmetic of one value
// is here, for the CPU's loops and our kernel alike. No torch.
//
// x is a value of the map, n = (x − mean) · factor its normalised one, z = n · weight + bias, and
// the result SiLU of z. Backward makes z again from x: nothing between the two is stored.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "sample.h"

namespace vantage {

/** A number in bf16. */
struct Bf16 {
  uint16_t bits;
};

VANTAGE_HD float wide(float value) { return value; }
VANTAGE_HD float wide(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float number;
  memcpy(&number, &bits, sizeof(number));
  return number;
}

VANTAGE_HD void store(float value, float& to) { to = value; }
/** Rounded to the nearest, of two to the even one. */
VANTAGE_HD void store(float value, Bf16& to) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const bool isNan = value != value;
  to.bits = static_cast<uint16_t>(isNan ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/** What a channel's values are normalised by. */
struct NormChannel {
  float mean, factor, weight, bias;
};

VANTAGE_HD float normalOf(float x, const NormChannel& of) { return (x - of.mean) * of.factor; }

VANTAGE_HD float siluOf(float z) { return z / (1 + expf(-z)); }

/** Slope of SiLU at z. */
VANTAGE_HD float siluSlope(float z) {
  const float sigmoid = 1 / (1 + expf(-z));
  return sigmoid * (1 + z * (1 - sigmoid));
}

VANTAGE_HD float normSilu(float x, const NormChannel& of) {
  return siluOf(normalOf(x, of) * of.weight + of.bias);
}

/** The slope towards z, of one towards the result. */
VANTAGE_HD float slopeOfNorm(float slope, float normal, const NormChannel& of) {
  return slope * siluSlope(normal * of.weight + of.bias);
}

/** Means over a channel's cells: of the slopes towards z, and of these times n. */
struct NormMeans {
  float slope, product;
};

/** The slope towards x, by which the channel's mean and factor depend on x as well. */
VANTAGE_HD float slopeOfMap(float slope, float x, const NormChannel& of, const NormMeans& means) {
  const float normal = normalOf(x, of);
  const float own = slopeOfNorm(slope, normal, of);
  return of.weight * of.factor * (own - means.slope - normal * means.product);
}

enum class NormElement { fp32, bf16 };

/** A map whose channels lie side by side, [cells, channels], and numbers of its channels. */
struct NormMap {
  NormElement element = NormElement::fp32;
  int64_t cells = 0;
  int channels = 0;
  const void* values = nullptr;
  const float *mean = nullptr, *factor = nullptr, *weight = nullptr, *bias = nullptr;
};

/** Cells that are summed up at once. */
constexpr int64_t kNormCells = 512;
constexpr int64_t normBlocks(int64_t cells) { return (cells + kNormCells - 1) / kNormCells; }

/** `result` is as the map. */
void normSiluCpu(const NormMap& map, void* result);
/** `slopes`, towards the result, are as the map; sums [blocks, 2, channels] as of NormMeans. */
void normSumsCpu(const NormMap& map, const void* slopes, float* sums);
/** `means`: [2, channels] as of NormMeans; `result`, the slopes towards the map, is as the map. */
void normSlopesCpu(const NormMap& map, const void* slopes, const float* means, void* result);

#ifdef VANTAGE_CUDA
/** The same on the GPU: every pointer is device memory; they return cudaGetLastError. */
int normSiluCuda(const NormMap& map, void* result, void* stream);
int normSumsCuda(const NormMap& map, const void* slopes, float* sums, void* stream);
int normSlopesCuda(const NormMap& map, const void* slopes, const float* means, void* result,
                   void* stream);
#endif

}  // namespace vantage
