// SPDX-License-Identifier: Apache-2.0
// The LDS of a workgroup: its bytes, and for each byte who touched it since the last barrier.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace hstu::jit::sim {

struct LdsTouch;

// How instructions touch bytes. Atomics of different waves do not race with one another.
enum class LdsUse : uint8_t { read, write, atomic };

// What is wrong with an access; nothing when it is fine.
enum class LdsProblem : uint8_t { none, outside, uninitialised, race };

class Lds {
 public:
  // `bytes` bytes, poisoned, untouched.
  void reset(uint32_t bytes);
  uint32_t size() const { return size_; }
  uint8_t* data() { return bytes_.data(); }

  // Notes that a wave uses [address, address + bytes) and says what is wrong with that.
  LdsProblem use(LdsUse how, uint64_t address, uint32_t bytes, int wave);
  // The same for what nearly all accesses are: `bytes` bytes (a multiple of 4) that others read at
  // most since the last barrier. False: ask `use`, nothing was noted.
  template <uint32_t bytes>
  bool use_own(LdsUse how, uint32_t address, int wave);

  // The wave that touched the first byte of the range that conflicts with `wave`, or -1.
  int conflicting_wave(LdsUse how, uint64_t address, uint32_t bytes, int wave) const;

  // All waves passed a barrier. What they issued and did not wait for is noted again after it.
  void new_epoch();
  void carry_over(const LdsTouch& touch, int wave);

  // Global memory loaded to LDS: until `arrived`, no use of the bytes is right, not even the
  // wave's own.
  void arriving(uint32_t address, uint32_t bytes, int wave);
  void arrived(const LdsTouch& touch, int wave);

 private:
  template <typename Word>
  LdsProblem use_word(LdsUse how, uint32_t address, int wave);

  uint32_t size_ = 0;
  std::vector<uint8_t> bytes_;
  // Per byte: who wrote it and who read it since the last barrier. 0 nobody; w + 1 one wave;
  // kAtomic + w + 1 one wave, by atomics only; kArriving + w + 1 a load of one wave; kSeveral more
  // than one (readers, or atomics).
  std::vector<uint8_t> writer_, reader_;
  std::vector<uint8_t> written_;  // 0xff once written
};

template <uint32_t bytes>
bool Lds::use_own(LdsUse how, uint32_t address, int wave) {
  if (address > size_ || size_ - address < bytes) return false;
  const uint32_t mine = static_cast<uint32_t>(wave + 1) * 0x01010101u;
  constexpr uint32_t kWords = bytes / 4;
  uint32_t writer[kWords], reader[kWords], written[kWords], own[kWords], odd = 0;
  std::memcpy(writer, &writer_[address], bytes);
  std::memcpy(reader, &reader_[address], bytes);
  std::memcpy(written, &written_[address], bytes);
  for (uint32_t w = 0; w < kWords; ++w) {
    odd |= (writer[w] != 0) & (writer[w] != mine);
    if (how == LdsUse::read) {
      // Other readers do no harm; bytes of one word nearly always have the same ones.
      odd |= (written[w] != ~0u) | (reader[w] != std::rotl(reader[w], 8));
      own[w] = ((reader[w] == 0) | (reader[w] == mine)) ? mine : ~0u;
    } else {
      odd |= (reader[w] != 0) & (reader[w] != mine);
      own[w] = mine;
      written[w] = ~0u;
    }
  }
  if (odd != 0) return false;
  if (how == LdsUse::read) {
    std::memcpy(&reader_[address], own, bytes);
    return true;
  }
  std::memcpy(&writer_[address], own, bytes);
  std::memcpy(&written_[address], written, bytes);
  return true;
}

// The phases that an access needs. `address` has the byte of each lane; `bytes` is its width;
// `banks` of 4 bytes. `minimum` is what it would take if no two lanes of a phase met in a bank.
// Lanes that share a phase: of b128 on 64 banks {0-3, 12-15, 20-27}, {4-11, 16-19, 28-31} and the
// same of the upper half (measured on MI355X); elsewhere as many in sequence as fill the banks.
struct LdsPhases {
  uint32_t taken = 0, minimum = 0;
};
LdsPhases count_lds_phases(const uint32_t* address, uint64_t lanes, int width, int bytes,
                           int banks);

}  // namespace hstu::jit::sim
