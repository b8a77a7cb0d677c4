#include "gradus-train/src/torch/shim.h"
#include "gradus-train/src/torch/bridge.rs.h"

#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Version.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

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

at::Generator generator(bool cuda) {
  return at::globalContext().defaultGenerator(at::Device(device_type(cuda), cuda ? 0 : -1));
}

} // namespace

bool autocast_begin(bool cuda) {
  auto device = device_type(cuda);
  bool before = at::autocast::is_autocast_enabled(device);
  at::autocast::set_autocast_dtype(device, at::kBFloat16);
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

void sgd_step(Tensors parameters, Tensors gradients, Tensors momenta, const SgdConstants &constants) {
  at::NoGradGuard guard;
  at::_fused_sgd_(list(parameters), list(gradients), list(momenta), constants.weight_decay, constants.momentum,
                  constants.lr, /*dampening=*/0.0, constants.nesterov, /*maximize=*/false,
                  /*is_first_step=*/false);
}

void adamw_step(Tensors parameters, Tensors gradients, Tensors first, Tensors second, const at::Tensor &step,
                const AdamwConstants &constants) {
  at::NoGradGuard guard;
  // The kernel only reads the count, so that all parameters can share one.
  std::vector<at::Tensor> steps(parameters.size(), step);
  at::_fused_adamw_(list(parameters), list(gradients), list(first), list(second), {}, steps, constants.lr,
                    constants.beta1, constants.beta2, constants.weight_decay, constants.eps, /*amsgrad=*/false,
                    /*maximize=*/false);
}

std::unique_ptr<at::Tensor> gradient_norm(Tensors gradients) {
  at::NoGradGuard guard;
  auto norms = at::_foreach_norm(list(gradients));
  return std::make_unique<at::Tensor>(at::linalg_vector_norm(at::stack(norms)));
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

void seed(std::uint64_t value) { at::manual_seed(value); }

std::unique_ptr<at::Tensor> random_state(bool cuda) {
  auto source = generator(cuda);
  std::lock_guard<std::mutex> lock(source.mutex());
  return std::make_unique<at::Tensor>(source.get_state());
}

void set_random_state(bool cuda, const at::Tensor &state) {
  auto source = generator(cuda);
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

std::uint64_t device_peak_bytes() {
  if (!at::accelerator::getAccelerator(false).has_value()) {
    return 0;
  }
  auto statistics = at::accelerator::getDeviceStats(at::accelerator::getDeviceIndex());
  return static_cast<std::uint64_t>(statistics.allocated_bytes[0].peak);
}

rust::String build_configuration() { return rust::String::lossy(at::show_config()); }

} // namespace gradus
