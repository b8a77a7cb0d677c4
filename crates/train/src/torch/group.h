// Several processes as one: a store to meet at, groups that compute together, and the exchange of gradients.
//
// Every function may throw; cxx turns what is thrown into a Rust error. Each waits until its work is done, and at most
// as long as the group was told, unless it says that it does not.

#pragma once

#include <cstdint>
#include <memory>

#include "gradus-train/src/torch/shim.h"

namespace gradus {

struct Lent;
using Lents = rust::Slice<const Lent>;

// What these hold is known to `group.cpp` alone, which keeps its headers out of every other file.
struct Store {
  struct Inner;
  std::shared_ptr<Inner> inner;
};

struct Group {
  struct Inner;
  std::shared_ptr<Inner> inner;
};

struct Exchange {
  struct Inner;
  std::shared_ptr<Inner> inner;
};

struct PendingWork {
  struct Inner;
  std::shared_ptr<Inner> inner;
};

// The store, which rank 0 keeps unless somebody else does.
std::unique_ptr<Store> store_open(rust::Str host, std::uint16_t port, bool keep, std::uint64_t timeout_ms);
void store_set(const Store &store, rust::Str key);
bool store_has(const Store &store, rust::Str key);

// A group of ranks that find each other by `name`; `host` is this process' own address, `device` the number of the CUDA
// device that it exchanges over NCCL from, or -1 where values go through the host. All ranks say the same of that.
std::unique_ptr<Group> group_join(const Store &store, rust::Str name, std::uint32_t rank, std::uint32_t size,
                                  rust::Str host, std::int32_t device, std::uint64_t timeout_ms);

// Whether this process could exchange values on CUDA devices without the host.
bool has_nccl();
void group_sum(const Group &group, const at::Tensor &tensor);
void group_max(const Group &group, const at::Tensor &tensor);
void group_broadcast(const Group &group, const at::Tensor &tensor, std::uint32_t root);
void group_all_gather(const Group &group, const at::Tensor &output, const at::Tensor &input);
// These do not wait: both tensors belong to them until `pending_wait` has returned.
std::unique_ptr<PendingWork> group_all_gather_begin(const Group &group, const at::Tensor &output,
                                                    const at::Tensor &input);
std::unique_ptr<PendingWork> group_reduce_scatter_begin(const Group &group, const at::Tensor &output,
                                                        const at::Tensor &input);
void pending_wait(const PendingWork &pending);
void group_barrier(const Group &group);

// Within autograd: the sum over ranks, whose gradient is summed as well; what passes unchanged and has its gradient
// summed; and the sum whose gradient passes unchanged.
std::unique_ptr<at::Tensor> group_sum_both(const Group &group, const at::Tensor &tensor);
std::unique_ptr<at::Tensor> group_sum_backward(const Group &group, const at::Tensor &tensor);
std::unique_ptr<at::Tensor> group_sum_forward(const Group &group, const at::Tensor &tensor);

// Gradients summed over ranks, bucket by bucket while the backward pass goes on, and divided by the number of ranks.
std::unique_ptr<Exchange> exchange_new(const Group &group, Lents parameters, std::uint64_t bucket_bytes, bool bf16);
void exchange_forward(const Exchange &exchange);
void exchange_backward(const Exchange &exchange);

} // namespace gradus
