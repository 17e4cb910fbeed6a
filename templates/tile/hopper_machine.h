// SPDX-License-Identifier: Apache-2.0
// The instructions of sm_90a that the Hopper kernels use beyond those of tile/nvidia_machine.h:
// barriers in shared memory, tensor copies, warpgroup products and register hand-over.
#pragma once

#include "attention/arguments.h"
#include "base/types.h"
#include "tile/nvidia_machine.h"

namespace hstu::hopper {

// ---- barriers in shared memory (mbarrier), named by their 32-bit shared address -----------------
HSTU_DEVICE void barrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
// Makes initialised barriers known to the copy engine.
HSTU_DEVICE void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
HSTU_DEVICE void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives and lets the phase wait for `bytes` of tensor copies.
HSTU_DEVICE void arrive_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Until the phase of this parity is over. A fresh barrier is in phase 0: waiting for parity 1
// returns at once.
HSTU_DEVICE void wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{.reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1, 0x989680; "
      "@p bra DONE; bra WAIT; DONE:}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// ---- tensor copies ------------------------------------------------------------------------------
// A box of the map, at these coordinates (element, token, head, batch), to shared memory.
HSTU_DEVICE void copy_box(unsigned to, const TensorMap* map, int element, int token, int head,
                          int batch, unsigned barrier, unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
      "l"(map), "r"(element), "r"(token), "r"(head), "r"(batch), "r"(barrier), "l"(policy)
      : "memory");
}
// Back again: `from` shared memory, which may be used anew when `boxes_read`. Both calls speak of
// the boxes this thread wrote; what wrote shared memory needs a proxy_fence before.
HSTU_DEVICE void write_box(const TensorMap* map, int element, int token, int head, int batch,
                           unsigned from) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
          map),
      "r"(element), "r"(token), "r"(head), "r"(batch), "r"(from)
      : "memory");
}
HSTU_DEVICE void boxes_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
HSTU_DEVICE void boxes_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
HSTU_DEVICE void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
HSTU_DEVICE unsigned long long keep_in_l2() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
HSTU_DEVICE unsigned long long pass_through_l2() {
  unsigned long long policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// ---- warpgroups ---------------------------------------------------------------------------------
template <int registers>
HSTU_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
HSTU_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
// Products issued after it see the registers written before it.
HSTU_DEVICE void product_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
HSTU_DEVICE void product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most `pending` committed groups are still under way.
template <int pending>
HSTU_DEVICE void product_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// Keeps the compiler from moving work on these registers across this place.
template <int count>
HSTU_DEVICE void pin(float* x) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int count>
HSTU_DEVICE void pin(unsigned* x) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(x[i])::"memory");
}
// Gives them some value, so that none of before has to be kept for a product that starts afresh.
template <int count>
HSTU_DEVICE void define(float* x) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "=f"(x[i])::"memory");
}
// A barrier of the warpgroup's 128 threads; id 1 to 15.
HSTU_DEVICE void warpgroup_barrier(int id) {
  asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}
// Shared memory written by this thread becomes visible to products and tensor copies.
HSTU_DEVICE void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Descriptor of an operand in shared memory with the copy engine's 128-byte swizzle, contiguous
// along k: groups of 8 rows 1024 bytes apart. A step of 16 along k adds 2.
HSTU_DEVICE unsigned long long along_k(unsigned address) {
  return (address & 0x3ffffu) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
// The same, contiguous along n: panels of 64 columns `panel_bytes` apart. 16 along k add 128.
HSTU_DEVICE unsigned long long along_n(unsigned address, int panel_bytes) {
  return (address & 0x3ffffu) >> 4 | static_cast<unsigned long long>(panel_bytes >> 4) << 16 |
         64ull << 32 | 1ull << 62;
}

// ---- clusters: workgroups of one launch that reach each other's shared memory
// --------------------
HSTU_DEVICE int cluster_blocks() {
  int x;
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(x));
  return x;
}
HSTU_DEVICE int cluster_rank() {
  int x;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(x));
  return x;
}
HSTU_DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The same address in the shared memory of another workgroup of the cluster.
HSTU_DEVICE unsigned at_rank(unsigned address, int rank) {
  unsigned x;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(x) : "r"(address), "r"(rank));
  return x;
}
HSTU_DEVICE void arrive_at_rank(unsigned remote) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote)
               : "memory");
}
HSTU_DEVICE void wait_of_cluster(unsigned barrier, unsigned parity) {
  asm volatile(
      "{.reg .pred p; WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1, "
      "0x989680; @p bra DONE; bra WAIT; DONE:}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Four words to another workgroup's memory; counted by the barrier there, 16 bytes.
HSTU_DEVICE void send(unsigned remote, float a, float b, float c, float d, unsigned barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(remote),
      "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
      : "memory");
}

// ---- lanes --------------------------------------------------------------------------------------
HSTU_DEVICE float tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Read anew each time, so that nothing worked out from it is kept for later.
HSTU_DEVICE int thread_again() {
  int x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}
HSTU_DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
HSTU_DEVICE int sum_of_lanes(int x) { return __reduce_add_sync(0xffffffffu, x); }
HSTU_DEVICE int max_of_lanes(int x) { return __reduce_max_sync(0xffffffffu, x); }
HSTU_DEVICE unsigned lanes_where(bool x) { return __ballot_sync(0xffffffffu, x); }
HSTU_DEVICE int of_lane(int x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
HSTU_DEVICE int count_bits(unsigned x) { return __popc(x); }
HSTU_DEVICE int first_bit(unsigned x) { return __ffs(static_cast<int>(x)) - 1; }
// Bits [first, end), which lie between 0 and 32; none where first >= end.
HSTU_DEVICE unsigned bits(int first, int end) {
  unsigned x;
  asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(x) : "r"(first), "r"(max_of(end - first, 0)));
  return x;
}
HSTU_DEVICE unsigned shuffle_xor(unsigned x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
HSTU_DEVICE void warp_barrier() { __syncwarp(); }
HSTU_DEVICE int blocks() { return static_cast<int>(gridDim.x); }
HSTU_DEVICE unsigned add_to(unsigned* counter, unsigned x) { return atomicAdd(counter, x); }
HSTU_DEVICE void device_fence() { __threadfence(); }
// Four 8x8 matrices of 16-bit values to shared memory: lane 8m + r names the address of row r of
// matrix m; y[m] holds row lane / 4, columns 2 (lane % 4) and the next.
HSTU_DEVICE void store_matrices(unsigned row, const unsigned (&y)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3])
               : "memory");
}
HSTU_DEVICE void store_quad(unsigned short* to, const nvidia::Quad& q) {
  *reinterpret_cast<uint4*>(to) = {q.x, q.y, q.z, q.w};
}
// The same where it stands in a loop that is not unrolled: an assignment becomes four stores there.
HSTU_DEVICE void store_quad_in_loop(unsigned short* to, const nvidia::Quad& q) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(q.x), "r"(q.y), "r"(q.z), "r"(q.w)
               : "memory");
}
// Dynamic shared memory, whose start the driver aligns to 1024 bytes at most by luck: the caller
// rounds up and the plan asks for 1024 bytes more.
HSTU_DEVICE char* dynamic_shared() {
  extern __shared__ __align__(1024) char given[];
  return given;
}

}  // namespace hstu::hopper
