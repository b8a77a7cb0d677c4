// Operations of a CUDA device that are recorded once and then repeated with a single launch.
//
// A part of `libgradus-cuda.so` like `nccl.cpp`: the executable links the tensor library for processors. `graph.rs` looks
// these names up. Nothing throws across the border: what went wrong is returned as text, and nothing where all is well.

#include "attempt.h"

#include <memory>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace {

using gradus::attempt;

struct Recording {
  // Recording wants a stream of its own; the default one cannot be recorded.
  explicit Recording(c10::DeviceIndex device)
      : before(c10::cuda::getCurrentCUDAStream(device)), stream(c10::cuda::getStreamFromPool(false, device)) {}

  c10::cuda::CUDAStream before;
  c10::cuda::CUDAStream stream;
  at::cuda::CUDAGraph graph;
};

} // namespace

// What this thread and its backward passes ask of the device from now on is recorded and not done. The recording shares
// the memory of `earlier`, unless that is nothing: only one of them is ever at work, and what it leaves is copied away.
extern "C" const char *gradus_graph_begin(int device, void *earlier, void **recording) noexcept {
  return attempt([&] {
    const auto place = static_cast<c10::DeviceIndex>(device);
    c10::cuda::CUDAGuard here(place);
    auto begun = std::make_unique<Recording>(place);
    c10::cuda::device_synchronize();
    // The passes before have left their memory in the cache, where a recording may neither use nor free it.
    c10::cuda::CUDACachingAllocator::emptyCache();
    const auto pool = earlier == nullptr ? c10::MempoolId_t{0, 0} : static_cast<Recording *>(earlier)->graph.pool();
    c10::cuda::setCurrentCUDAStream(begun->stream);
    try {
      // Other threads may go on with what cannot be recorded.
      begun->graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    } catch (...) {
      c10::cuda::setCurrentCUDAStream(begun->before);
      throw;
    }
    *recording = begun.release();
  });
}

// Ends what `gradus_graph_begin` began; to be called once, whatever happened in between.
extern "C" const char *gradus_graph_end(void *recording) noexcept {
  auto *begun = static_cast<Recording *>(recording);
  const char *wrong = attempt([&] { begun->graph.capture_end(); });
  const char *also = attempt([&] { c10::cuda::setCurrentCUDAStream(begun->before); });
  return wrong != nullptr ? wrong : also;
}

// Does all that was recorded once, on the present stream.
extern "C" const char *gradus_graph_repeat(void *recording) noexcept {
  return attempt([&] { static_cast<Recording *>(recording)->graph.replay(); });
}

// Forgets a recording and gives its memory back.
extern "C" void gradus_graph_forget(void *recording) noexcept {
  attempt([&] { delete static_cast<Recording *>(recording); });
}
