#include <dlfcn.h>

#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "gradus-train/src/torch/group.h"
#include "gradus-train/src/torch/group/bridge.rs.h"

namespace gradus {

using Handle = c10::intrusive_ptr<c10d::ProcessGroup>;

struct Store::Inner {
  c10::intrusive_ptr<c10d::Store> store;
};

struct Group::Inner {
  Handle group;
};

// A reducer whose buckets stay as they were made. `rebuild_buckets` would sort gradients after the first step by when they
// came, so a resumed run would begin with other buckets than the run had; and from three ranks on, the order in which a sum
// is made depends on them.
class FixedBuckets : public c10d::Reducer {
public:
  template <typename... Settings>
  explicit FixedBuckets(Settings &&...settings) : c10d::Reducer(std::forward<Settings>(settings)...) {
    // Else each step notes the order for a rebuilding that never comes.
    has_rebuilt_bucket_ = true;
  }
};

struct Exchange::Inner {
  std::unique_ptr<FixedBuckets> reducer;
};

struct PendingWork::Inner {
  c10::intrusive_ptr<c10d::Work> work;
};

namespace {

std::string text(rust::Str words) { return {words.data(), words.size()}; }

std::vector<at::Tensor> one(const at::Tensor &tensor) { return {tensor}; }

void reduce(const Handle &group, const at::Tensor &tensor, c10d::ReduceOp::RedOpType operation) {
  auto tensors = one(tensor);
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  group->allreduce(tensors, options)->wait();
}

at::Tensor summed(const Handle &group, const at::Tensor &tensor) {
  at::NoGradGuard guard;
  auto sum = tensor.detach().clone(at::MemoryFormat::Contiguous);
  reduce(group, sum, c10d::ReduceOp::SUM);
  return sum;
}

using Variables = torch::autograd::variable_list;
using Context = torch::autograd::AutogradContext;

// The one name of `cuda/nccl.cpp`, where that was opened.
using NcclJoin = const char *(*)(c10d::ProcessGroup *, c10d::Store *, int, int, int, std::int64_t);

NcclJoin nccl_join() { return reinterpret_cast<NcclJoin>(dlsym(RTLD_DEFAULT, "gradus_nccl_join")); }

template <bool forward_sums, bool backward_sums>
struct Sum : torch::autograd::Function<Sum<forward_sums, backward_sums>> {
  static at::Tensor forward(Context *context, const at::Tensor &tensor, Handle group) {
    context->saved_data["group"] = c10::IValue::make_capsule(group);
    return forward_sums ? summed(group, tensor) : tensor.view_as(tensor);
  }

  static Variables backward(Context *context, Variables gradients) {
    auto group = c10::static_intrusive_pointer_cast<c10d::ProcessGroup>(context->saved_data["group"].toCapsule());
    return {backward_sums ? summed(group, gradients[0]) : gradients[0], at::Tensor()};
  }
};

// Sends half of the bytes: the sum of bfloat16 values, in 32 bits again on arrival.
class HalfTheBytes : public c10d::CppCommHookInterface<Handle> {
public:
  using CppCommHookInterface::CppCommHookInterface;

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket &bucket) override {
    at::Tensor full = bucket.getBuffer();
    auto tensors = one(full.div(state_->getSize()).to(at::kBFloat16));
    return state_->allreduce(tensors)->getFuture()->then(
        [full, half = tensors[0]](c10::ivalue::Future &) {
          at::NoGradGuard guard;
          full.copy_(half);
          return c10::IValue(full);
        },
        c10::TensorType::get());
  }
};

} // namespace

std::unique_ptr<Store> store_open(rust::Str host, std::uint16_t port, bool keep, std::uint64_t timeout_ms) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = keep;
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(timeout_ms);
  auto store = c10::make_intrusive<c10d::TCPStore>(text(host), options);
  return std::make_unique<Store>(Store{std::make_shared<Store::Inner>(Store::Inner{store})});
}

void store_set(const Store &store, rust::Str key) { store.inner->store->set(text(key), std::vector<std::uint8_t>{1}); }

bool store_has(const Store &store, rust::Str key) { return store.inner->store->check({text(key)}); }

std::unique_ptr<Group> group_join(const Store &store, rust::Str name, std::uint32_t rank, std::uint32_t size,
                                  rust::Str host, std::int32_t device, std::uint64_t timeout_ms) {
  auto meeting = c10::make_intrusive<c10d::PrefixStore>(text(name), store.inner->store);
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(timeout_ms));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(text(host)));
  options->threads = 2;
  int place = static_cast<int>(rank), count = static_cast<int>(size);
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(meeting, place, count, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(meeting, place, count);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  if (device >= 0) {
    auto join = nccl_join();
    TORCH_CHECK(join != nullptr, "NCCL: its library is not there");
    auto wrong = join(group.get(), meeting.get(), place, count, device, static_cast<std::int64_t>(timeout_ms));
    if (wrong != nullptr) {
      throw std::runtime_error(std::string("NCCL: ") + wrong);
    }
  } else {
    // Where not all have NCCL, values on cards go through the host.
    group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::GLOO, gloo);
  }
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return std::make_unique<Group>(Group{std::make_shared<Group::Inner>(Group::Inner{group})});
}

bool has_nccl() { return nccl_join() != nullptr; }

void group_sum(const Group &group, const at::Tensor &tensor) {
  at::NoGradGuard guard;
  reduce(group.inner->group, tensor, c10d::ReduceOp::SUM);
}

void group_max(const Group &group, const at::Tensor &tensor) {
  at::NoGradGuard guard;
  reduce(group.inner->group, tensor, c10d::ReduceOp::MAX);
}

void group_broadcast(const Group &group, const at::Tensor &tensor, std::uint32_t root) {
  at::NoGradGuard guard;
  auto tensors = one(tensor);
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group.inner->group->broadcast(tensors, options)->wait();
}

void group_all_gather(const Group &group, const at::Tensor &output, const at::Tensor &input) {
  at::NoGradGuard guard;
  at::Tensor to = output, from = input;
  group.inner->group->_allgather_base(to, from)->wait();
}

std::unique_ptr<PendingWork> group_all_gather_begin(const Group &group, const at::Tensor &output,
                                                    const at::Tensor &input) {
  at::NoGradGuard guard;
  at::Tensor to = output, from = input;
  auto inner = std::make_shared<PendingWork::Inner>(PendingWork::Inner{group.inner->group->_allgather_base(to, from)});
  return std::make_unique<PendingWork>(PendingWork{inner});
}

std::unique_ptr<PendingWork> group_reduce_scatter_begin(const Group &group, const at::Tensor &output,
                                                        const at::Tensor &input) {
  at::NoGradGuard guard;
  at::Tensor to = output, from = input;
  auto work = group.inner->group->_reduce_scatter_base(to, from);
  auto inner = std::make_shared<PendingWork::Inner>(PendingWork::Inner{work});
  return std::make_unique<PendingWork>(PendingWork{inner});
}

void pending_wait(const PendingWork &pending) {
  // Over Gloo, the output of a reduce-scatter is copied here.
  at::NoGradGuard guard;
  pending.inner->work->wait();
}

void group_barrier(const Group &group) { group.inner->group->barrier()->wait(); }

std::unique_ptr<at::Tensor> group_sum_both(const Group &group, const at::Tensor &tensor) {
  return std::make_unique<at::Tensor>(Sum<true, true>::apply(tensor, group.inner->group));
}

std::unique_ptr<at::Tensor> group_sum_backward(const Group &group, const at::Tensor &tensor) {
  return std::make_unique<at::Tensor>(Sum<false, true>::apply(tensor, group.inner->group));
}

std::unique_ptr<at::Tensor> group_sum_forward(const Group &group, const at::Tensor &tensor) {
  return std::make_unique<at::Tensor>(Sum<true, false>::apply(tensor, group.inner->group));
}

std::unique_ptr<Exchange> exchange_new(const Group &group, Lents parameters, std::uint64_t bucket_bytes, bool bf16) {
  // Gradients come in the order of the backward pass, so about the other way round than parameters.
  std::vector<at::Tensor> backwards;
  for (std::size_t place = parameters.size(); place-- > 0;) {
    backwards.push_back(*parameters[place].tensor);
  }
  std::vector<bool> sparse(backwards.size(), false);
  auto first = std::min<std::size_t>(bucket_bytes, c10d::kDefaultFirstBucketBytes);
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(backwards, {first, bucket_bytes}, sparse);
  auto reducer = std::make_unique<FixedBuckets>(
      backwards, buckets, group.inner->group, sparse, static_cast<int64_t>(bucket_bytes), /*find_unused_parameters=*/false,
      /*gradient_as_bucket_view=*/true, std::unordered_map<size_t, std::string>(), static_cast<int64_t>(first),
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>());
  if (bf16) {
    reducer->register_comm_hook(std::make_unique<HalfTheBytes>(group.inner->group));
  }
  auto inner = std::make_shared<Exchange::Inner>(Exchange::Inner{std::move(reducer)});
  return std::make_unique<Exchange>(Exchange{inner});
}

void exchange_forward(const Exchange &exchange) { exchange.inner->reducer->prepare_for_forward(); }

void exchange_backward(const Exchange &exchange) { exchange.inner->reducer->prepare_for_backward({}); }

} // namespace gradus
