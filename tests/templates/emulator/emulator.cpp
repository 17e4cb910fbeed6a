// SPDX-License-Identifier: Apache-2.0
#include "emulator.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "conflicts.hpp"
#include "kernels.hpp"

// Switching fibers happens once per lane and cross-lane operation: without system calls.
#if defined(__x86_64__)
extern "C" void hstu_emulator_switch(void** save, void* load);
asm(R"(
.text
.globl hstu_emulator_switch
.type hstu_emulator_switch,@function
hstu_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size hstu_emulator_switch,.-hstu_emulator_switch
)");
#endif

namespace emulator {

Faults faults;
LdsRecorder* lds_recorder = nullptr;

namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr int kMaxThreads = 1024;
constexpr int kMaxWidth = 64;
constexpr int kMaxCluster = 2;
constexpr int kMaxOperand = 256;  // bytes a lane gives to or takes from one exchange

class Fiber {
 public:
  void start(char* stack, void (*body)()) {
#ifdef __SANITIZE_ADDRESS__
    // A kernel that was given up left the marks of its frames on this stack.
    __asan_unpoison_memory_region(stack, kStackBytes);
#endif
#if defined(__x86_64__)
    // As if `body` had been called: the stack pointer is 8 off a multiple of 16 at its entry.
    auto* top = reinterpret_cast<void**>(stack + kStackBytes) - 2;
    *top = reinterpret_cast<void*>(body);
    std::memset(top - 6, 0, 6 * sizeof(void*));
    sp_ = top - 6;
#else
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, body, 0);
#endif
  }
  static void change(Fiber& from, Fiber& to) {
#if defined(__x86_64__)
    hstu_emulator_switch(&from.sp_, to.sp_);
#else
    swapcontext(&from.context_, &to.context_);
#endif
  }

 private:
#if defined(__x86_64__)
  void* sp_ = nullptr;
#else
  ucontext_t context_;
#endif
};

// A place where a set of lanes meets.
struct Meeting {
  const char* name = nullptr;
  int members = 0, arrived = 0;
  uint64_t generation = 0;
};

struct Lane {
  Fiber fiber;
  const uint64_t* waits = nullptr;  // to be another than `generation`
  uint64_t generation = 0;
  const char* waits_at = "";
  bool done = false;
  int barriers = 0;     // reached
  long long epoch = 0;  // barriers waited at, counted on from block to block
  // Accesses to LDS so far, of each place in the code; kept while somebody counts conflicts.
  std::vector<std::pair<const void*, int>> accesses;
};

struct Wave {
  Meeting meeting;
  alignas(64) char in[kMaxWidth * kMaxOperand];
  alignas(64) char out[kMaxWidth * kMaxOperand];
};

// Who last touched a word of LDS, between which barriers.
struct Word {
  long long write_epoch = -1, read_epoch = -1;
  int writer = -1;
  int reader = -1;  // reader -2: several waves
};

struct Range {
  const char *begin, *end;
  bool writable;
};

struct Machine {
  const Kernel* kernel;
  const void* arguments;
  long long block, blocks, begun = 0;
  int threads, width, waves, current, running;  // of all workgroups that run together
  int cluster = 1, acting = -1;                 // acting: the workgroup whose work is done now
  size_t lds_stride = 0;
  Fiber host;
  Lane lanes[kMaxThreads];
  Wave wave[kMaxThreads / 32];
  Meeting workgroup[kMaxCluster], together;
  std::vector<char> lds_store;
  char* lds;
  std::vector<Word> words;
  std::vector<Access> accesses;
  std::string error;
  // Of asynchronous kernels
  std::mt19937 random{20261201};
  std::map<int, Meeting> some;  // barriers of some lanes, by number
  struct Work {
    int number, rank;
    std::function<void()> work;
  };
  std::vector<Work> later;
  int works = 0;
};

Machine& machine() {
  static auto* m = new Machine;
  return *m;
}

std::vector<Range>& ranges() {
  static std::vector<Range> r;
  return r;
}

char* stacks() {
  static char* memory = [] {
    constexpr size_t each = kStackBytes + 4096;
    void* p = mmap(nullptr, each * kMaxThreads, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return static_cast<char*>(nullptr);
    for (int i = 0; i < kMaxThreads; ++i)  // a page below each stack stops an overflow
      mprotect(static_cast<char*>(p) + i * each, 4096, PROT_NONE);
    return static_cast<char*>(p);
  }();
  return memory;
}

bool runnable(const Lane& lane) {
  return !lane.done && (!lane.waits || *lane.waits != lane.generation);
}

void run_later(size_t which) {
  Machine& m = machine();
  const Machine::Work work = std::move(m.later[which]);
  m.later[which] = std::move(m.later.back());
  m.later.pop_back();
  const int acting = std::exchange(m.acting, work.rank);
  work.work();
  m.acting = acting;
}

// The next lane of an asynchronous kernel, -1 if none can run: of the same wave more often than
// not, so that some waves run far ahead of others, now and then after work of a unit.
int next_at_random(int self) {
  Machine& m = machine();
  if (!m.later.empty() && m.random() % 16 == 0) run_later(m.random() % m.later.size());
  const int own = self / m.width, start = static_cast<int>(m.random() % m.waves);
  const bool stay = m.random() % 64 != 0;
  for (int i = stay ? -1 : 0; i < m.waves; ++i) {
    const int wave = i < 0 ? own : (start + i) % m.waves;
    for (int l = 0; l < m.width; ++l) {
      const int t = wave * m.width + (self + 1 + l) % m.width;
      if (t != self && runnable(m.lanes[t])) return t;
    }
  }
  return runnable(m.lanes[self]) ? self : -1;
}

// Hands over to another lane: of the same wave if possible, so that one wave runs as far ahead of
// the others as its barriers let it. Returns when this lane may go on.
void yield() {
  Machine& m = machine();
  const int self = m.current, first = self / m.width * m.width;
  int next = -1;
  if (m.kernel->asynchronous) {
    next = next_at_random(self);
    while (next < 0 && m.running > 0 && !m.later.empty()) {
      run_later(m.random() % m.later.size());
      next = next_at_random(self);
    }
  }
  for (int i = 1; i < m.width && next < 0 && !m.kernel->asynchronous; ++i) {
    const int t = first + (self - first + i) % m.width;
    if (runnable(m.lanes[t])) next = t;
  }
  for (int i = 0; i < m.threads && next < 0 && !m.kernel->asynchronous; ++i) {
    const int t = (first + m.width + i) % m.threads;
    if (runnable(m.lanes[t])) next = t;
  }
  if (next == self) return;
  if (next < 0) {
    if (m.running > 0)
      fail("deadlock: lane %d waits at '%s', which some lanes never reach", self,
           m.lanes[self].waits ? m.lanes[self].waits_at : "its end");
    Fiber::change(m.lanes[self].fiber, m.host);
  }
  m.current = next;
  Fiber::change(m.lanes[self].fiber, m.lanes[next].fiber);
}

// True in the lane that completes the meeting; it then acts for all and calls conclude().
bool arrive(Meeting& meeting, const char* name) {
  if (meeting.arrived == 0) meeting.name = name;
  if (std::strcmp(meeting.name, name) != 0)
    fail("divergence: lane %d comes to '%s' while others of its wave are at '%s'",
         machine().current, name, meeting.name);
  if (++meeting.arrived == meeting.members) return true;
  Lane& lane = machine().lanes[machine().current];
  lane.waits = &meeting.generation;
  lane.generation = meeting.generation;
  lane.waits_at = name;
  yield();
  lane.waits = nullptr;
  return false;
}

void conclude(Meeting& meeting) {
  meeting.arrived = 0;
  ++meeting.generation;
}

void lane_body() {
  Machine& m = machine();
  m.kernel->entry(m.arguments);
  Lane& lane = m.lanes[m.current];
  lane.done = true;
  --m.running;
  // Waves that have ended no longer count at barriers; a lane that ends alone stops its wave.
  Meeting& meeting = m.wave[m.current / m.width].meeting;
  if (--meeting.members == 0) {
    Meeting& workgroup = m.workgroup[m.current / m.kernel->threads];
    workgroup.members -= m.width;
    if (workgroup.members > 0 && workgroup.arrived == workgroup.members) conclude(workgroup);
  } else if (meeting.arrived > 0) {
    fail("divergence: lane %d ended while others of its wave are at '%s'", m.current, meeting.name);
  }
  yield();
}

}  // namespace

int thread_index() { return machine().current % machine().kernel->threads; }
int wave_number() { return machine().current / machine().width; }
int wave_width() { return machine().width; }
int cluster_size() { return machine().cluster; }
int cluster_rank() {
  const Machine& m = machine();
  return m.acting >= 0 ? m.acting : m.current / m.kernel->threads;
}
long long block_index() { return machine().block + cluster_rank(); }
char* lds_of(int rank) { return machine().lds + rank * machine().lds_stride; }
char* lds() { return lds_of(cluster_rank()); }

void fail(const char* format, ...) {
  Machine& m = machine();
  char text[300];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  m.error = "block " + std::to_string(m.block) + ": " + text;
  Fiber::change(m.lanes[m.current].fiber, m.host);
  __builtin_unreachable();
}

void barrier() {
  Machine& m = machine();
  Lane& lane = m.lanes[m.current];
  if (lane.barriers++ == faults.dropped_barrier) return;
  Meeting& workgroup = m.workgroup[cluster_rank()];
  if (arrive(workgroup, "barrier")) conclude(workgroup);
  ++lane.epoch;
}

void barrier(int id, int lanes) {
  Meeting& meeting = machine().some[id + 100 * cluster_rank()];
  meeting.members = lanes;
  if (arrive(meeting, "barrier of some lanes")) conclude(meeting);
}

void cluster_barrier() {
  Meeting& meeting = machine().together;
  if (arrive(meeting, "cluster barrier")) conclude(meeting);
}

void await(Event& event, const char* name) {
  static_assert(sizeof event.signals == sizeof(uint64_t));
  Lane& lane = machine().lanes[machine().current];
  lane.waits = reinterpret_cast<const uint64_t*>(&event.signals);
  lane.generation = event.signals;
  lane.waits_at = name;
  yield();
  lane.waits = nullptr;
}
void signal(Event& event) { ++event.signals; }

int later(std::function<void()> work) {
  Machine& m = machine();
  m.later.push_back({++m.works, cluster_rank(), std::move(work)});
  return m.works;
}
void now(int work) {
  Machine& m = machine();
  for (size_t i = 0; i < m.later.size(); ++i)
    if (m.later[i].number == work) return run_later(i);
}
long long launched_blocks() { return machine().blocks; }
long long workgroups_begun() { return machine().begun; }
unsigned random() { return machine().random(); }

void collective(const char* name, const void* in, int in_size, void* out, int out_size,
                Collective compute, const void* function) {
  Machine& m = machine();
  if (in_size > kMaxOperand || out_size > kMaxOperand) fail("'%s': operand too large", name);
  const int lane = m.current % m.width;
  Wave& wave = m.wave[m.current / m.width];
  if (wave.meeting.members != m.width) fail("divergence: '%s' in a wave with ended lanes", name);
  std::memcpy(wave.in + lane * in_size, in, in_size);
  if (arrive(wave.meeting, name)) {
    compute(wave.in, wave.out, m.width, function);
    conclude(wave.meeting);
  }
  std::memcpy(out, wave.out + lane * out_size, out_size);
}

void check_lds(const void* address, int bytes, bool write) {
  Machine& m = machine();
  const std::ptrdiff_t offset = static_cast<const char*>(address) - lds();
  if (offset < 0 || offset + bytes > m.kernel->lds_bytes)
    fail("LDS access of %d bytes at %td is outside the %d bytes of LDS", bytes, offset,
         m.kernel->lds_bytes);
  if (offset % bytes != 0) fail("LDS access of %d bytes at %td is not aligned", bytes, offset);
  if (m.kernel->asynchronous) return;
  const int wave = m.current / m.width;
  const long long epoch = m.lanes[m.current].epoch;
  if (lds_recorder) {
    const void* place = __builtin_return_address(0);
    auto& counts = m.lanes[m.current].accesses;
    auto count = std::find_if(counts.begin(), counts.end(),
                              [&](const auto& each) { return each.first == place; });
    if (count == counts.end()) count = counts.insert(counts.end(), {place, 0});
    m.accesses.push_back(
        {wave, place, count->second++, m.current % m.width, static_cast<int>(offset), bytes});
  }
  for (std::ptrdiff_t i = offset / 4; i < (offset + bytes + 3) / 4; ++i) {
    Word& w = m.words[i];
    const bool after_write = w.write_epoch == epoch && w.writer != wave;
    const bool after_read = w.read_epoch == epoch && w.reader != wave;
    if (after_write || (write && after_read))
      fail("race in LDS: wave %d %s offset %td, wave %d %s it after the same barrier", wave,
           write ? "writes" : "reads", i * 4, after_write ? w.writer : w.reader,
           after_write ? "writes" : "reads");
    if (write) {
      w.write_epoch = epoch;
      w.writer = wave;
    } else {
      w.reader = w.read_epoch == epoch && w.reader != wave ? -2 : wave;
      w.read_epoch = epoch;
    }
  }
}

void check_global(const void* address, int bytes, bool write) {
  const auto* begin = static_cast<const char*>(address);
  for (const Range& r : ranges())
    if (begin >= r.begin && begin + bytes <= r.end && (r.writable || !write)) return;
  fail("lane %d %s %d bytes of memory that is not its own", machine().current,
       write ? "writes" : "reads", bytes);
}

void allow_memory(const void* begin, size_t bytes, bool writable) {
  const auto* b = static_cast<const char*>(begin);
  ranges().push_back({b, b + bytes, writable});
}

void clear_memory() { ranges().clear(); }

std::vector<const Kernel*>& kernels() {
  static std::vector<const Kernel*> list;
  return list;
}

std::string run(const Kernel& kernel, long long blocks, const void* arguments, int cluster) {
  Machine& m = machine();
  if (kernel.threads * cluster > kMaxThreads || kernel.threads % kernel.wave_width != 0 ||
      cluster > kMaxCluster || blocks % cluster != 0)
    return "bad workgroup size";
  if (!stacks()) return "no memory for stacks";
  m.kernel = &kernel;
  m.arguments = arguments;
  m.blocks = blocks;
  m.threads = kernel.threads * cluster;
  m.cluster = cluster;
  m.acting = -1;
  m.width = kernel.wave_width;
  m.waves = m.threads / m.width;
  m.error.clear();
  m.lds_stride = (kernel.lds_bytes + 63) / 64 * 64;
  m.lds_store.resize(m.lds_stride * cluster + 64);
  m.lds = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(m.lds_store.data()) + 63) / 64 * 64);
  m.words.assign(kernel.lds_bytes / 4 + 1, Word{});
  for (m.block = 0; m.block < blocks && m.error.empty(); m.block += cluster) {
    std::memset(m.lds, 0xff, m.lds_stride * cluster);
    m.running = m.threads;
    m.together = Meeting{};
    m.together.members = m.threads;
    for (Meeting& workgroup : m.workgroup) {
      workgroup = Meeting{};
      workgroup.members = kernel.threads;
    }
    ++m.begun;
    m.some.clear();
    m.later.clear();
    for (int w = 0; w < m.waves; ++w) {
      m.wave[w].meeting = Meeting{};
      m.wave[w].meeting.members = m.width;
    }
    for (int t = 0; t < m.threads; ++t) {
      m.lanes[t] = Lane{};
      m.lanes[t].epoch = m.block << 32;
      m.lanes[t].fiber.start(stacks() + t * (kStackBytes + 4096) + 4096, lane_body);
    }
    m.current = static_cast<int>(m.block % m.waves) * m.width;  // not always the same wave first
    Fiber::change(m.host, m.lanes[m.current].fiber);
    if (lds_recorder) report_accesses(m.accesses, m.width, *lds_recorder);
    if (m.error.empty() && !m.later.empty())
      m.error = "block " + std::to_string(m.block) + ": ends while copies are under way";
  }
  return m.error;
}

}  // namespace emulator
