/* SPDX-License-Identifier: Apache-2.0
 *
 * hstu-jit as a library: the C interface.
 *
 *   hstu_engine* engine = NULL;
 *   hstu_kernel* kernel = NULL;
 *   hstu_error* error = NULL;
 *   if (hstu_engine_create(NULL, &engine, &error) != HSTU_OK) ...
 *   if (hstu_prepare(engine, spec, strlen(spec), &kernel, &error) != HSTU_OK) ...
 *   hstu_forward call = {.size = sizeof call, .q = q, .k = k, ...};
 *   if (hstu_launch(kernel, &call, stream, &error) != HSTU_OK) ...
 *
 * Every function is safe to call from several threads. None aborts, exits, prints or throws. A
 * failing call returns a status and, where `error` is not NULL, an object that says what is wrong;
 * free it with hstu_error_free. Nothing of HIP appears here: device addresses and streams are
 * void*.
 *
 * After fork() the child may prepare with its parent's engine for the cpu device: it keeps the
 * kernels that were ready and makes others itself. It may destroy the engine. Launches on a GPU and
 * new modules there are not possible in such a child, as with any library over HIP or CUDA.
 */
#ifndef HSTU_JIT_H
#define HSTU_JIT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define HSTU_API __attribute__((visibility("default")))
#else
#define HSTU_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hstu_engine hstu_engine;
typedef struct hstu_kernel hstu_kernel;
typedef struct hstu_error hstu_error;

/* The values are those of the command line's exit codes. */
typedef enum {
  HSTU_OK = 0,
  HSTU_E_FAILED = 1,      /* none of the others */
  HSTU_E_ARGUMENT = 2,    /* a NULL or impossible argument of a call */
  HSTU_E_SPEC = 3,        /* the spec is invalid for every target */
  HSTU_E_UNSUPPORTED = 4, /* valid, but this device cannot run it */
  HSTU_E_COMPILE = 5,     /* no compiler, or it failed; the error's detail has its log */
  HSTU_E_DEVICE = 7,      /* no device, or a device call failed */
  HSTU_E_CACHE = 8,       /* the cache directory is unusable, or sealed and without the kernel */
  HSTU_E_TIMEOUT = 9,
  HSTU_E_INTERNAL = 70
} hstu_status;

typedef enum {
  HSTU_CACHE_READ_WRITE = 0,
  HSTU_CACHE_READ_ONLY = 1,
  HSTU_CACHE_OFF = 2,
  HSTU_CACHE_SEALED = 3 /* a miss is HSTU_E_CACHE: no kernel is ever compiled. Where neither a
                           pinned bundle answers nor the compiler is remembered, it is started once
                           to learn its identity. */
} hstu_cache_mode;

/* Zero means the default everywhere. Set `size` to sizeof(hstu_options): a program built with an
 * older header, whose structure ends earlier, gets the defaults for the rest.
 *
 * The environment adds what belongs to the machine and not to the program: HSTU_JIT_BUNDLES (more
 * bundles), HSTU_JIT_REMOTE and its companions (a remote cache; secrets are never options),
 * HSTU_JIT_CACHE_SIZE, HSTU_JIT_RECORD; `hstu-jit environment` lists all. What is wrong with those
 * is one warning on the log, and the engine goes on without. */
typedef struct {
  size_t size;
  const char* device;    /* "auto" (default): the first GPU, else this host's processor */
  const char* cache_dir; /* default: see `hstu-jit environment` */
  int cache_mode;        /* hstu_cache_mode */
  uint32_t compile_timeout_ms;
  /* Bundles to read before the cache directory: "a.hjb:b.hjb@sha256:DIGEST". One with its digest
   * serves whatever compiler this machine has; one that cannot be used is HSTU_E_CACHE. */
  const char* bundles;
} hstu_options;

HSTU_API const char* hstu_version(void);

/* Opens a device and the kernel cache. `options` may be NULL. */
HSTU_API hstu_status hstu_engine_create(const hstu_options* options, hstu_engine** engine,
                                        hstu_error** error);
/* Kernels prepared by the engine stay usable until they are released. */
HSTU_API void hstu_engine_destroy(hstu_engine* engine);

/* A kernel for the structure of `spec` (JSON of one problem, `length` bytes): dtype, head dims,
 * activation, layout and which mask features exist. Its lengths, window sizes and scales do not
 * matter here: they are given to each launch. But sm_90a has kernels of their own for windows of up
 * to 16 keys (8 if not causal) in every group, without context_len and minfull_len: they compute
 * wider ones rightly and slowly, so prepare with the widest window you launch with. May compile
 * (seconds); the same structure asked for again comes from memory. */
HSTU_API hstu_status hstu_prepare(hstu_engine* engine, const char* spec, size_t length,
                                  hstu_kernel** kernel, hstu_error** error);
HSTU_API void hstu_kernel_release(hstu_kernel* kernel);

/* JSON: name, key, device, target, source (memory, bundle, local, remote, compiled), tile. The
 * string belongs to the kernel. */
HSTU_API const char* hstu_kernel_info(const hstu_kernel* kernel);

/* What the engine did so far, as JSON (schema hstu-jit/engine-stats/1): requests, hits by layer,
 * misses by layer and reason, compiles, waits, publishes. Free `*json` with hstu_free. */
HSTU_API hstu_status hstu_engine_stats(hstu_engine* engine, char** json, hstu_error** error);
HSTU_API void hstu_free(void* memory);

/* Element strides of one tensor; the last dimension has stride 1. On GPUs they are multiples of 8.
 * In the jagged layout `batch` is ignored. */
typedef struct {
  int64_t batch, seq, head;
} hstu_strides;

/* Mask lengths and output scale of one group of sequences. */
typedef struct {
  int32_t local_len;   /* window: this many keys back, inclusive; 0: none */
  int32_t context_len; /* contextual tokens in front of the history */
  int32_t minfull_len; /* last rows of the history that ignore the window */
  float attn_scale;    /* multiplies the output; the default 1/max_seqlen is the caller's to give */
} hstu_group;

/* One call. Pointers are device addresses on a GPU and host addresses on cpu. Set `size` to
 * sizeof(hstu_forward). Lengths are physical: context + history + targets. */
typedef struct {
  size_t size;
  const void* q; /* batched [batch, seqlen_q, heads, head_dim_qk], jagged [tokens, heads, ...] */
  const void* k;
  const void* v;
  void* o;
  float* lse; /* [.., seqlen_q, heads]; needed if the spec says training softmax */
  const int32_t* seq_offsets_q;  /* jagged: batch + 1 entries */
  const int32_t* seq_offsets_kv; /* jagged; may be NULL for self attention: seq_offsets_q */
  const int32_t* num_targets;    /* batch entries; needed if the spec has targets */
  const hstu_group* groups;      /* group mode: one per group, on the device */
  hstu_strides q_strides, k_strides, v_strides, o_strides, lse_strides; /* all 0: dense */
  hstu_group mask;                                                      /* outside group mode */
  float alpha; /* logit scale; 0: 1/sqrt(head_dim_qk) */
  int32_t batch, heads;
  int32_t seqlen_q; /* batched: every length; jagged: the longest */
  int32_t seqlen_kv;
  int32_t num_groups; /* group mode: batch is divisible by it */
  /* Jagged: tokens of all sequences, the last entries of the offsets. Needed on NVIDIA's Hopper,
   * not looked at elsewhere. */
  int64_t tokens_q, tokens_kv;
} hstu_forward;

/* Enqueues the kernel on `stream` (NULL: the default stream). Never compiles, loads, allocates
 * device memory or waits, so it is legal while a graph is captured. On cpu it returns when done. */
HSTU_API hstu_status hstu_launch(hstu_kernel* kernel, const hstu_forward* call, void* stream,
                                 hstu_error** error);

HSTU_API const char* hstu_error_message(const hstu_error* error); /* one line */
HSTU_API const char* hstu_error_pointer(const hstu_error* error); /* JSON pointer, or "" */
HSTU_API const char* hstu_error_detail(const hstu_error* error);  /* compiler log, or "" */
HSTU_API void hstu_error_free(hstu_error* error);

#ifdef __cplusplus
}
#endif
#endif
