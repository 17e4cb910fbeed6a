// SPDX-License-Identifier: Apache-2.0
// The emulator itself: what it computes and that it notices what it promises to notice.
#include <algorithm>
#include <cstring>
#include <vector>

#include "catch.hpp"
#include "emulator.hpp"
#include "kernels.hpp"

namespace {

constexpr int kThreads = 128;
constexpr int kWidth = 32;

struct Arguments {
  int fault;  // which misdeed
  int* out;
};

int reverse(int value) {
  return emulator::exchange<int>("reverse", value, [](const int* in, int* out, int lanes) {
    for (int i = 0; i < lanes; ++i) out[i] = in[lanes - 1 - i];
  });
}

void put(int* address, int value) {
  emulator::check_lds(address, 4, true);
  *address = value;
}

int get(const int* address) {
  emulator::check_lds(address, 4, false);
  return *address;
}

// Every thread hands its number to its mirror in the wave, then to the next thread through LDS.
void entry(const void* pointer) {
  const auto& a = *static_cast<const Arguments*>(pointer);
  auto* lds = reinterpret_cast<int*>(emulator::lds());
  const int t = emulator::thread_index();
  if (a.fault == 1 && t == 5) return;
  if (a.fault == 2 && t == 40) emulator::barrier();
  const int mirrored = reverse(t);
  put(lds + t + (a.fault == 3 ? 1 : 0), mirrored);
  emulator::barrier();
  if (a.fault == 4) put(lds + (t + 2) % kThreads, 0);
  const int taken = get(lds + (t + 1) % kThreads);
  int* out = a.out + emulator::block_index() * kThreads + t + (a.fault == 5 ? 1 : 0);
  emulator::check_global(out, 4, true);
  *out = taken;
}

std::string run(int fault, std::vector<int>& out) {
  const emulator::Kernel kernel{"test",   false,  false,        false, 8,     8,     false, false,
                                false,    false,  false,        false, false, false, 0,     0,
                                kThreads, kWidth, kThreads * 4, entry};
  out.assign(2 * kThreads, -1);
  emulator::clear_memory();
  emulator::allow_memory(out.data(), out.size() * 4, true);
  const Arguments arguments{fault, out.data()};
  return emulator::run(kernel, 2, &arguments);
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("emulator: exchanges, barriers and LDS give what a GPU would", "[emulator]") {
  std::vector<int> out;
  REQUIRE(run(0, out) == "");
  for (int i = 0; i < 2 * kThreads; ++i) {
    const int next = (i % kThreads + 1) % kThreads;
    CHECK(out[i] == next / kWidth * kWidth + kWidth - 1 - next % kWidth);
  }
}

TEST_CASE("emulator: faults are reported, not computed with", "[emulator]") {
  std::vector<int> out;
  CHECK(contains(run(1, out), "ended"));
  CHECK(contains(run(2, out), "divergence") + contains(run(2, out), "deadlock") > 0);
  CHECK(contains(run(3, out), "outside"));
  CHECK(contains(run(4, out), "race"));
  CHECK(contains(run(5, out), "not its own"));
  emulator::faults.dropped_barrier = 0;
  CHECK(run(0, out) != "");
  emulator::faults.dropped_barrier = -1;
  CHECK(run(0, out) == "");  // and the next run starts clean
}

TEST_CASE("emulator: bank conflicts are counted", "[emulator]") {
  // One wave, every lane one word, `step` words apart.
  static int step;
  const auto strided = [](const void*) {
    put(reinterpret_cast<int*>(emulator::lds()) + emulator::thread_index() * step, 1);
  };
  const emulator::Kernel kernel{"strided", false, false,  false,  8,       8,      false,
                                false,     false, false,  false,  false,   false,  false,
                                0,         0,     kWidth, kWidth, 32 << 7, strided};
  emulator::LdsRecorder recorder;
  emulator::lds_recorder = &recorder;
  step = 1;
  CHECK(emulator::run(kernel, 1, nullptr) == "");
  CHECK(recorder.report.phases == 1);
  CHECK(recorder.report.cycles == 1);
  step = 32;
  CHECK(emulator::run(kernel, 1, nullptr) == "");
  step = 4;
  CHECK(emulator::run(kernel, 1, nullptr) == "");
  emulator::lds_recorder = nullptr;
  CHECK(recorder.report.phases == 3);
  CHECK(recorder.report.cycles == 1 + 32 + 4);
}

// Lanes that leave an access out neither count nor shift the accesses of the others.
TEST_CASE("emulator: bank conflicts are counted where some lanes are off", "[emulator]") {
  const auto some = [](const void*) {
    auto* lds = reinterpret_cast<int*>(emulator::lds());
    const int t = emulator::thread_index();
    if (t % 2 == 0) put(lds + t / 2 * 32, 1);  // 16 lanes, one bank
    if (t % 2 == 1) lds += 1024;
    *lds = get(lds + t);  // all lanes, different banks
  };
  const emulator::Kernel kernel{"some", false, false, false, 8, 8, false,  false,  false,   false,
                                false,  false, false, false, 0, 0, kWidth, kWidth, 1 << 14, some};
  emulator::LdsRecorder recorder;
  emulator::lds_recorder = &recorder;
  CHECK(emulator::run(kernel, 1, nullptr) == "");
  emulator::lds_recorder = nullptr;
  CHECK(recorder.report.phases == 2);
  CHECK(recorder.report.cycles == 16 + 1);
}

namespace {

// Two workgroups in a cluster. A unit writes the lane's number for it, some time; lane 0 of each
// workgroup reads what the other's was given.
struct Together {
  int fault;
  int* out;
};
emulator::Event written[2];
int values[2];

void together(const void* pointer) {
  const auto& a = *static_cast<const Together*>(pointer);
  const int rank = emulator::cluster_rank(), t = emulator::thread_index();
  if (t == 0) {
    written[rank] = {};
    values[rank] = -1;
  }
  emulator::cluster_barrier();
  if (t < kWidth) emulator::barrier(3, kWidth);
  if (t == 0 && a.fault != 1)
    emulator::later([rank] {
      *reinterpret_cast<int*>(emulator::lds()) = 10 + rank;
      values[rank] = *reinterpret_cast<int*>(emulator::lds_of(rank));
      emulator::signal(written[rank]);
    });
  if (t == 0 && a.fault == 2) emulator::later([] {});
  if (t == 1 && a.fault != 2)
    while (values[1 - rank] < 0) emulator::await(written[1 - rank], "the other's value");
  if (t == 1) a.out[emulator::block_index()] = values[1 - rank];
}

}  // namespace

TEST_CASE("emulator: workgroups together, and units beside their lanes", "[emulator]") {
  emulator::Kernel kernel{"together", false, false, false, 8, 8, false,    false,  false, false,
                          false,      false, false, false, 0, 0, kThreads, kWidth, 1024,  together};
  kernel.asynchronous = true;
  int out[4];
  for (int round = 0; round < 20; ++round) {
    std::fill(out, out + 4, 0);
    const Together good{0, out};
    REQUIRE(emulator::run(kernel, 4, &good, 2) == "");
    for (int block = 0; block < 4; ++block) CHECK(out[block] == 10 + 1 - block % 2);
  }
  const Together forgotten{1, out};
  CHECK(contains(emulator::run(kernel, 2, &forgotten, 2), "deadlock"));
  CHECK(emulator::run(kernel, 3, &forgotten, 2) != "");  // no whole clusters
  int late = 0;
  for (int round = 0; round < 20; ++round) {
    const Together left{2, out};
    late += contains(emulator::run(kernel, 2, &left, 2), "under way");
  }
  CHECK(late > 0);
}
