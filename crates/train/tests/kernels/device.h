// A CUDA device for tests: the threads of one block are threads of the processor, and blocks come one after the other.

#pragma once

#include <barrier>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __launch_bounds__(threads)
// Of all threads of a block, which are gone when the next block begins.
#define __shared__ static

struct Three {
  int x, y;
};

inline thread_local Three threadIdx;
inline Three blockIdx, blockDim, gridDim;
inline std::unique_ptr<std::barrier<>> all_threads;

inline void __syncthreads() { all_threads->arrive_and_wait(); }
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float __expf(float value) { return std::exp(value); }
using std::fmax;
inline float fminf(float one, float other) { return std::fmin(one, other); }
inline float fmaxf(float one, float other) { return std::fmax(one, other); }

template <typename Kernel> void launch(Three grid, Three block, Kernel kernel) {
  gridDim = grid;
  blockDim = block;
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
      all_threads = std::make_unique<std::barrier<>>(block.x * block.y);
      std::vector<std::thread> threads;
      for (int place = 0; place < block.x * block.y; ++place) {
        threads.emplace_back([&, place] {
          threadIdx = Three{place % block.x, place / block.x};
          kernel();
          all_threads->arrive_and_drop();
        });
      }
      for (auto &thread : threads) {
        thread.join();
      }
    }
  }
}
