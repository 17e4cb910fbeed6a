// SPDX-License-Identifier: Apache-2.0
#include "engine/forward_launch.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tile/hopper_shape.h"  // templates/

namespace hstu::jit {
namespace {

constexpr size_t kSlotBytes = 2 * sizeof(unsigned);
constexpr int kSharedRows = 64 * kHopperSharedGroups;  // of a tile

// A tensor [batch][tokens][heads][head_dim] of 16-bit elements, boxes of 64 elements of some
// tokens.
TensorMapShape shape_of(const unsigned short* address, const Strides& strides, int64_t tokens,
                        int heads, int64_t batch, int head_dim, int box_tokens, bool bf16) {
  TensorMapShape s;
  s.address = address;
  s.bf16 = bf16;
  s.rank = 4;
  const int64_t extents[4] = {head_dim, tokens, heads, batch};
  const int64_t element_strides[3] = {strides.seq, strides.head, strides.batch};
  int64_t widest = head_dim;
  for (int i = 0; i < 4; ++i) {
    s.extents[i] = static_cast<uint64_t>(extents[i]);
    s.box[i] = 1;
    if (i == 0) continue;
    // The stride of a dimension of one element means nothing, but zero is refused.
    const int64_t stride = extents[i] == 1 ? widest : element_strides[i - 1];
    s.strides[i - 1] = static_cast<uint64_t>(stride) * sizeof(uint16_t);
    widest = std::max(widest, stride * extents[i]);
  }
  s.box[0] = 64;
  s.box[1] = static_cast<uint32_t>(box_tokens);
  return s;
}

}  // namespace

ForwardLauncher::ForwardLauncher(Device& device, const Plan& plan)
    : number_([] {
        static std::atomic<uint64_t> next{1};
        return next.fetch_add(1, std::memory_order_relaxed);
      }()),
      device_(&device),
      config_(plan.config),
      shape_(plan.launch),
      hopper_(plan.template_name == kHopperTemplate),
      splits_(hopper_ && device.has_clusters() &&
              hopper_shares_tiles(plan.config.apart, plan.config.activation == Activation::softmax,
                                  plan.config.head_dim_qk, plan.config.head_dim_v,
                                  plan.config.tile_m)),
      compute_units_(device.target().compute_units) {}

Result<std::unique_ptr<ForwardLauncher>> ForwardLauncher::create(Device& device, const Plan& plan) {
  std::unique_ptr<ForwardLauncher> launcher(new ForwardLauncher(device, plan));
  if (!launcher->hopper_) return launcher;
  Result<std::unique_ptr<DeviceBuffer>> counters =
      device.allocate((kRing + kCaptures) * kSlotBytes);
  if (!counters) return std::move(counters).error();
  launcher->counters_ = std::move(*counters);
  if (Status s = device.fill(*launcher->counters_, 0); !s) return std::move(s).error();
  if (Status s = device.synchronize(nullptr); !s) return std::move(s).error();
  return launcher;
}

Result<int64_t> ForwardLauncher::grid(const ForwardArguments& a) const {
  Result<int64_t> count = tiles(a, config_.tile_m);
  if (!count || !hopper_) return count;
  return std::min<int64_t>(*count, compute_units_);
}

// Few tiles of many keys leave most of the time to the longest: two workgroups share each then.
bool ForwardLauncher::shares_tiles(const ForwardArguments& a) const {
  // What the two exchange weighs less the more keys there are.
  constexpr int kSomeKeys = 1024, kManyKeys = 3072;
  if (!splits_) return false;
  const Result<int64_t> count = tiles(a, kSharedRows);
  return count && ((*count <= compute_units_ * 5 / 4 && a.seqlen_kv >= kSomeKeys) ||
                   (*count <= compute_units_ * 2 && a.seqlen_kv >= kManyKeys));
}

Result<int64_t> ForwardLauncher::tiles(const ForwardArguments& a, int rows_of_tile) const {
  const int64_t tiles = (int64_t{a.seqlen_q} + rows_of_tile - 1) / rows_of_tile;
  int64_t grid = 0;
  if (__builtin_mul_overflow(int64_t{a.batch} * a.heads, tiles, &grid)) {
    return Error{
        ErrorKind::kUnsupported,
        fmt::format("batch {} x heads {} x {} query tiles pass 2^63", a.batch, a.heads, tiles), "",
        ""};
  }
  return grid;
}

Status ForwardLauncher::launch(DeviceKernel& kernel, const ForwardArguments& arguments,
                               const TokenCounts& tokens, void* stream) {
  const Result<int64_t> workgroups = grid(arguments);
  if (!workgroups) return workgroups.error();
  if (*workgroups == 0) return {};
  LaunchGrid grid{*workgroups, shape_.block, shape_.dynamic_lds_bytes};
  if (shares_tiles(arguments)) {
    grid.cluster = 2;
    grid.grid = std::min<int64_t>(2 * *tiles(arguments, kSharedRows), compute_units_ / 2 * 2);
  }
  if (!hopper_) return device_->launch(kernel, grid, &arguments, sizeof arguments, stream);
  const auto fill_and_launch = [&]() -> Status {
    HopperArguments whole{};
    if (Status s = fill(arguments, tokens, stream, whole); !s) return s;
    return device_->launch(kernel, grid, &whole, sizeof whole, stream);
  };
  return device_->inside(fill_and_launch);
}

Status ForwardLauncher::fill(const ForwardArguments& forward, const TokenCounts& tokens,
                             void* stream, HopperArguments& arguments) {
  if (tokens.q <= 0 || tokens.kv < 0) {
    return Error{ErrorKind::kUsage,
                 fmt::format("{} query and {} key tokens: kernels for {} are told how many there "
                             "are",
                             tokens.q, tokens.kv, device_->target().name),
                 "", ""};
  }
  arguments.forward = forward;
  const int64_t batch = config_.jagged ? 1 : forward.batch;
  const bool bf16 = config_.dtype == Dtype::bf16;
  const auto map_of = [&](const unsigned short* address, const Strides& strides, int64_t rows,
                          int head_dim, int box, int which, TensorMap& map) {
    return encode(shape_of(address, strides, rows, forward.heads, batch, head_dim, box, bf16),
                  which, map);
  };
  const int qk = config_.head_dim_qk, v = config_.head_dim_v;
  if (Status s = map_of(forward.q, forward.q_strides, tokens.q, qk, 64, 0, arguments.q); !s) {
    return s;
  }
  if (tokens.kv > 0) {  // without keys nothing is read through these maps
    if (Status s =
            map_of(forward.k, forward.k_strides, tokens.kv, qk, config_.tile_n, 1, arguments.k);
        !s) {
      return s;
    }
    if (Status s =
            map_of(forward.v, forward.v_strides, tokens.kv, v, config_.tile_n, 2, arguments.v);
        !s) {
      return s;
    }
  } else {
    arguments.k = arguments.v = arguments.q;
  }
  if (config_.q_buffers > 1) {
    if (Status s =
            map_of(forward.o, forward.o_strides, tokens.q, v, kHopperWrittenRows, 3, arguments.o);
        !s) {
      return s;
    }
  }
  const Result<size_t> slot = slot_of(stream);
  if (!slot) return slot.error();
  arguments.counters =
      reinterpret_cast<unsigned*>(static_cast<char*>(counters_->data()) + *slot * kSlotBytes);
  return {};
}

// The driver takes longer to encode maps than to launch, and servers launch on the same buffers
// again and again: each thread remembers its last maps.
Status ForwardLauncher::encode(const TensorMapShape& shape, int which, TensorMap& map) const {
  struct Remembered {
    uint64_t launcher = 0;
    TensorMapShape shape;
    TensorMap map;
  };
  constexpr size_t kPlaces = 8;
  thread_local Remembered remembered[4][kPlaces];
  const auto address = reinterpret_cast<uintptr_t>(shape.address);
  Remembered& place = remembered[which][(address >> 8 ^ address >> 16 ^ number_) % kPlaces];
  if (place.launcher != number_ || place.shape != shape) {
    place.launcher = 0;
    if (Status s = device_->encode_tensor_map(shape, &place.map); !s) return s;
    place.launcher = number_;
    place.shape = shape;
  }
  map = place.map;
  return {};
}

Result<size_t> ForwardLauncher::slot_of(void* stream) {
  const Result<bool> captured = device_->capturing(stream);
  if (!captured) return captured.error();
  if (!*captured) return launches_.fetch_add(1, std::memory_order_relaxed) % kRing;
  const size_t number = captures_.fetch_add(1, std::memory_order_relaxed);
  if (number < kCaptures) return kRing + number;
  captures_.store(kCaptures, std::memory_order_relaxed);
  return Error{
      ErrorKind::kFailed,
      fmt::format("one kernel was captured into graphs {} times: prepare it again", kCaptures), "",
      ""};
}

}  // namespace hstu::jit
