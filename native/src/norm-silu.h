// Batch norm, and the SiLU that mostly comes after it, in one pass over a map, forward and
// backward: a step reads and writes the maps of a network many times, and that is what it waits
// for. The arithmetic of one value is here, for the CPU's loops and our kernel alike. No torch.
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
  // Rounding carries some of what is no number into the sign: the bits of one are added to it.
  const uint32_t nan = -static_cast<uint32_t>((bits & 0x7fffffff) > 0x7f800000) & 0x7fc0;
  to.bits = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16 | nan);
}

/** What a channel's values are normalised by. */
struct NormChannel {
  float mean, factor, weight, bias;
};

VANTAGE_HD float normalOf(float x, const NormChannel& of) { return (x - of.mean) * of.factor; }

/**
 * e^x to a unit in the last place for |x| <= 87; beyond, and of what is no number, as at the bound,
 * by which SiLU is right to 1e-7 down to -1e30. A call of the library's, or a branch, would keep
 * the CPU's loops from being vectors: this is the method and the polynomial of the Cephes library's
 * expf (Moshier, 1992).
 */
VANTAGE_HD float expOf(float x) {
#ifdef __CUDA_ARCH__
  return expf(x);
#else
  constexpr float kPerLn2 = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr uint32_t kBound = 0x42ae0000 /* 87 */, kOne = 0x3f800000, kSign = 0x80000000;
  // Added to a small number, it leaves its nearest integer in the lowest bits.
  constexpr float kRounder = 12582912;
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  const uint32_t size = bits & ~kSign;
  bits = (bits & kSign) | (size < kBound ? size : kBound);
  memcpy(&x, &bits, sizeof(x));
  const float shifted = x * kPerLn2 + kRounder;
  const float power = shifted - kRounder;
  const float rest = x - power * kLn2High - power * kLn2Low;
  float sum = 1.9875691500e-4f;
  sum = sum * rest + 1.3981999507e-3f;
  sum = sum * rest + 8.3334519073e-3f;
  sum = sum * rest + 4.1665795894e-2f;
  sum = sum * rest + 1.6666665459e-1f;
  sum = sum * rest + 5.0000001201e-1f;
  sum = sum * rest * rest + rest + 1;
  memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits << 23) + kOne;
  float scale;
  memcpy(&scale, &bits, sizeof(scale));
  return sum * scale;
#endif
}

VANTAGE_HD float siluOf(float z) { return z / (1 + expOf(-z)); }

/** Slope of SiLU at z. */
VANTAGE_HD float siluSlope(float z) {
  const float sigmoid = 1 / (1 + expOf(-z));
  return sigmoid * (1 + z * (1 - sigmoid));
}

/** What comes after the norm: with none the result is z. */
enum class Activation { none, silu };

template <Activation kActivation = Activation::silu>
VANTAGE_HD float normSilu(float x, const NormChannel& of) {
  const float z = normalOf(x, of) * of.weight + of.bias;
  return kActivation == Activation::silu ? siluOf(z) : z;
}

/** The slope towards z, of one towards the result. */
template <Activation kActivation = Activation::silu>
VANTAGE_HD float slopeOfNorm(float slope, float normal, const NormChannel& of) {
  return kActivation == Activation::silu ? slope * siluSlope(normal * of.weight + of.bias) : slope;
}

/** Means over a channel's cells: of the slopes towards z, and of these times n. */
struct NormMeans {
  float slope, product;
};

/** The slope towards x, by which the channel's mean and factor depend on x as well. */
template <Activation kActivation = Activation::silu>
VANTAGE_HD float slopeOfMap(float slope, float x, const NormChannel& of, const NormMeans& means) {
  const float normal = normalOf(x, of);
  const float own = slopeOfNorm<kActivation>(slope, normal, of);
  return of.weight * of.factor * (own - means.slope - normal * means.product);
}

enum class NormElement { fp32, bf16 };

/** A map whose channels lie side by side, [cells, channels], and numbers of its channels. */
struct NormMap {
  NormElement element = NormElement::fp32;
  Activation activation = Activation::silu;
  int64_t cells = 0;
  int channels = 0;
  const void* values = nullptr;
  const float *mean = nullptr, *factor = nullptr, *weight = nullptr, *bias = nullptr;
};

/** Cells that are summed up at once. */
constexpr int64_t kNormCells = 512;
constexpr int64_t normBlocks(int64_t cells) { return (cells + kNormCells - 1) / kNormCells; }

/** The mean of a channel's values, and the sum of their squared distances from it. */
struct NormMoments {
  double mean, squares;
};

/** Blocks of cells of a map, which different threads may have at once; `to` is exclusive. */
struct NormBlocks {
  int64_t from, to;
};

/** `moments`: [blocks, channels]. */
void normMomentsCpu(const NormMap& map, NormBlocks blocks, NormMoments* moments);
/** Those of all blocks as one, [channels], in the order of blocks. */
void mergeNormMoments(const NormMap& map, const NormMoments* moments, NormMoments* merged);
/** `result` is as the map. */
void normSiluCpu(const NormMap& map, NormBlocks blocks, void* result);
/** `slopes`, towards the result, are as the map; sums [blocks, 2, channels] as of NormMeans. */
void normSumsCpu(const NormMap& map, NormBlocks blocks, const void* slopes, float* sums);
/** `means`: [2, channels] as of NormMeans; `result`, the slopes towards the map, is as the map. */
void normSlopesCpu(const NormMap& map, NormBlocks blocks, const void* slopes, const float* means,
                   void* result);

#ifdef VANTAGE_CUDA
/** The same on the GPU, of maps with SiLU: every pointer is device memory; they return
 * cudaGetLastError. */
int normSiluCuda(const NormMap& map, void* result, void* stream);
int normSumsCuda(const NormMap& map, const void* slopes, float* sums, void* stream);
int normSlopesCuda(const NormMap& map, const void* slopes, const float* means, void* result,
                   void* stream);
#endif

}  // namespace vantage
