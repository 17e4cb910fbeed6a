// SPDX-License-Identifier: Apache-2.0
#include "cli/tensors.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/file.hpp"

namespace hstu::jit::cli {
namespace {

constexpr size_t kGuardBytes = 4096;

// Memory the host can still hand out; 0 when the system does not say.
size_t available_host_bytes() {
  Result<std::string> text = read_file("/proc/meminfo", 1 << 20);
  if (text) {
    const size_t at = text->find("MemAvailable:");
    if (at != std::string::npos)
      return static_cast<size_t>(std::strtoull(text->c_str() + at + 13, nullptr, 10)) * 1024;
  }
  const long pages = sysconf(_SC_AVPHYS_PAGES);
  return pages > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

Status check_memory(const Problem& problem, const Geometry& g, const Device& device,
                    bool inputs_made) {
  // Element counts are below 2^63 / 16 by the spec's limits, so these sums cannot wrap.
  const double inputs =
      2.0 * (static_cast<double>(g.q_elements) + static_cast<double>(g.k_elements) +
             static_cast<double>(g.v_elements));
  const double outputs = 2.0 * static_cast<double>(g.o_elements) +
                         (problem.writes_lse() ? 4.0 * static_cast<double>(g.lse_elements) : 0.0);
  const double on_device = inputs + outputs + 2.0 * kGuardBytes + 12.0 * problem.batch;
  // The host keeps the inputs and two copies of the outputs (two launches are compared).
  double on_host = (inputs_made ? 0 : inputs) + 2.0 * outputs;
  const bool shared = device.target().vendor == Vendor::cpu;
  if (shared) on_host += on_device;
  const double host = static_cast<double>(available_host_bytes());
  if (host > 0 && on_host > host)
    return Error{ErrorKind::kUnsupported,
                 fmt::format("the problem needs {:.0f} bytes on the host and {:.0f} are free: use "
                             "fewer sequences, heads or tokens",
                             on_host, host),
                 "", ""};
  const double free = static_cast<double>(device.free_memory());
  if (!shared && free > 0 && on_device > free)
    return Error{ErrorKind::kUnsupported,
                 fmt::format("the problem needs {:.0f} bytes on {} and {:.0f} are free: use fewer "
                             "sequences, heads or tokens",
                             on_device, device.name(), free),
                 "", ""};
  return {};
}

template <typename T>
Status write_vector(const std::string& path, const std::vector<T>& values) {
  return write_file_atomic(path, std::string_view(reinterpret_cast<const char*>(values.data()),
                                                  values.size() * sizeof(T)));
}

bool all_poison(const std::vector<char>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == '\xff'; });
}

}  // namespace

Status DeviceTensors::upload(const void* data, size_t bytes, const void** device_address) {
  Result<std::unique_ptr<DeviceBuffer>> buffer = device_->allocate(std::max<size_t>(bytes, 16));
  if (!buffer) return std::move(buffer).error();
  if (bytes > 0)
    if (Status s = device_->upload(**buffer, 0, data, bytes); !s) return s;
  *device_address = (*buffer)->data();
  buffers_.push_back(std::move(*buffer));
  return {};
}

Result<DeviceTensors> DeviceTensors::create(const Problem& problem, const Geometry& g,
                                            Device& device) {
  if (Status s = check_memory(problem, g, device, false); !s) return std::move(s).error();
  Result<HostTensors> inputs = make_tensors(problem, g);
  if (!inputs) return std::move(inputs).error();
  return create(problem, g, device, std::move(*inputs));
}

Result<DeviceTensors> DeviceTensors::create(const Problem& problem, const Geometry& g,
                                            Device& device, HostTensors inputs) {
  if (inputs.q.size() < static_cast<size_t>(g.q_elements) ||
      inputs.k.size() < static_cast<size_t>(g.k_elements) ||
      inputs.v.size() < static_cast<size_t>(g.v_elements))
    return Error{ErrorKind::kInternal, "the inputs are smaller than the problem", "", ""};
  if (Status s = check_memory(problem, g, device, true); !s) return std::move(s).error();
  DeviceTensors t(device, std::move(inputs));
  ForwardArguments& a = t.arguments_;

  const void *q = nullptr, *k = nullptr, *v = nullptr, *offsets_q = nullptr, *offsets_kv = nullptr,
             *targets = nullptr, *groups = nullptr;
  const auto up = [&](const auto& values, const void** address) {
    return t.upload(values.data(), values.size() * sizeof(values[0]), address);
  };
  if (Status s = up(t.inputs_.q, &q); !s) return std::move(s).error();
  if (Status s = up(t.inputs_.k, &k); !s) return std::move(s).error();
  if (Status s = up(t.inputs_.v, &v); !s) return std::move(s).error();
  if (problem.layout == Layout::jagged) {
    if (Status s = up(g.seq_offsets_q, &offsets_q); !s) return std::move(s).error();
    if (Status s = up(g.seq_offsets_kv, &offsets_kv); !s) return std::move(s).error();
  }
  if (g.features.targets)
    if (Status s = up(problem.num_targets, &targets); !s) return std::move(s).error();
  if (problem.grouped())
    if (Status s = up(g.groups, &groups); !s) return std::move(s).error();

  t.o_bytes_ = static_cast<size_t>(g.o_elements) * sizeof(uint16_t);
  t.lse_bytes_ = problem.writes_lse() ? static_cast<size_t>(g.lse_elements) * sizeof(float) : 0;
  Result<std::unique_ptr<DeviceBuffer>> o = device.allocate(t.o_bytes_ + 2 * kGuardBytes);
  if (!o) return std::move(o).error();
  t.o_ = std::move(*o);
  Result<std::unique_ptr<DeviceBuffer>> lse = device.allocate(t.lse_bytes_ + 2 * kGuardBytes);
  if (!lse) return std::move(lse).error();
  t.lse_ = std::move(*lse);
  if (Status s = t.poison_outputs(); !s) return std::move(s).error();

  a.q = static_cast<const unsigned short*>(q);
  a.k = static_cast<const unsigned short*>(k);
  a.v = static_cast<const unsigned short*>(v);
  a.o = reinterpret_cast<unsigned short*>(static_cast<char*>(t.o_->data()) + kGuardBytes);
  a.lse = problem.writes_lse()
              ? reinterpret_cast<float*>(static_cast<char*>(t.lse_->data()) + kGuardBytes)
              : nullptr;
  a.seq_offsets_q = static_cast<const int*>(offsets_q);
  a.seq_offsets_kv = static_cast<const int*>(offsets_kv);
  a.num_targets = static_cast<const int*>(targets);
  a.groups = static_cast<const GroupArguments*>(groups);
  a.q_strides = g.q;
  a.k_strides = g.k;
  a.v_strides = g.v;
  a.o_strides = g.o;
  a.lse_strides = g.lse;
  a.uniform = g.groups.empty() ? GroupArguments{} : g.groups.front();
  a.alpha = g.alpha;
  a.batch = static_cast<int>(problem.batch);
  a.heads = problem.heads;
  a.seqlen_q = g.longest_q;
  a.seqlen_kv = g.max_seqlen_kv;
  t.tokens_ = problem.layout == Layout::jagged ? TokenCounts{g.tokens_q, g.tokens_kv}
                                               : TokenCounts{g.max_seqlen_q, g.max_seqlen_kv};
  a.batches_per_group =
      problem.grouped()
          ? static_cast<int>(problem.batch / static_cast<int64_t>(problem.groups.size()))
          : std::max(1, a.batch);
  return t;
}

Status DeviceTensors::poison_outputs() {
  if (Status s = device_->fill(*o_, 0xff); !s) return s;
  return device_->fill(*lse_, 0xff);
}

Status DeviceTensors::download(HostOutput& output) const {
  output.o.resize(o_bytes_ / sizeof(uint16_t));
  output.lse.resize(lse_bytes_ / sizeof(float));
  if (o_bytes_ > 0)
    if (Status s = device_->download(output.o.data(), *o_, kGuardBytes, o_bytes_); !s) return s;
  if (lse_bytes_ > 0)
    if (Status s = device_->download(output.lse.data(), *lse_, kGuardBytes, lse_bytes_); !s)
      return s;
  const std::pair<const DeviceBuffer*, size_t> outputs[] = {{o_.get(), o_bytes_},
                                                            {lse_.get(), lse_bytes_}};
  for (const auto& [buffer, bytes] : outputs) {
    std::vector<char> before(kGuardBytes), after(kGuardBytes);
    if (Status s = device_->download(before.data(), *buffer, 0, kGuardBytes); !s) return s;
    if (Status s = device_->download(after.data(), *buffer, kGuardBytes + bytes, kGuardBytes); !s)
      return s;
    if (!all_poison(before) || !all_poison(after))
      return Error{ErrorKind::kMismatch,
                   fmt::format("the kernel wrote {} the {} tensor",
                               all_poison(before) ? "past the end of" : "in front of",
                               buffer == o_.get() ? "o" : "lse"),
                   "", ""};
  }
  return {};
}

Status dump_outputs(const Problem& problem, const Geometry& g, const HostTensors& inputs,
                    const HostOutput& output) {
  if (Status s = make_directories(problem.dump_dir); !s) return s;
  Result<ReferenceOutput> reference = reference_output(problem, g, inputs);
  if (!reference) return std::move(reference).error();
  const std::string folder = problem.dump_dir + "/";
  if (Status s = write_vector(folder + "output_dev.dat", output.o); !s) return s;
  if (Status s = write_vector(folder + "output_host.dat", reference->o); !s) return s;
  if (output.lse.empty()) return {};
  if (Status s = write_vector(folder + "lse_dev.dat", output.lse); !s) return s;
  return write_vector(folder + "lse_host.dat", reference->lse);
}

}  // namespace hstu::jit::cli
