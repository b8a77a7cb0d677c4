// Kernels of `batch_norm.cpp`, compiled for the device when they are first needed. KIND is the type of the values (0 float32,
// 1 bfloat16, 2 float16), ACTIVATION the function (`Activation` in `layer.rs`), RESIDUAL whether a tensor is added before it.
//
// Values are rows × channels in memory (NHWC). A thread keeps a few channels, 16 bytes of each row, and goes through the
// rows; so the numbers of a channel stay in registers, and a warp reads whole lines. All sums have a fixed order.

#pragma once

namespace gradus {

inline constexpr char batch_norm_kernels[] = R"cuda(
typedef unsigned int u32;
struct alignas(16) Pack { u32 words[4]; };

#if KIND == 0
constexpr int VEC = 4;
__device__ void unpack(const Pack &pack, float *values) {
#pragma unroll
  for (int i = 0; i < 4; ++i) values[i] = __uint_as_float(pack.words[i]);
}
__device__ Pack packed(const float *values) {
  Pack pack;
#pragma unroll
  for (int i = 0; i < 4; ++i) pack.words[i] = __float_as_uint(values[i]);
  return pack;
}
#else
constexpr int VEC = 8;
// Two values of 16 bits.
#if KIND == 1
__device__ void widen(u32 word, float &low, float &high) {
  low = __uint_as_float(word << 16);
  high = __uint_as_float(word & 0xffff0000u);
}
__device__ u32 narrow(float low, float high) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
#else
__device__ void widen(u32 word, float &low, float &high) {
  asm("{.reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
      : "=f"(low), "=f"(high) : "r"(word));
}
__device__ u32 narrow(float low, float high) {
  u32 word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
#endif
__device__ void unpack(const Pack &pack, float *values) {
#pragma unroll
  for (int i = 0; i < 4; ++i) widen(pack.words[i], values[2 * i], values[2 * i + 1]);
}
__device__ Pack packed(const float *values) {
  Pack pack;
#pragma unroll
  for (int i = 0; i < 4; ++i) pack.words[i] = narrow(values[2 * i], values[2 * i + 1]);
  return pack;
}
#endif

// The functions and their derivatives, as PyTorch has them at their corners and for NaN.
__device__ float activated(float z) {
#if ACTIVATION == 1
  return z < 0.f ? 0.f : z;
#elif ACTIVATION == 2
  return z < 0.f ? 0.f : (z > 6.f ? 6.f : z);
#elif ACTIVATION == 3
  return z * fminf(fmaxf(z + 3.f, 0.f), 6.f) / 6.f;
#elif ACTIVATION == 4
  return z / (1.f + __expf(-z));
#else
  return z;
#endif
}
__device__ float slope(float z) {
#if ACTIVATION == 1
  return z <= 0.f ? 0.f : 1.f;
#elif ACTIVATION == 2
  return z <= 0.f || z >= 6.f ? 0.f : 1.f;
#elif ACTIVATION == 3
  return z < -3.f ? 0.f : (z <= 3.f ? z / 3.f + 0.5f : 1.f);
#elif ACTIVATION == 4
  const float s = 1.f / (1.f + __expf(-z));
  return s * (1.f + z * (1.f - s));
#else
  return 1.f;
#endif
}

// The channels of this thread, and its rows.
struct Place {
  long first, step;
  int vector;
  bool is_any;
};
__device__ Place place(int channels) {
  Place here;
  here.vector = blockIdx.x * blockDim.x + threadIdx.x;
  here.is_any = here.vector < channels / VEC;
  here.first = (long)blockIdx.y * blockDim.y + threadIdx.y;
  here.step = (long)gridDim.y * blockDim.y;
  return here;
}

// Adds the sums of all threads of a block that have the same channels, and writes both to `partial`: 2 × blocks × channels.
__device__ void write_sums(const float *one, const float *other, float *partial, int channels) {
  __shared__ float held[2][256 * VEC];
  const int width = blockDim.x * VEC, thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < VEC; ++i) {
    held[0][thread * VEC + i] = one[i];
    held[1][thread * VEC + i] = other[i];
  }
  __syncthreads();
  for (int column = thread; column < width; column += blockDim.x * blockDim.y) {
    const int channel = blockIdx.x * width + column;
    if (channel >= channels) continue;
    float sums[2] = {0.f, 0.f};
    for (int row = 0; row < blockDim.y; ++row) {
      sums[0] += held[0][row * width + column];
      sums[1] += held[1][row * width + column];
    }
    partial[(long)blockIdx.y * channels + channel] = sums[0];
    partial[((long)gridDim.y + blockIdx.y) * channels + channel] = sums[1];
  }
}

// Both sums of a channel over all blocks; valid where threadIdx.y is 0.
__device__ void read_sums(const float *partial, int blocks, int channels, int channel, double *sums) {
  __shared__ double held[2][8][32];
  double one = 0.0, other = 0.0;
  if (channel < channels)
    for (int block = threadIdx.y; block < blocks; block += 8) {
      one += partial[(long)block * channels + channel];
      other += partial[((long)blocks + block) * channels + channel];
    }
  held[0][threadIdx.y][threadIdx.x] = one;
  held[1][threadIdx.y][threadIdx.x] = other;
  __syncthreads();
  sums[0] = sums[1] = 0.0;
  for (int row = 0; row < 8; ++row) {
    sums[0] += held[0][row][threadIdx.x];
    sums[1] += held[1][row][threadIdx.x];
  }
}

// Sums of the values and of their squares, each less the first row's, which keeps the squares small.
extern "C" __global__ void __launch_bounds__(256) statistics(const Pack *x, float *partial, long rows, int channels) {
  const Place here = place(channels);
  const int vectors = channels / VEC;
  float sum[VEC] = {}, squares[VEC] = {};
  if (here.is_any) {
    float base[VEC];
    unpack(x[here.vector], base);
#pragma unroll 4
    for (long row = here.first; row < rows; row += here.step) {
      float values[VEC];
      unpack(x[row * vectors + here.vector], values);
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
        const float away = values[i] - base[i];
        sum[i] += away;
        squares[i] += away * away;
      }
    }
  }
  write_sums(sum, squares, partial, channels);
}

// Of each channel mean, 1/deviation, and the line that normalises; `numbers` is 4 × channels. Running statistics may be null.
extern "C" __global__ void finish_statistics(const float *partial, int blocks, const Pack *x, const float *weight,
                                             const float *bias, float *running_mean, float *running_var, float *numbers,
                                             long rows, int channels, double momentum, double eps) {
  const int channel = blockIdx.x * 32 + threadIdx.x;
  double sums[2];
  read_sums(partial, blocks, channels, channel, sums);
  if (threadIdx.y > 0 || channel >= channels) return;
  float base[VEC];
  unpack(x[channel / VEC], base);
  const double away = sums[0] / rows, mean = base[channel % VEC] + away;
  const double squares = sums[1] / rows - away * away;
  // Not by `fmax`, which makes a number of NaN.
  const double variance = squares < 0.0 ? 0.0 : squares, inverse = 1.0 / sqrt(variance + eps);
  const double scale = weight[channel] * inverse;
  numbers[channel] = mean;
  numbers[channels + channel] = inverse;
  numbers[2 * channels + channel] = scale;
  numbers[3 * channels + channel] = bias[channel] - mean * scale;
  if (running_mean) {
    const double unbiased = variance * rows / (rows > 1 ? rows - 1 : 1);
    running_mean[channel] = (1.0 - momentum) * running_mean[channel] + momentum * mean;
    running_var[channel] = (1.0 - momentum) * running_var[channel] + momentum * unbiased;
  }
}

__device__ void load_numbers(const float *numbers, const Place &here, float *values) {
#pragma unroll
  for (int i = 0; i < VEC; ++i) values[i] = numbers[here.vector * VEC + i];
}

extern "C" __global__ void __launch_bounds__(256) normalise(const Pack *x, const Pack *residual, const float *numbers,
                                                            Pack *y, long rows, int channels) {
  const Place here = place(channels);
  if (!here.is_any) return;
  const int vectors = channels / VEC;
  float scale[VEC], shift[VEC];
  load_numbers(numbers + 2 * channels, here, scale);
  load_numbers(numbers + 3 * channels, here, shift);
#pragma unroll 4
  for (long row = here.first; row < rows; row += here.step) {
    const long at = row * vectors + here.vector;
    float values[VEC];
    unpack(x[at], values);
#if RESIDUAL
    float added[VEC];
    unpack(residual[at], added);
#endif
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      float z = values[i] * scale[i] + shift[i];
#if RESIDUAL
      z += added[i];
#endif
      values[i] = activated(z);
    }
    y[at] = packed(values);
  }
}

// Sums of the gradients before the activation, and of them times the centred values. Where a residual was added, these
// gradients are its own, and are written to `masked`.
extern "C" __global__ void __launch_bounds__(256) gradient_sums(const Pack *gradient, const Pack *x, const Pack *y,
                                                                const float *numbers, Pack *masked, float *partial,
                                                                long rows, int channels) {
  const Place here = place(channels);
  const int vectors = channels / VEC;
  float sum[VEC] = {}, products[VEC] = {};
  if (here.is_any) {
    float mean[VEC], scale[VEC], shift[VEC];
    load_numbers(numbers, here, mean);
    load_numbers(numbers + 2 * channels, here, scale);
    load_numbers(numbers + 3 * channels, here, shift);
#pragma unroll 2
    for (long row = here.first; row < rows; row += here.step) {
      const long at = row * vectors + here.vector;
      float values[VEC], gradients[VEC];
      unpack(x[at], values);
      unpack(gradient[at], gradients);
#if RESIDUAL
      float results[VEC];
      unpack(y[at], results);
#endif
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
#if RESIDUAL
        gradients[i] *= slope(results[i]);
#else
        gradients[i] *= slope(values[i] * scale[i] + shift[i]);
#endif
        sum[i] += gradients[i];
        products[i] += gradients[i] * (values[i] - mean[i]);
      }
#if RESIDUAL
      masked[at] = packed(gradients);
#endif
    }
  }
  write_sums(sum, products, partial, channels);
}

// Gradients of weight and bias, and of each channel the plane by which gradients and values make the gradient of the values.
extern "C" __global__ void finish_gradients(const float *partial, int blocks, const float *numbers, float *of_weight,
                                            float *of_bias, float *plane, long rows, int channels) {
  const int channel = blockIdx.x * 32 + threadIdx.x;
  double sums[2];
  read_sums(partial, blocks, channels, channel, sums);
  if (threadIdx.y > 0 || channel >= channels) return;
  const double mean = numbers[channel], inverse = numbers[channels + channel], scale = numbers[2 * channels + channel];
  const double weight = sums[1] * inverse, slope = -scale * inverse * weight / rows;
  of_weight[channel] = weight;
  of_bias[channel] = sums[0];
  plane[channel] = slope;
  plane[channels + channel] = -scale * sums[0] / rows - slope * mean;
}

extern "C" __global__ void __launch_bounds__(256) gradients(const Pack *gradient, const Pack *x, const float *numbers,
                                                            const float *plane, Pack *of_x, long rows, int channels) {
  const Place here = place(channels);
  if (!here.is_any) return;
  const int vectors = channels / VEC;
  float scale[VEC], shift[VEC], by_value[VEC], constant[VEC];
  load_numbers(numbers + 2 * channels, here, scale);
  load_numbers(numbers + 3 * channels, here, shift);
  load_numbers(plane, here, by_value);
  load_numbers(plane + channels, here, constant);
#pragma unroll 2
  for (long row = here.first; row < rows; row += here.step) {
    const long at = row * vectors + here.vector;
    float values[VEC], gradients[VEC];
    unpack(x[at], values);
    unpack(gradient[at], gradients);
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
#if !RESIDUAL
      gradients[i] *= slope(values[i] * scale[i] + shift[i]);
#endif
      values[i] = scale[i] * gradients[i] + by_value[i] * values[i] + constant[i];
    }
    of_x[at] = packed(values);
  }
}
)cuda";

} // namespace gradus
