// What `libgradus-cuda.so` was built for. The trainer reads it before any other name of the library is known to it, and does
// not use a library that says anything else than it expects (`load.rs`).

#ifndef GRADUS_TORCH_VERSION
#include <torch/version.h>
#define GRADUS_TORCH_VERSION TORCH_VERSION
#endif

// `CUDA_PART` of `load.rs`; raised with each change of a name or an argument.
#define GRADUS_CUDA_PART "2"

extern "C" const char *gradus_cuda_built_for() noexcept {
  return "version " GRADUS_CUDA_PART " for PyTorch " GRADUS_TORCH_VERSION;
}
