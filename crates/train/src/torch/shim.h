// What the tensor library has and `tch` lacks, as plain functions over borrowed tensors.
//
// Every function may throw; cxx turns what is thrown into a Rust error. Tensors come as pointers that live as long as
// the call. Functions that write do so outside of autograd.

#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/util/Exception.h>

#include "rust/cxx.h"

namespace rust::behavior {

// The usual text of a c10::Error carries the whole C++ stack; the user needs the first sentence.
template <typename Try, typename Fail>
static void trycatch(Try &&func, Fail &&fail) noexcept try {
  func();
} catch (const c10::Error &error) {
  fail(error.what_without_backtrace());
} catch (const std::exception &error) {
  fail(error.what());
} catch (...) {
  fail("an exception of unknown kind");
}

} // namespace rust::behavior

namespace gradus {

struct Borrowed;
struct SgdConstants;
struct AdamwConstants;
struct AutogradClosure;
struct KernelTime;
struct DeviceMemory;
using Tensors = rust::Slice<const Borrowed>;

// Mixed precision, on this thread.
bool autocast_begin(bool cuda, bool half);
void autocast_end(bool cuda, bool before);

// Optimisers.
void sgd_step(Tensors parameters, Tensors gradients, Tensors momenta, const SgdConstants &constants, Tensors found);
void adamw_step(Tensors parameters, Tensors gradients, Tensors first, Tensors second, const at::Tensor &step,
                const AdamwConstants &constants, Tensors found);

// Gradients.
std::unique_ptr<at::Tensor> gradient_norm(Tensors gradients);
void scale(Tensors tensors, const at::Tensor &factor);
void zero(Tensors tensors);
void drop_gradients(Tensors parameters);
void unscale(Tensors gradients, const at::Tensor &found, const at::Tensor &inverse);
void lerp(Tensors tensors, Tensors towards, double share);
std::unique_ptr<at::Tensor> recompute(const at::Tensor &x, rust::Box<AutogradClosure> work);
std::unique_ptr<at::Tensor> recompute_with(const at::Tensor &x, Tensors parameters,
                                           rust::Box<AutogradClosure> work);
std::unique_ptr<at::Tensor> gate(const at::Tensor &x, rust::Box<AutogradClosure> work);
void set_gradients(Tensors parameters, Tensors gradients);
void add(Tensors tensors, Tensors others);
void copy(Tensors tensors, Tensors others);

std::unique_ptr<at::Tensor> largest(Tensors tensors);

// Copies between the host and the CUDA device of this number, on its stream of copies or on the present one, which the host
// waits for by events alone. In which order they are called is for `queue.rs` to say.
struct StreamEvent {
  c10::Event event;
};
std::unique_ptr<at::Tensor> pinned_copy(const at::Tensor &values);
std::unique_ptr<at::Tensor> copy_to_device(const at::Tensor &values, std::int32_t device, bool copies);
std::unique_ptr<at::Tensor> copy_to_pinned(const at::Tensor &values, std::int32_t device, bool copies);
std::unique_ptr<StreamEvent> record_event(std::int32_t device, bool copies);
void wait_event(const StreamEvent &event, std::int32_t device, bool copies);
bool event_is_done(const StreamEvent &event);
void synchronize_event(const StreamEvent &event);
void record_stream(const at::Tensor &tensor, std::int32_t device, bool copies);

// Gives the memory of a tensor and its views back; they keep their sizes, at addresses where every access by a
// processor ends the process, and every access by a kernel on a CUDA device fails, which a later call reports (never run).
// `allocate_memory` puts as much new memory there.
void release_memory(const at::Tensor &tensor);
void allocate_memory(const at::Tensor &tensor);

// Random numbers, of the CPU (-1) or the CUDA device of this number.
void seed(std::uint64_t value);
std::unique_ptr<at::Tensor> random_state(std::int32_t device);
void set_random_state(std::int32_t device, const at::Tensor &state);

// The machine.
std::unique_ptr<at::Tensor> channels_last(const at::Tensor &tensor);
void set_deterministic(bool on);
void set_tf32(bool on);
void fail_allocation(std::uint64_t after);
void begin_device_peak();
DeviceMemory device_memory();
rust::String build_configuration();

// Kernels of the CUDA device and calls of its driver, or operators on the CPU, from `profile_begin` to `profile_end`.
void profile_begin(bool cuda);
rust::Vec<KernelTime> profile_end();

} // namespace gradus
