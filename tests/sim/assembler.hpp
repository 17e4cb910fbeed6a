// SPDX-License-Identifier: Apache-2.0
// AMD code objects made while a test runs: from assembly by clang's integrated assembler, from HIP
// by clang or hipRTC.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hstu::test {

// What a kernel descriptor and the metadata say about a kernel.
struct KernelForm {
  int code_object = 5;  // ABI version: 4 or 5
  int lds = 0, scratch = 0;
  // Bytes of explicit arguments: pointers, eight bytes each.
  int arguments = 24;
  int vgprs = 128;          // a multiple of 8; as many AGPRs again on CDNA
  int sgprs = 100;          // not counting VCC and the like
  int denormals_32 = 3;     // 3: kept, 0: flushed
  int denormals_16_64 = 3;  // the same
  bool ieee = true;         // as compilers set it; gfx12 has no such mode
  int work_item_ids = 0;    // dimensions of v0, minus one
  bool workgroup_id_y = false, workgroup_id_z = false;
  int max_workgroup = 1024;
};

bool is_wave32(const std::string& target);  // gfx11 and later as our compilers build for them
bool is_cdna(const std::string& target);
bool is_gfx12(const std::string& target);

// Kernel "probe" around `body`. On entry s[0:1] is the address of the arguments, s2 (ttmp9 on
// gfx12) the workgroup's number, v0 the work-item's (10 bits each where packed). `s_endpgm` follows
// the body. Nothing where no assembler is; the assembler's complaint as a failed test.
std::optional<std::string> assemble(const std::string& target, const std::string& body,
                                    const KernelForm& form);

// What the target's assembler says to one line; empty when it takes it.
std::string assembler_complaint(const std::string& target, const std::string& code);

// HIP without headers; `options` after those that every compile has. Kernels begin with KERNEL(n)
// for workgroups of n.
std::optional<std::string> clang_kernel(const std::string& target, const std::string& source,
                                        const std::vector<std::string>& options);
std::optional<std::string> hiprtc_kernel(const std::string& target, const std::string& source);

// Counted by whoever reads the test's output.
void skip(const std::string& test, const std::string& reason);

}  // namespace hstu::test
