// Ranks on NVIDIA GPUs that exchange without the host: NCCL, in a library of its own, `libgradus-cuda.so`.
//
// The trainer is built against the library for processors, which has no NCCL. `cargo xtask cuda` builds this against an
// installed PyTorch for CUDA; the trainer opens it at run time where it finds it (`load.rs`), looks one name up
// (`group.cpp`), and goes through the host where there is none.

#include <chrono>
#include <cstdint>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

// Has values on this CUDA device exchanged over NCCL by the group; returns nothing, or why not.
extern "C" const char *gradus_nccl_join(c10d::ProcessGroup *group, c10d::Store *store, int rank, int size, int device,
                                        std::int64_t timeout_ms) noexcept {
  static thread_local std::string wrong;
  try {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::milliseconds(timeout_ms);
    // The group keeps its own hold of the store.
    auto held = c10::intrusive_ptr<c10d::Store>::reclaim_copy(store);
    auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(held, rank, size, options);
    nccl->setBoundDeviceId(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device)));
    group->setBackend(at::kCUDA, c10d::ProcessGroup::BackendType::NCCL, nccl);
    return nullptr;
  } catch (const std::exception &error) {
    wrong = error.what();
  } catch (...) {
    wrong = "an exception of unknown kind";
  }
  return wrong.c_str();
}
