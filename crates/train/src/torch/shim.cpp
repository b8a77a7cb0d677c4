#include "gradus-train/src/torch/shim.h"
#include "gradus-train/src/torch/bridge.rs.h"

#include <sys/mman.h>

#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Version.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/profiler_kineto.h>

namespace gradus {

namespace {

c10::DeviceType device_type(bool cuda) { return cuda ? at::kCUDA : at::kCPU; }

// Copies of the handles, not of the values.
std::vector<at::Tensor> list(Tensors tensors) {
  std::vector<at::Tensor> handles;
  handles.reserve(tensors.size());
  for (const Borrowed &borrowed : tensors) {
    handles.push_back(*borrowed.tensor);
  }
  return handles;
}

at::Generator generator(std::int32_t device) {
  return at::globalContext().defaultGenerator(
      at::Device(device_type(device >= 0), static_cast<at::DeviceIndex>(device)));
}

at::Device cuda(std::int32_t device) { return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device)); }

// The device's stream of copies, of which each thread has one of its own, or the one that it computes on.
c10::Stream stream(std::int32_t number, bool copies) {
  auto device = cuda(number);
  c10::impl::VirtualGuardImpl streams(at::kCUDA);
  if (!copies) {
    return streams.getStream(device);
  }
  static thread_local std::optional<c10::Stream> own;
  if (!own.has_value() || own->device() != device) {
    own = streams.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
  }
  return *own;
}

// None or one tensor.
std::optional<at::Tensor> any(Tensors tensors) {
  return tensors.empty() ? std::nullopt : std::optional<at::Tensor>(*tensors[0].tensor);
}

// So many addresses without memory: a processor that reads or writes there ends the process, as beyond the end of a stack,
// and never meets what is somebody else's. For a CUDA device they are addresses of the host that it has no mapping of: a
// kernel that reads or writes there fails, and a later call reports it as an illegal access (never run). A machine on which
// the device reads the host's pages by the host's own tables meets the same pages without memory.
at::DataPtr nothing_behind(std::size_t bytes, c10::Device device) {
  struct Stretch {
    void *start;
    std::size_t bytes;
  };
  void *start = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(start != MAP_FAILED, "there are no addresses left for ", bytes, " bytes");
  auto leave = [](void *held) {
    auto *stretch = static_cast<Stretch *>(held);
    munmap(stretch->start, stretch->bytes);
    delete stretch;
  };
  return at::DataPtr(start, new Stretch{start, bytes}, leave, device);
}

// Host memory that runs out when it is told to.
class FailingAllocator final : public c10::Allocator {
 public:
  explicit FailingAllocator(c10::Allocator &inner) : inner(inner) {}

  void fail(std::uint64_t after) { left = after; }

  c10::DataPtr allocate(std::size_t bytes) override {
    auto before = left.load();
    while (before > 0 && !left.compare_exchange_weak(before, before - 1)) {
    }
    TORCH_CHECK_WITH(OutOfMemoryError, before != 1, "can't allocate memory: you tried to allocate ", bytes, " bytes");
    return inner.allocate(bytes);
  }

  c10::DeleterFnPtr raw_deleter() const override { return inner.raw_deleter(); }

  void copy_data(void *to, const void *from, std::size_t count) const override { inner.copy_data(to, from, count); }

 private:
  c10::Allocator &inner;
  std::atomic<std::uint64_t> left{0};
};

} // namespace

bool autocast_begin(bool cuda, bool half) {
  auto device = device_type(cuda);
  bool before = at::autocast::is_autocast_enabled(device);
  at::autocast::set_autocast_dtype(device, half ? at::kHalf : at::kBFloat16);
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::increment_nesting();
  return before;
}

void autocast_end(bool cuda, bool before) {
  // Weights cast for one forward pass must not outlive it: the next step changes them.
  if (at::autocast::decrement_nesting() == 0) {
    at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(device_type(cuda), before);
}

void sgd_step(Tensors parameters, Tensors gradients, Tensors momenta, const SgdConstants &constants, Tensors found) {
  at::NoGradGuard guard;
  at::_fused_sgd_(list(parameters), list(gradients), list(momenta), constants.weight_decay, constants.momentum,
                  constants.lr, /*dampening=*/0.0, constants.nesterov, /*maximize=*/false,
                  /*is_first_step=*/false, /*grad_scale=*/{}, any(found));
}

void adamw_step(Tensors parameters, Tensors gradients, Tensors first, Tensors second, const at::Tensor &step,
                const AdamwConstants &constants, Tensors found) {
  at::NoGradGuard guard;
  // The kernel only reads the count, so that all parameters can share one.
  std::vector<at::Tensor> steps(parameters.size(), step);
  at::_fused_adamw_(list(parameters), list(gradients), list(first), list(second), {}, steps, constants.lr,
                    constants.beta1, constants.beta2, constants.weight_decay, constants.eps, /*amsgrad=*/false,
                    /*maximize=*/false, /*grad_scale=*/{}, any(found));
}

std::unique_ptr<at::Tensor> gradient_norm(Tensors gradients) {
  at::NoGradGuard guard;
  auto norms = at::_foreach_norm(list(gradients));
  return std::make_unique<at::Tensor>(at::linalg_vector_norm(at::stack(norms)));
}

std::unique_ptr<at::Tensor> largest(Tensors tensors) {
  at::NoGradGuard guard;
  auto norms = at::_foreach_norm(list(tensors), std::numeric_limits<double>::infinity());
  return std::make_unique<at::Tensor>(at::amax(at::stack(norms)));
}

std::unique_ptr<at::Tensor> pinned_copy(const at::Tensor &values) {
  at::NoGradGuard guard;
  // The allocator of pinned memory hands it out again only once the copies that were asked of it are over.
  auto pinned = at::empty(values.sizes(), values.options().pinned_memory(true));
  pinned.copy_(values);
  return std::make_unique<at::Tensor>(pinned);
}

std::unique_ptr<at::Tensor> copy_to_device(const at::Tensor &values, std::int32_t device, bool copies) {
  at::NoGradGuard guard;
  c10::StreamGuard on(stream(device, copies));
  return std::make_unique<at::Tensor>(values.to(cuda(device), /*non_blocking=*/true));
}

std::unique_ptr<at::Tensor> copy_to_pinned(const at::Tensor &values, std::int32_t device, bool copies) {
  at::NoGradGuard guard;
  c10::StreamGuard on(stream(device, copies));
  auto host = at::empty(values.sizes(), values.options().device(at::kCPU).pinned_memory(true));
  host.copy_(values, /*non_blocking=*/true);
  return std::make_unique<at::Tensor>(host);
}

std::unique_ptr<StreamEvent> record_event(std::int32_t device, bool copies) {
  c10::Event event(at::kCUDA);
  event.record(stream(device, copies));
  return std::make_unique<StreamEvent>(StreamEvent{std::move(event)});
}

void wait_event(const StreamEvent &event, std::int32_t device, bool copies) { event.event.block(stream(device, copies)); }

bool event_is_done(const StreamEvent &event) { return event.event.query(); }

void synchronize_event(const StreamEvent &event) { event.event.synchronize(); }

void record_stream(const at::Tensor &tensor, std::int32_t device, bool copies) {
  auto used = tensor;
  used.record_stream(stream(device, copies));
}

void scale(Tensors tensors, const at::Tensor &factor) {
  at::NoGradGuard guard;
  at::_foreach_mul_(list(tensors), factor);
}

void zero(Tensors tensors) {
  at::NoGradGuard guard;
  at::_foreach_zero_(list(tensors));
}

void drop_gradients(Tensors parameters) {
  for (const Borrowed &borrowed : parameters) {
    borrowed.tensor->mutable_grad().reset();
  }
}

void unscale(Tensors gradients, const at::Tensor &found, const at::Tensor &inverse) {
  at::NoGradGuard guard;
  auto flag = found;
  at::_amp_foreach_non_finite_check_and_unscale_(list(gradients), flag, inverse);
}

void lerp(Tensors tensors, Tensors towards, double share) {
  at::NoGradGuard guard;
  at::_foreach_lerp_(list(tensors), list(towards), share);
}

void set_gradients(Tensors parameters, Tensors gradients) {
  for (std::size_t place = 0; place < parameters.size(); ++place) {
    parameters[place].tensor->mutable_grad() = *gradients[place].tensor;
  }
}

void add(Tensors tensors, Tensors others) {
  at::NoGradGuard guard;
  at::_foreach_add_(list(tensors), list(others));
}

void copy(Tensors tensors, Tensors others) {
  at::NoGradGuard guard;
  at::_foreach_copy_(list(tensors), list(others));
}

void release_memory(const at::Tensor &tensor) {
  auto *storage = tensor.storage().unsafeGetStorageImpl();
  TORCH_CHECK(storage->allocator() != nullptr, "the tensor's memory is not the library's");
  auto bytes = storage->nbytes();
  if (bytes > 0) {
    storage->set_data_ptr_noswap(nothing_behind(bytes, storage->device()));
  }
}

void allocate_memory(const at::Tensor &tensor) {
  auto *storage = tensor.storage().unsafeGetStorageImpl();
  TORCH_CHECK(storage->allocator() != nullptr, "the tensor's memory is not the library's");
  storage->set_data_ptr_noswap(storage->allocator()->allocate(storage->nbytes()));
}

void seed(std::uint64_t value) { at::manual_seed(value); }

std::unique_ptr<at::Tensor> random_state(std::int32_t device) {
  auto source = generator(device);
  std::lock_guard<std::mutex> lock(source.mutex());
  return std::make_unique<at::Tensor>(source.get_state());
}

void set_random_state(std::int32_t device, const at::Tensor &state) {
  auto source = generator(device);
  std::lock_guard<std::mutex> lock(source.mutex());
  source.set_state(state);
}

std::unique_ptr<at::Tensor> channels_last(const at::Tensor &tensor) {
  return std::make_unique<at::Tensor>(tensor.contiguous(at::MemoryFormat::ChannelsLast));
}

void set_deterministic(bool on) {
  auto &context = at::globalContext();
  context.setDeterministicAlgorithms(on, /*warn_only=*/false);
  context.setDeterministicCuDNN(on);
  context.setDeterministicMkldnn(on);
  context.setBenchmarkCuDNN(!on);
  // Writing NaN into every fresh tensor finds reads of uninitialised memory, of which there are none here; it costs a
  // pass over all memory.
  context.setDeterministicFillUninitializedMemory(false);
}

void fail_allocation(std::uint64_t after) {
  static FailingAllocator failing(*c10::GetCPUAllocator());
  static std::once_flag once;
  std::call_once(once, [] { c10::SetCPUAllocator(&failing, /*priority=*/255); });
  failing.fail(after);
}

void set_tf32(bool on) {
  auto &context = at::globalContext();
  context.setFloat32MatmulPrecision(on ? "high" : "highest");
  context.setAllowTF32CuDNN(on);
}

namespace {

// A library for CUDA names an accelerator also where no driver is.
bool has_accelerator() {
  return at::accelerator::getAccelerator(false).has_value() && at::accelerator::deviceCount() > 0;
}

} // namespace

void begin_device_peak() {
  if (has_accelerator()) {
    at::accelerator::emptyCache();
    at::accelerator::resetPeakStats(at::accelerator::getDeviceIndex());
  }
}

DeviceMemory device_memory() {
  if (!has_accelerator()) {
    return DeviceMemory{0, 0, 0};
  }
  auto device = at::accelerator::getDeviceIndex();
  auto statistics = at::accelerator::getDeviceStats(device);
  auto free = at::accelerator::getMemoryInfo(device).first;
  return DeviceMemory{static_cast<std::uint64_t>(statistics.allocated_bytes[0].current),
                      static_cast<std::uint64_t>(statistics.allocated_bytes[0].peak),
                      static_cast<std::uint64_t>(statistics.reserved_bytes[0].current) + free};
}

void profile_begin(bool cuda) {
  namespace impl = torch::profiler::impl;
  impl::ProfilerConfig config(impl::ProfilerState::KINETO);
  std::set<impl::ActivityType> activities{cuda ? impl::ActivityType::CUDA : impl::ActivityType::CPU};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
}

rust::Vec<KernelTime> profile_end() {
  auto result = torch::autograd::profiler::disableProfiler();
  std::map<std::pair<bool, std::string>, std::pair<std::uint64_t, std::uint64_t>> sums;
  for (const auto &event : result->events()) {
    auto &[count, nanoseconds] = sums[{event.deviceType() != at::kCPU, event.name()}];
    count += 1;
    nanoseconds += event.durationNs();
  }
  rust::Vec<KernelTime> kernels;
  for (const auto &[key, sum] : sums) {
    kernels.push_back(KernelTime{rust::String::lossy(key.second), sum.first, sum.second, key.first});
  }
  return kernels;
}

rust::String build_configuration() { return rust::String::lossy(at::show_config()); }

} // namespace gradus
