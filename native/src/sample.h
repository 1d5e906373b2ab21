// The colour of one pixel of an augmented image: what a plan says, and the one definition of how a
// pixel is made from it, which the CPU and our kernel both compile. Plans go to the GPU as they
// are.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define VANTAGE_HD __host__ __device__ __forceinline__
#else
#define VANTAGE_HD inline __attribute__((always_inline))
#endif

namespace vantage {

/** Grey of every pixel that no image covers, in bytes. */
constexpr float kFill = 114;

/** An upright image laid on a canvas. Coordinates are of pixels, whose centres lie at +0.5. */
struct Patch {
  /** Offset of the image's first byte in the split's file. */
  int64_t offset;
  int32_t width, height;
  /** Source = scale · canvas + shift. */
  float scaleX, shiftX, scaleY, shiftY;
  /** The part of the canvas that it covers; right and bottom are exclusive. */
  float left, top, right, bottom;
};

/** One image, or the four of a mosaic, seen through an affine map. */
struct Layer {
  /** Canvas = matrix · (x, y, 1) of an output pixel's centre: rows of three. */
  float matrix[6];
  int32_t patches;
  Patch patch[4];
};

/** One output image: a layer, or two that are mixed, and over them what is pasted. */
struct Plan {
  int32_t layers;
  /** 1 where the image has a stencil: of the pixels whose colour is `paste`'s; else 0. */
  int32_t pastes;
  Layer layer[2];
  Layer paste;
  /** Share of the first of two layers. */
  float mix;
  /** Hue is added, in turns from −0.5 to 0.5; saturation and value are factors. */
  float hue, saturation, value;
};

struct Colour {
  float r, g, b;
};

/** What an output image is made from, beside its plan. */
struct PixelSource {
  const uint8_t* file;
  /** A bit a pixel, row by row; the first is a byte's lowest. Read where the plan pastes. */
  const uint8_t* stencil;
  /** Side of the output in pixels, a multiple of 32. */
  int size;
};

VANTAGE_HD int64_t stencilBytes(int size) { return static_cast<int64_t>(size) * (size / 8); }

VANTAGE_HD bool isPasted(const PixelSource& source, int column, int row) {
  const int64_t byte = static_cast<int64_t>(row) * (source.size / 8) + column / 8;
  return source.stencil[byte] >> (column % 8) & 1;
}

// Coordinates decide which patch a pixel takes, so they are rounded alike everywhere: a fused
// multiply-add on the GPU would put other pixels on the edge of a patch than the CPU does.
VANTAGE_HD float multiplyAdd(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(a, b), c);
#else
  return a * b + c;
#endif
}

VANTAGE_HD float smaller(float a, float b) { return a < b ? a : b; }
VANTAGE_HD float larger(float a, float b) { return a > b ? a : b; }
VANTAGE_HD float within(float value, float low, float high) {
  return smaller(larger(value, low), high);
}

VANTAGE_HD bool covers(const Patch& patch, float x, float y) {
  return x >= patch.left && x < patch.right && y >= patch.top && y < patch.bottom;
}

/** Bilinear, in bytes; beyond the outermost centres the outermost pixels go on. */
VANTAGE_HD Colour sampled(const uint8_t* file, const Patch& patch, float x, float y) {
  const float u = within(multiplyAdd(patch.scaleX, x, patch.shiftX) - 0.5f, 0,
                         static_cast<float>(patch.width - 1));
  const float v = within(multiplyAdd(patch.scaleY, y, patch.shiftY) - 0.5f, 0,
                         static_cast<float>(patch.height - 1));
  const int column = static_cast<int>(u), row = static_cast<int>(v);
  const float right = u - static_cast<float>(column), down = v - static_cast<float>(row);
  const int64_t line = static_cast<int64_t>(patch.width) * 3;
  const uint8_t* a = file + patch.offset + row * line + column * 3;
  const uint8_t* b = column + 1 < patch.width ? a + 3 : a;
  const int64_t below = row + 1 < patch.height ? line : 0;
  const uint8_t* c = a + below;
  const uint8_t* d = b + below;
  const float w11 = right * down, w10 = down - w11, w01 = right - w11, w00 = 1 - right - w10;
  return {w00 * a[0] + w01 * b[0] + w10 * c[0] + w11 * d[0],
          w00 * a[1] + w01 * b[1] + w10 * c[1] + w11 * d[1],
          w00 * a[2] + w01 * b[2] + w10 * c[2] + w11 * d[2]};
}

/** The first patch that covers a point of the canvas; −1 where none does. */
VANTAGE_HD int patchAt(const Layer& layer, float x, float y) {
  for (int i = 0; i < layer.patches; i++)
    if (covers(layer.patch[i], x, y)) return i;
  return -1;
}

VANTAGE_HD Colour mixed(const Colour& a, const Colour& b, float share) {
  return {b.r + share * (a.r - b.r), b.g + share * (a.g - b.g), b.b + share * (a.b - b.b)};
}

VANTAGE_HD bool recolours(const Plan& plan) {
  return plan.hue != 0 || plan.saturation != 1 || plan.value != 1;
}

/** One channel of a colour. `origin`: 5 for red, 3 for green, 1 for blue; `hue` in sixths of a turn
 * from 0 to 6. */
VANTAGE_HD float channel(float origin, float hue, float value, float chroma) {
  const float sum = origin + hue;
  const float k = sum >= 6 ? sum - 6 : sum;
  return value - chroma * within(smaller(k, 4 - k), 0, 1);
}

/** Through HSV and back without either being stored; without a branch, for vectors. */
VANTAGE_HD Colour recoloured(const Plan& plan, const Colour& from) {
  const float high = larger(larger(from.r, from.g), from.b);
  const float low = smaller(smaller(from.r, from.g), from.b);
  const float chroma = high - low;
  const float slope = 1 / larger(chroma, 1e-6f);
  const float ofRed = (from.g - from.b) * slope;
  const float ofGreen = 2 + (from.b - from.r) * slope;
  const float ofBlue = 4 + (from.r - from.g) * slope;
  const float hue = from.r >= high ? ofRed : from.g >= high ? ofGreen : ofBlue;
  const float turned = hue + 6 * plan.hue;
  const float lifted = turned < 0 ? turned + 6 : turned;
  const float wrapped = lifted >= 6 ? lifted - 6 : lifted;
  const float value = smaller(high * plan.value, 255);
  const float saturation = smaller(plan.saturation * chroma / larger(high, 1e-6f), 1);
  const float span = value * saturation;
  return {channel(5, wrapped, value, span), channel(3, wrapped, value, span),
          channel(1, wrapped, value, span)};
}

VANTAGE_HD Colour layerColour(const uint8_t* file, const Layer& layer, float x, float y) {
  const float* m = layer.matrix;
  const float canvasX = multiplyAdd(m[0], x, multiplyAdd(m[1], y, m[2]));
  const float canvasY = multiplyAdd(m[3], x, multiplyAdd(m[4], y, m[5]));
  const int patch = patchAt(layer, canvasX, canvasY);
  if (patch < 0) return {kFill, kFill, kFill};
  return sampled(file, layer.patch[patch], canvasX, canvasY);
}

/** Colour in bytes of an output pixel. */
VANTAGE_HD Colour planColour(const PixelSource& source, const Plan& plan, int column, int row) {
  const float x = static_cast<float>(column) + 0.5f, y = static_cast<float>(row) + 0.5f;
  const uint8_t* file = source.file;
  Colour colour = layerColour(file, plan.layer[0], x, y);
  if (plan.layers > 1) colour = mixed(colour, layerColour(file, plan.layer[1], x, y), plan.mix);
  if (plan.pastes && isPasted(source, column, row)) colour = layerColour(file, plan.paste, x, y);
  return recolours(plan) ? recoloured(plan, colour) : colour;
}

}  // namespace vantage
