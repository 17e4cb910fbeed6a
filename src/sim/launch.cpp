// SPDX-License-Identifier: Apache-2.0
#include "sim/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "sim/isa/operand.hpp"
#include "sim/workgroup.hpp"

namespace hstu::jit::sim {
namespace {

Error refusal(std::string what) { return Error{ErrorKind::kUsage, std::move(what), "", ""}; }

bool is_hidden(const KernelArgument& argument) { return argument.kind.rfind("hidden_", 0) == 0; }

// What the run-time library appends: LLVM's "User Guide for AMDGPU Backend", "Code Object V5
// Metadata" (and V4, whose kinds are among them).
uint64_t hidden_value(const std::string& kind, const LaunchRequest& r, uint64_t queue) {
  constexpr const char* kAxes[] = {"x", "y", "z"};
  for (size_t d = 0; d < 3; ++d) {
    if (kind == std::string("hidden_block_count_") + kAxes[d]) return r.grid[d];
    if (kind == std::string("hidden_group_size_") + kAxes[d]) return r.block[d];
  }
  if (kind == "hidden_grid_dims") {
    return r.grid[2] * r.block[2] > 1 ? 3 : r.grid[1] * r.block[1] > 1 ? 2 : 1;
  }
  if (kind == "hidden_private_base") return kPrivateBase >> 32;
  if (kind == "hidden_shared_base") return kSharedBase >> 32;
  if (kind == "hidden_queue_ptr") return queue;
  if (kind == "hidden_dynamic_lds_size") return r.dynamic_lds;
  // Offsets and remainders are 0: HIP launches whole workgroups from the origin. Printing, heap
  // and nested launches are not simulated; their pointers are null.
  return 0;
}

// The kernel-argument segment, dispatch packet and queue of a launch.
struct Segments {
  alignas(64) std::array<uint8_t, 64> packet{};
  alignas(64) std::array<uint8_t, 256> queue{};
  std::vector<uint8_t> storage;
  uint8_t* arguments = nullptr;
  size_t argument_bytes = 0;

  uint64_t address(const void* p) const { return reinterpret_cast<uint64_t>(p); }
};

void fill_segments(const LaunchRequest& r, uint32_t lds_bytes, Segments& s) {
  size_t bytes = std::max<size_t>(r.kernel->kernarg_bytes, r.arguments.size());
  for (const KernelArgument& a : r.kernel->info.arguments) {
    bytes = std::max<size_t>(bytes, size_t{a.offset} + a.size);
  }
  s.storage.assign(bytes + 64, 0);
  s.arguments = s.storage.data() + (64 - reinterpret_cast<uint64_t>(s.storage.data()) % 64) % 64;
  s.argument_bytes = bytes;
  if (!r.arguments.empty()) std::memcpy(s.arguments, r.arguments.data(), r.arguments.size());
  for (const KernelArgument& a : r.kernel->info.arguments) {
    if (!is_hidden(a)) continue;
    const uint64_t value = hidden_value(a.kind, r, s.address(s.queue.data()));
    std::memcpy(s.arguments + a.offset, &value, std::min<size_t>(a.size, sizeof value));
  }
  const auto put = [&](size_t at, auto value) {
    std::memcpy(s.packet.data() + at, &value, sizeof value);
  };
  // hsa_kernel_dispatch_packet_t
  put(0, uint16_t{2});
  put(2, uint16_t{3});
  for (size_t d = 0; d < 3; ++d) {
    put(4 + 2 * d, static_cast<uint16_t>(r.block[d]));
    put(12 + 4 * d, r.grid[d] * r.block[d]);
  }
  put(24, r.kernel->scratch_bytes);
  put(28, lds_bytes);
  put(40, s.address(s.arguments));
  // amd_queue_t: group_segment_aperture_base_hi, private_segment_aperture_base_hi
  const auto shared = static_cast<uint32_t>(kSharedBase >> 32),
             hidden = static_cast<uint32_t>(kPrivateBase >> 32);
  std::memcpy(s.queue.data() + 64, &shared, 4);
  std::memcpy(s.queue.data() + 68, &hidden, 4);
}

Status check_request(const LaunchRequest& r, uint64_t lds_bytes, uint64_t& workgroups) {
  const KernelEntry& k = *r.kernel;
  uint64_t items = 1;
  workgroups = 1;
  for (size_t d = 0; d < 3; ++d) {
    items *= r.block[d];
    if (r.grid[d] == 0 || r.block[d] == 0 || items > 1024) {
      return refusal(
          fmt::format("workgroups of {} x {} x {}, {} x {} x {} of them: want 1 to 1024 "
                      "work-items and at least one workgroup",
                      r.block[0], r.block[1], r.block[2], r.grid[0], r.grid[1], r.grid[2]));
    }
    // The dispatch packet counts work-items in 32 bits; gfx12 hands the kernel 16 bits of y and z.
    const bool narrow = d > 0 && r.code->machine().generation == Generation::gfx12;
    if (uint64_t{r.grid[d]} * r.block[d] > UINT32_MAX || (narrow && r.grid[d] > 0xffff) ||
        workgroups > (uint64_t{1} << 40) / r.grid[d]) {
      return refusal(fmt::format("too many workgroups: {} x {} x {} of {} x {} x {}", r.grid[0],
                                 r.grid[1], r.grid[2], r.block[0], r.block[1], r.block[2]));
    }
    workgroups *= r.grid[d];
  }
  const int most = k.info.max_workgroup.value_or(1024);
  if (items > static_cast<uint64_t>(most)) {
    return refusal(
        fmt::format("workgroups of {}, {} is compiled for {} at most", items, k.info.name, most));
  }
  if (lds_bytes > static_cast<uint64_t>(r.code->machine().lds_bytes)) {
    return refusal(fmt::format("{} needs {} bytes of LDS, {} has {}", k.info.name, lds_bytes,
                               r.code->machine().target, r.code->machine().lds_bytes));
  }
  // What the scratch registers of the hardware can say for a wave.
  constexpr uint64_t kMostScratch = uint64_t{8} << 20;
  if (uint64_t{k.scratch_bytes} * static_cast<uint64_t>(k.wave_width) > kMostScratch) {
    return refusal(fmt::format("{} needs {} bytes of scratch for each work-item; a wave has {} KB",
                               k.info.name, k.scratch_bytes, kMostScratch >> 10));
  }
  uint64_t wanted = k.kernarg_bytes;
  for (const KernelArgument& a : k.info.arguments) {
    wanted = std::max<uint64_t>(wanted, uint64_t{a.offset} + a.size);
  }
  constexpr uint64_t kMostArguments = uint64_t{1} << 20;
  if (wanted > kMostArguments || r.arguments.size() > kMostArguments) {
    return refusal(fmt::format("{} wants {} bytes of arguments, {} were given; the most is {}",
                               k.info.name, wanted, r.arguments.size(), kMostArguments));
  }
  wanted = 0;
  for (const KernelArgument& a : k.info.arguments) {
    if (!is_hidden(a)) wanted = std::max<uint64_t>(wanted, uint64_t{a.offset} + a.size);
  }
  if (r.arguments.size() < wanted) {
    return refusal(fmt::format("{} takes {} bytes of arguments, {} were given", k.info.name, wanted,
                               r.arguments.size()));
  }
  return {};
}

}  // namespace

Status run_launch(const LaunchRequest& r, const Options& options, LaunchReport& report) {
  const uint64_t lds_bytes = uint64_t{r.kernel->lds_bytes} + r.dynamic_lds;
  uint64_t workgroups = 0;
  if (Status s = check_request(r, lds_bytes, workgroups); !s) return s;

  Segments segments;
  fill_segments(r, static_cast<uint32_t>(lds_bytes), segments);
  std::vector<MemoryRange> ranges = r.buffers;
  for (const MemoryRange& range : r.code->ranges()) ranges.push_back(range);
  const auto add = [&](const void* at, size_t bytes, const char* what) {
    const auto begin = reinterpret_cast<uint64_t>(at);
    if (bytes > 0) ranges.push_back({begin, begin + bytes, false, what});
  };
  add(segments.arguments, segments.argument_bytes, "kernel argument segment");
  add(segments.packet.data(), segments.packet.size(), "dispatch packet");
  add(segments.queue.data(), segments.queue.size(), "queue");

  Dispatch dispatch;
  dispatch.code = r.code;
  dispatch.kernel = r.kernel;
  dispatch.memory = MemoryMap(std::move(ranges));
  dispatch.grid = r.grid;
  dispatch.block = r.block;
  dispatch.lds_bytes = static_cast<uint32_t>(lds_bytes);
  dispatch.kernarg = segments.address(segments.arguments);
  dispatch.packet = segments.address(segments.packet.data());
  dispatch.queue = segments.address(segments.queue.data());
  dispatch.instructions_per_wave = options.instructions_per_wave;

  if (options.progress) options.progress->workgroups += workgroups;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  Tally total(r.code->instructions().size());
  uint64_t fault_at = ~uint64_t{0};
  const auto work = [&] {
    Tally tally(r.code->instructions().size());
    Workgroup group(dispatch, tally);
    while (!stop) {
      const uint64_t n = next++;
      if (n >= workgroups) break;
      const std::string fault = group.run({static_cast<uint32_t>(n % r.grid[0]),
                                           static_cast<uint32_t>(n / r.grid[0] % r.grid[1]),
                                           static_cast<uint32_t>(n / r.grid[0] / r.grid[1])});
      if (options.progress) ++options.progress->done;
      if (fault.empty()) continue;
      stop = true;
      const std::lock_guard<std::mutex> lock(mutex);
      // The first workgroup's, so that runs agree as far as they can.
      if (n < fault_at) {
        fault_at = n;
        report.fault = fault;
      }
    }
    const std::lock_guard<std::mutex> lock(mutex);
    total.add(tally);
  };
  const auto threads = static_cast<int>(
      std::min<uint64_t>(static_cast<uint64_t>(std::max(1, options.threads)), workgroups));
  std::atomic<bool> starved{false};
  const auto guarded = [&] {
    try {
      work();
    } catch (const std::bad_alloc&) {
      starved = stop = true;
    }
  };
  std::vector<std::thread> others;
  others.reserve(static_cast<size_t>(threads));
  try {
    for (int t = 1; t < threads; ++t) others.emplace_back(guarded);
  } catch (const std::system_error&) {
    // The host gives no more threads: those there do the work.
  }
  guarded();
  for (std::thread& t : others) t.join();
  if (starved && report.fault.empty()) {
    report.fault =
        fmt::format("kernel {}: the host has no memory left to simulate it", r.kernel->info.name);
  }
  report.counters = counters_of(total, *r.code, r.code->machine());
  return {};
}

}  // namespace hstu::jit::sim
