// SPDX-License-Identifier: Apache-2.0
// Warpgroup matrix multiply (wgmma, sm_90a): d[64 x n] = a . b or d += a . b, k = 16, fp32
// accumulators. An instruction names every register of its accumulator, so there is one
// specialisation a width.
//
// Thread t of the warpgroup holds, in d[4j + 2i + c], row 16 (t / 32) + 8 i + t % 32 / 4, column
// 8j + 2 (t % 4) + c: the layout of mma.sync, so that two neighbouring column groups are the
// operand `a` of a following product.
#pragma once

#include "base/types.h"

namespace hstu::hopper {

#define HSTU_REGS_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define HSTU_REGS_1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HSTU_REGS_2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define HSTU_REGS_3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HSTU_REGS_4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define HSTU_REGS_5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define HSTU_REGS_6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define HSTU_REGS_7 \
  "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define HSTU_OUT_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HSTU_OUT_16(d, i) \
  HSTU_OUT_4(d, i), HSTU_OUT_4(d, i + 4), HSTU_OUT_4(d, i + 8), HSTU_OUT_4(d, i + 12)

#define HSTU_REGS_N32 HSTU_REGS_0
#define HSTU_OUT_N32(d) HSTU_OUT_16(d, 0)
#define HSTU_REGS_N64 HSTU_REGS_0 "," HSTU_REGS_1
#define HSTU_OUT_N64(d) HSTU_OUT_16(d, 0), HSTU_OUT_16(d, 16)
#define HSTU_REGS_N80 HSTU_REGS_0 "," HSTU_REGS_1 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define HSTU_OUT_N80(d) HSTU_OUT_16(d, 0), HSTU_OUT_16(d, 16), HSTU_OUT_4(d, 32), HSTU_OUT_4(d, 36)
#define HSTU_REGS_N96 HSTU_REGS_0 "," HSTU_REGS_1 "," HSTU_REGS_2
#define HSTU_OUT_N96(d) HSTU_OUT_16(d, 0), HSTU_OUT_16(d, 16), HSTU_OUT_16(d, 32)
#define HSTU_REGS_N128 HSTU_REGS_0 "," HSTU_REGS_1 "," HSTU_REGS_2 "," HSTU_REGS_3
#define HSTU_OUT_N128(d) \
  HSTU_OUT_16(d, 0), HSTU_OUT_16(d, 16), HSTU_OUT_16(d, 32), HSTU_OUT_16(d, 48)
#define HSTU_REGS_N160 HSTU_REGS_0 "," HSTU_REGS_1 "," HSTU_REGS_2 "," HSTU_REGS_3 "," HSTU_REGS_4
#define HSTU_OUT_N160(d) \
  HSTU_OUT_16(d, 0), HSTU_OUT_16(d, 16), HSTU_OUT_16(d, 32), HSTU_OUT_16(d, 48), HSTU_OUT_16(d, 64)
#define HSTU_REGS_N192 \
  HSTU_REGS_0 "," HSTU_REGS_1 "," HSTU_REGS_2 "," HSTU_REGS_3 "," HSTU_REGS_4 "," HSTU_REGS_5
#define HSTU_OUT_N192(d)                                                         \
  HSTU_OUT_16(d, 0), HSTU_OUT_16(d, 16), HSTU_OUT_16(d, 32), HSTU_OUT_16(d, 48), \
      HSTU_OUT_16(d, 64), HSTU_OUT_16(d, 80)
#define HSTU_REGS_N224                                                                        \
  HSTU_REGS_0 "," HSTU_REGS_1 "," HSTU_REGS_2 "," HSTU_REGS_3 "," HSTU_REGS_4 "," HSTU_REGS_5 \
              "," HSTU_REGS_6
#define HSTU_OUT_N224(d)                                                         \
  HSTU_OUT_16(d, 0), HSTU_OUT_16(d, 16), HSTU_OUT_16(d, 32), HSTU_OUT_16(d, 48), \
      HSTU_OUT_16(d, 64), HSTU_OUT_16(d, 80), HSTU_OUT_16(d, 96)
#define HSTU_REGS_N256                                                                        \
  HSTU_REGS_0 "," HSTU_REGS_1 "," HSTU_REGS_2 "," HSTU_REGS_3 "," HSTU_REGS_4 "," HSTU_REGS_5 \
              "," HSTU_REGS_6 "," HSTU_REGS_7
#define HSTU_OUT_N256(d)                                                         \
  HSTU_OUT_16(d, 0), HSTU_OUT_16(d, 16), HSTU_OUT_16(d, 32), HSTU_OUT_16(d, 48), \
      HSTU_OUT_16(d, 64), HSTU_OUT_16(d, 80), HSTU_OUT_16(d, 96), HSTU_OUT_16(d, 112)

// p0: operand number of the first operand after the accumulator.
#define HSTU_WGMMA(n, p0, p1, p2, p3, p4, p5, type)                                         \
  template <>                                                                               \
  struct Product<n, Dtype::HSTU_TYPE_NAME_##type> {                                         \
    HSTU_DEVICE static void shared(float* d, unsigned long long a, unsigned long long b,    \
                                   int add) {                                               \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p2                                    \
                   ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type   \
                   " {" HSTU_REGS_N##n "}, %" #p0 ", %" #p1 ", p, 1, 1, 0, 0;}"             \
                   : HSTU_OUT_N##n(d)                                                       \
                   : "l"(a), "l"(b), "r"(add));                                             \
    }                                                                                       \
    HSTU_DEVICE static void registers(float* d, const unsigned* a, unsigned long long b,    \
                                      int add) {                                            \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p5                                    \
                   ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type   \
                   " {" HSTU_REGS_N##n "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 \
                                       ", p, 1, 1, 1;}"                                     \
                   : HSTU_OUT_N##n(d)                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));         \
    }                                                                                       \
  };
#define HSTU_TYPE_NAME_bf16 bf16
#define HSTU_TYPE_NAME_f16 fp16

// shared:    both operands in shared memory, contiguous along k (rows of a: 64, rows of b: n).
// registers: a in registers, b in shared memory contiguous along its n columns.
// add: 0 starts the accumulator afresh.
template <int n, Dtype type>
struct Product;

HSTU_WGMMA(32, 16, 17, 18, 19, 20, 21, bf16)
HSTU_WGMMA(32, 16, 17, 18, 19, 20, 21, f16)
HSTU_WGMMA(64, 32, 33, 34, 35, 36, 37, bf16)
HSTU_WGMMA(64, 32, 33, 34, 35, 36, 37, f16)
HSTU_WGMMA(80, 40, 41, 42, 43, 44, 45, bf16)
HSTU_WGMMA(80, 40, 41, 42, 43, 44, 45, f16)
HSTU_WGMMA(96, 48, 49, 50, 51, 52, 53, bf16)
HSTU_WGMMA(96, 48, 49, 50, 51, 52, 53, f16)
HSTU_WGMMA(128, 64, 65, 66, 67, 68, 69, bf16)
HSTU_WGMMA(128, 64, 65, 66, 67, 68, 69, f16)
HSTU_WGMMA(160, 80, 81, 82, 83, 84, 85, bf16)
HSTU_WGMMA(160, 80, 81, 82, 83, 84, 85, f16)
HSTU_WGMMA(192, 96, 97, 98, 99, 100, 101, bf16)
HSTU_WGMMA(192, 96, 97, 98, 99, 100, 101, f16)
HSTU_WGMMA(224, 112, 113, 114, 115, 116, 117, bf16)
HSTU_WGMMA(224, 112, 113, 114, 115, 116, 117, f16)
HSTU_WGMMA(256, 128, 129, 130, 131, 132, 133, bf16)
HSTU_WGMMA(256, 128, 129, 130, 131, 132, 133, f16)

#undef HSTU_WGMMA
}  // namespace hstu::hopper
