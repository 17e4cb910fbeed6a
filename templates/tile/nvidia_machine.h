// SPDX-License-Identifier: Apache-2.0
// The NVIDIA instructions the tile layer uses (sm_80 and later), one small function each, so that
// tile/nvidia.h itself is plain C++ and can run over an emulation of these functions.
#pragma once

#include "base/types.h"

namespace hstu::nvidia {

HSTU_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
// Volatile, so that what follows from it can be worked out twice instead of kept in registers.
HSTU_DEVICE long long block() {
  unsigned x;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
  return x;
}

// The workgroup's shared memory: declared here, or (dynamic) given at launch.
template <int bytes, bool dynamic>
HSTU_DEVICE char* workgroup_lds() {
  if constexpr (dynamic) {
    extern __shared__ __align__(16) char given[];
    return given;
  } else {
    __shared__ __align__(16) char fixed[bytes];
    return fixed;
  }
}

// Value of the warp's first lane; tells the compiler that it is the same in all of them.
HSTU_DEVICE int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }
HSTU_DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
HSTU_DEVICE void barrier() { __syncthreads(); }

HSTU_DEVICE float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
HSTU_DEVICE float log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
HSTU_DEVICE float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two floats rounded to nearest even; `low` goes to the low half.
template <Dtype type>
HSTU_DEVICE unsigned pack(float low, float high) {
  unsigned y;
  if constexpr (type == Dtype::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

// Two neighbouring 16-bit values in device memory; 4-byte aligned.
HSTU_DEVICE unsigned load_pair(const unsigned short* p) {
  return __ldg(reinterpret_cast<const unsigned*>(p));
}
HSTU_DEVICE void store_pair(unsigned short* p, unsigned x) { *reinterpret_cast<unsigned*>(p) = x; }

// Shared memory is addressed by byte offsets in its own 32-bit space.
HSTU_DEVICE unsigned shared_address(const char* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Four words of an operand, 16-byte aligned in shared memory.
struct Quad {
  unsigned x, y, z, w;
};
HSTU_DEVICE Quad load_shared(unsigned from) {
  Quad q;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
               : "r"(from));
  return q;
}
HSTU_DEVICE void store_shared(unsigned to, const Quad& q) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(q.x), "r"(q.y), "r"(q.z),
               "r"(q.w)
               : "memory");
}

// Starts copying 16 bytes to shared memory; writes zeros, and reads nothing, if !exists.
HSTU_DEVICE void copy_async(unsigned to, const unsigned short* from, bool exists) {
  const int bytes = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}
// Waits for all copies this lane has started.
HSTU_DEVICE void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// 8x8 matrices of 16-bit values out of shared memory. Lane 8m+r names the address of row r of
// matrix m. Afterwards y[m] holds row lane/4, columns 2*(lane%4) and the next; transposed: column
// lane/4, rows 2*(lane%4) and the next.
HSTU_DEVICE void load_matrices(unsigned (&y)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3])
               : "r"(row));
}
HSTU_DEVICE void load_matrices(unsigned (&y)[2], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(y[0]), "=r"(y[1])
               : "r"(row));
}
HSTU_DEVICE void load_matrices_transposed(unsigned (&y)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3])
               : "r"(row));
}
HSTU_DEVICE void load_matrices_transposed(unsigned (&y)[2], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(y[0]), "=r"(y[1])
               : "r"(row));
}

// c[16x8] += a[16x16] . b[16x8], operands in the layouts of PTX's mma.m16n8k16.
template <Dtype type>
HSTU_DEVICE void multiply_add(float (&c)[4], const Quad& a, unsigned b0, unsigned b1) {
  if constexpr (type == Dtype::bf16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// c[16x8] += a[16x8] . b[8x8], operands in the layouts of PTX's mma.m16n8k8.
template <Dtype type>
HSTU_DEVICE void multiply_add(float (&c)[4], unsigned a0, unsigned a1, unsigned b0) {
  if constexpr (type == Dtype::bf16)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

}  // namespace hstu::nvidia
