// SPDX-License-Identifier: Apache-2.0
// What the tests of hstu-jit-bench-peers share: devices that spoil outputs, rows made by hand.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/temp_dir.hpp"
#include "bench_peers.hpp"
#include "catch.hpp"
#include "device/cpu/cpu_device.hpp"

namespace hstu::jit::bench::test {

inline Rows rows_of(const char* data, RowSet set, int scale = 1) {
  Result<Rows> rows = read_rows(data, set, scale);
  if (!rows) FAIL(rows.error().message);
  return *rows;
}

// The cpu device, but something goes wrong with what a kernel writes.
class BadDevice : public Device {
 public:
  enum class Fault { none, one_element, row_unwritten, lazy };
  BadDevice(Device& good, Fault fault) : good_(good), fault_(fault) {}

  const std::string& name() const override { return good_.name(); }
  const std::string& description() const override { return good_.description(); }
  const Target& target() const override { return good_.target(); }
  size_t total_memory() const override { return good_.total_memory(); }
  size_t free_memory() const override { return good_.free_memory(); }
  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    allocated.push_back(bytes);
    return good_.allocate(bytes);
  }
  Status upload(DeviceBuffer& to, size_t offset, const void* from, size_t bytes) override {
    return good_.upload(to, offset, from, bytes);
  }
  Status download(void* to, const DeviceBuffer& from, size_t offset, size_t bytes) override {
    return good_.download(to, from, offset, bytes);
  }
  Status fill(DeviceBuffer& buffer, uint8_t byte) override { return good_.fill(buffer, byte); }
  Result<std::unique_ptr<DeviceKernel>> load(std::string_view object,
                                             const std::string& entry) override {
    return good_.load(object, entry);
  }
  Status launch(DeviceKernel& kernel, const LaunchGrid& grid, const void* arguments, size_t bytes,
                void* stream) override {
    ++launches;
    auto a = *static_cast<const hstu::ForwardArguments*>(arguments);
    if (fault_ == Fault::lazy && launches > good_launches) return {};
    Status status = good_.launch(kernel, grid, &a, bytes, stream);
    if (fault_ == Fault::one_element) a.o[0] ^= 0x4000;  // first element of a first row
    if (fault_ == Fault::row_unwritten) std::memset(a.o + 20 * a.o_strides.seq, 0xff, 256);
    return status;
  }
  Result<void*> create_stream() override { return good_.create_stream(); }
  void destroy_stream(void* stream) override { good_.destroy_stream(stream); }
  Status synchronize(void* stream) override { return good_.synchronize(stream); }
  Result<std::unique_ptr<DeviceEvent>> record(void* stream) override {
    return good_.record(stream);
  }
  Result<double> elapsed(DeviceEvent& from, DeviceEvent& to) override {
    return good_.elapsed(from, to);
  }
  Status flush_cache(void* stream) override {
    ++flushes;
    return good_.flush_cache(stream);
  }

  int launches = 0, flushes = 0;
  int good_launches = 2;  // of a lazy device: whose results may still be there later
  std::vector<size_t> allocated;

 private:
  Device& good_;
  Fault fault_;
};

struct Setup {
  Setup() {
    EngineOptions o;
    o.cache_dir = folder.path();
    engine = std::move(*Engine::create(o));
    options.iterations = 3;
    options.pause_ms = 0;
    options.scale = 32;
  }
  TempDir folder = std::move(*TempDir::create("bench-peers-"));
  std::unique_ptr<Device> cpu = std::move(*open_cpu_device());
  std::unique_ptr<Engine> engine;
  Options options;
};

// A row of no device: `ms` was measured.
struct Made {
  Row row;
  Measured measured;
};
inline Made made(int number, int batch, int dim, int length, double peer_ms, double ms) {
  Made m;
  Problem& p = m.row.problem;
  p.batch = batch;
  p.heads = 4;
  p.head_dim_qk = p.head_dim_v = dim;
  p.uih_q = p.uih_kv = std::vector<int32_t>(static_cast<size_t>(batch), length);
  p.num_targets = std::vector<int32_t>(static_cast<size_t>(batch), 0);
  m.row.number = number;
  m.row.name = "row";
  m.row.max_len = length;
  m.row.peer = peer_ms > 0 ? "them" : "";
  m.row.peer_ms = peer_ms;
  m.row.matrix_goal = wanted_matrix_share(m.row);
  m.measured.valid = true;
  m.measured.check = {true, 2e-3, 1000, ""};
  m.measured.ms = {ms, ms * 0.9, ms * 1.2, 7};
  m.measured.useful_flop = 1e12;
  m.measured.dense_flop = 2e12;
  m.measured.bytes = 4e9;
  m.measured.pairs = 1e9;
  return m;
}

struct Table {
  std::vector<Row> rows;
  std::vector<Measured> measured;
  Ceilings ceilings{{{800, {}, ""}, {750, {}, ""}}, {{4, {}, ""}, {3.9, {}, ""}}};
  void add(const Made& m) {
    rows.push_back(m.row);
    measured.push_back(m.measured);
  }
  std::vector<Figures> figures() const { return figures_of(rows, measured, ceilings); }
};

inline const Goal& goal_about(const std::vector<Goal>& goals, const std::string& text) {
  for (const Goal& goal : goals)
    if (goal.text.find(text) != std::string::npos) return goal;
  FAIL("no goal about " << text);
  return goals.front();
}

}  // namespace hstu::jit::bench::test
