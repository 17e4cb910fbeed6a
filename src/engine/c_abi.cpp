// SPDX-License-Identifier: Apache-2.0
// The C interface over the engine. No exception passes these functions.
#include <fmt/format.h>
#include <hstu_jit/hstu_jit.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/log.hpp"
#include "cache/bundle.hpp"
#include "device/device.hpp"
#include "engine/engine.hpp"
#include "engine/forward_launch.hpp"
#include "spec/parse.hpp"

using hstu::ForwardArguments;
using hstu::GroupArguments;
using hstu::Strides;
using hstu::jit::Device;
using hstu::jit::Engine;
using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::Result;
using hstu::jit::Status;

// Launches copy groups as they are.
static_assert(sizeof(hstu_group) == sizeof(GroupArguments));
static_assert(offsetof(hstu_group, attn_scale) == offsetof(GroupArguments, attn_scale));

struct hstu_error {
  Error error;
};

// The device outlives the engine while kernels on it live.
struct hstu_engine {
  std::shared_ptr<Device> device;
  std::unique_ptr<Engine> engine;
};

struct hstu_kernel {
  std::shared_ptr<Device> device;
  std::unique_ptr<hstu::jit::DeviceKernel> loaded;
  std::unique_ptr<hstu::jit::ForwardLauncher> launcher;
  hstu::jit::Plan plan;
  std::string info;
  int alignment = 1;
};

namespace {

hstu_status fail(Error error, hstu_error** out) {
  const auto status = static_cast<hstu_status>(hstu::jit::exit_code(error.kind));
  if (out) *out = new (std::nothrow) hstu_error{std::move(error)};
  return status;
}

Error argument_error(std::string message) {
  return Error{ErrorKind::kUsage, std::move(message), "", ""};
}

template <typename Body>
hstu_status guarded(hstu_error** error, Body&& body) noexcept {
  if (error) *error = nullptr;
  try {
    Status s = body();
    return s ? HSTU_OK : fail(std::move(s).error(), error);
  } catch (const std::bad_alloc&) {
    return HSTU_E_FAILED;
  } catch (const std::exception& e) {
    try {
      return fail(Error{ErrorKind::kInternal, std::string("internal error: ") + e.what(), "", ""},
                  error);
    } catch (...) {
      return HSTU_E_INTERNAL;
    }
  } catch (...) {
    return HSTU_E_INTERNAL;
  }
}

Status create(const hstu_options* given, hstu_engine** out) {
  if (!out) return argument_error("hstu_engine_create: engine is NULL");
  *out = nullptr;
  hstu_options options{};
  if (given) {
    constexpr size_t kFirst = offsetof(hstu_options, bundles);  // what the first release had
    if (given->size < kFirst)
      return argument_error(fmt::format(
          "hstu_engine_create: options.size is {}, at least {} expected", given->size, kFirst));
    std::memcpy(&options, given, std::min(given->size, sizeof options));
  }
  if (options.cache_mode < HSTU_CACHE_READ_WRITE || options.cache_mode > HSTU_CACHE_SEALED)
    return argument_error(
        fmt::format("hstu_engine_create: cache_mode {} is unknown", options.cache_mode));
  hstu::jit::EngineOptions engine_options;
  if (options.cache_dir) engine_options.cache_dir = options.cache_dir;
  if (options.bundles) engine_options.bundles = hstu::cache::split_bundle_list(options.bundles);
  engine_options.cache_mode = static_cast<hstu::cache::Mode>(options.cache_mode);
  if (options.compile_timeout_ms > 0)
    engine_options.compile.timeout = std::chrono::milliseconds(options.compile_timeout_ms);
  Result<std::unique_ptr<Device>> device =
      hstu::jit::open_device(options.device ? options.device : "auto");
  if (!device) return std::move(device).error();
  Result<std::unique_ptr<Engine>> engine = Engine::create(engine_options);
  if (!engine) return std::move(engine).error();
  if (const std::string& warning = (*engine)->cache().warning(); !warning.empty())
    hstu::jit::log_warn(warning);
  *out = new hstu_engine{std::shared_ptr<Device>(std::move(*device)), std::move(*engine)};
  return {};
}

Status prepare(hstu_engine* engine, const char* spec, size_t length, hstu_kernel** out) {
  if (!out) return argument_error("hstu_prepare: kernel is NULL");
  *out = nullptr;
  if (!engine || !spec) return argument_error("hstu_prepare: engine or spec is NULL");
  Result<hstu::jit::ParsedSpec> parsed = hstu::jit::parse_spec({spec, length}, ".");
  if (!parsed) return std::move(parsed).error();
  if (parsed->problems.size() != 1)
    return argument_error(fmt::format("hstu_prepare: the spec holds {} problems, one expected",
                                      parsed->problems.size()));
  const hstu::jit::Problem& problem = parsed->problems.front();
  Result<hstu::jit::Geometry> geometry = hstu::jit::make_geometry(problem);
  if (!geometry) return std::move(geometry).error();
  Result<hstu::jit::Prepared> prepared = engine->engine->prepare(
      problem, *geometry, engine->device->target(), hstu::jit::PlanDetail::launch);
  if (!prepared) return std::move(prepared).error();
  Result<std::unique_ptr<hstu::jit::DeviceKernel>> loaded =
      engine->device->load(prepared->kernel->object, prepared->kernel->entry);
  if (!loaded) return std::move(loaded).error();
  auto kernel = std::make_unique<hstu_kernel>();
  kernel->device = engine->device;
  kernel->loaded = std::move(*loaded);
  kernel->plan = prepared->plan;
  Result<std::unique_ptr<hstu::jit::ForwardLauncher>> launcher =
      hstu::jit::ForwardLauncher::create(*engine->device, prepared->plan);
  if (!launcher) return std::move(launcher).error();
  kernel->launcher = std::move(*launcher);
  kernel->alignment = kernel->plan.target.vendor == hstu::jit::Vendor::cpu ? 1 : 8;
  kernel->info = nlohmann::ordered_json{{"name", prepared->kernel->entry},
                                        {"key", prepared->kernel->key.request},
                                        {"device", engine->device->name()},
                                        {"target", kernel->plan.target.name},
                                        {"source", hstu::jit::kernel_origin_name(prepared->origin)},
                                        {"compile_ms", prepared->compile_ms},
                                        {"prepare_ms", prepared->prepare_ms},
                                        {"tile_m", kernel->plan.config.tile_m},
                                        {"tile_n", kernel->plan.config.tile_n}}
                     .dump();
  *out = kernel.release();
  return {};
}

Status stats(hstu_engine* engine, char** out) {
  if (!out) return argument_error("hstu_engine_stats: json is NULL");
  *out = nullptr;
  if (!engine) return argument_error("hstu_engine_stats: engine is NULL");
  const std::string json = engine->engine->statistics_json();
  char* copy = static_cast<char*>(std::malloc(json.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, json.c_str(), json.size() + 1);
  *out = copy;
  return {};
}

bool all_zero(const hstu_strides& s) { return s.batch == 0 && s.seq == 0 && s.head == 0; }

// Dense strides of [batch, seqlen, heads, dim] where the caller gives none.
Result<Strides> strides_of(const char* name, const hstu_strides& given, int64_t seqlen,
                           int64_t heads, int64_t dim, bool jagged, int alignment) {
  Strides s{given.batch, given.seq, given.head};
  if (all_zero(given)) s = {seqlen * heads * dim, heads * dim, dim};
  if (jagged) s.batch = 0;
  if (s.batch < 0 || s.seq < 0 || s.head < 0)
    return argument_error(fmt::format("hstu_launch: {}_strides has a negative stride", name));
  if (alignment > 1 && dim > 1 && s.seq > (int64_t{1} << 23))
    return argument_error(fmt::format("hstu_launch: {}_strides.seq passes 2^23 elements", name));
  if (s.batch % alignment || s.seq % alignment || s.head % alignment)
    return argument_error(
        fmt::format("hstu_launch: {}_strides must be multiples of {} elements on this device", name,
                    alignment));
  return s;
}

// The launch path stays free of allocation unless it fails.
Status launch(hstu_kernel* kernel, const hstu_forward* call, void* stream) {
  if (!kernel || !call) return argument_error("hstu_launch: kernel or call is NULL");
  if (call->size < sizeof(hstu_forward))
    return argument_error(fmt::format("hstu_launch: call.size is {}, at least {} expected",
                                      call->size, sizeof(hstu_forward)));
  const hstu::jit::ForwardConfig& c = kernel->plan.config;
  if (call->batch < 0 || call->heads < 1 || call->seqlen_q < 0 || call->seqlen_kv < 0)
    return argument_error("hstu_launch: batch, heads or a length is negative, or heads is 0");
  if (call->batch == 0 || call->seqlen_q == 0) return {};
  if (!call->q || !call->o || (call->seqlen_kv > 0 && (!call->k || !call->v)))
    return argument_error("hstu_launch: q, k, v or o is NULL");
  if (c.write_lse && !call->lse)
    return argument_error("hstu_launch: this kernel writes lse, NULL given");
  if (c.jagged && (!call->seq_offsets_q || (c.mask.cross && !call->seq_offsets_kv)))
    return argument_error("hstu_launch: the jagged layout needs seq_offsets");
  if (!c.mask.targets && call->num_targets)
    return argument_error("hstu_launch: num_targets given, but the prepared spec has no targets");
  if (c.mask.targets && !call->num_targets)
    return argument_error("hstu_launch: the spec has targets, num_targets is NULL");
  if (c.grouped && (!call->groups || call->num_groups < 1 || call->batch % call->num_groups != 0))
    return argument_error(
        "hstu_launch: group mode needs groups, and batch divisible by num_groups");
  const hstu_group& m = call->mask;
  if (!c.grouped && ((m.local_len > 0 && !c.mask.local) || (m.context_len > 0 && !c.mask.context) ||
                     (m.local_len > 0 && m.minfull_len > 0 && !c.mask.minfull)))
    return argument_error(
        "hstu_launch: the call uses a mask feature the prepared spec does not have");
  if (m.local_len < 0 || m.context_len < 0 || m.minfull_len < 0)
    return argument_error("hstu_launch: a mask length is negative");

  if (kernel->alignment > 1)
    for (const void* address : {call->q, call->k, call->v, static_cast<const void*>(call->o)})
      if (reinterpret_cast<uintptr_t>(address) % 16 != 0)
        return argument_error("hstu_launch: q, k, v and o must be 16-byte aligned on this device");

  ForwardArguments a{};
  a.q = static_cast<const unsigned short*>(call->q);
  a.k = static_cast<const unsigned short*>(call->k);
  a.v = static_cast<const unsigned short*>(call->v);
  a.o = static_cast<unsigned short*>(call->o);
  a.lse = call->lse;
  a.seq_offsets_q = call->seq_offsets_q;
  a.seq_offsets_kv = call->seq_offsets_kv ? call->seq_offsets_kv : call->seq_offsets_q;
  a.num_targets = call->num_targets;
  a.groups = reinterpret_cast<const GroupArguments*>(call->groups);
  const struct {
    const char* name;
    const hstu_strides* given;
    int64_t seqlen, dim;
    Strides* to;
    int alignment;
  } tensors[] = {
      {"q", &call->q_strides, call->seqlen_q, c.head_dim_qk, &a.q_strides, kernel->alignment},
      {"k", &call->k_strides, call->seqlen_kv, c.head_dim_qk, &a.k_strides, kernel->alignment},
      {"v", &call->v_strides, call->seqlen_kv, c.head_dim_v, &a.v_strides, kernel->alignment},
      {"o", &call->o_strides, call->seqlen_q, c.head_dim_v, &a.o_strides, kernel->alignment},
      {"lse", &call->lse_strides, call->seqlen_q, 1, &a.lse_strides, 1}};
  for (const auto& t : tensors) {
    Result<Strides> s =
        strides_of(t.name, *t.given, t.seqlen, call->heads, t.dim, c.jagged, t.alignment);
    if (!s) return std::move(s).error();
    *t.to = *s;
  }
  a.uniform = {m.local_len, m.context_len, m.minfull_len, m.attn_scale};
  a.alpha = call->alpha != 0
                ? call->alpha
                : static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim_qk)));
  a.batch = call->batch;
  a.heads = call->heads;
  a.seqlen_q = call->seqlen_q;
  a.seqlen_kv = call->seqlen_kv;
  a.batches_per_group = c.grouped ? call->batch / call->num_groups : call->batch;
  hstu::jit::TokenCounts tokens{call->seqlen_q, call->seqlen_kv};
  if (c.jagged) {
    tokens = {call->tokens_q, call->seq_offsets_kv ? call->tokens_kv : call->tokens_q};
    if (kernel->launcher->needs_tokens() && tokens.q <= 0)
      return argument_error(
          "hstu_launch: jagged tensors need tokens_q (and tokens_kv) on this device");
  }
  return kernel->launcher->launch(*kernel->loaded, a, tokens, stream);
}

}  // namespace

extern "C" {

const char* hstu_version(void) { return HSTU_JIT_VERSION; }

hstu_status hstu_engine_create(const hstu_options* options, hstu_engine** engine,
                               hstu_error** error) {
  return guarded(error, [&] { return create(options, engine); });
}

void hstu_engine_destroy(hstu_engine* engine) { delete engine; }

hstu_status hstu_prepare(hstu_engine* engine, const char* spec, size_t length, hstu_kernel** kernel,
                         hstu_error** error) {
  return guarded(error, [&] { return prepare(engine, spec, length, kernel); });
}

void hstu_kernel_release(hstu_kernel* kernel) { delete kernel; }

const char* hstu_kernel_info(const hstu_kernel* kernel) {
  return kernel ? kernel->info.c_str() : "";
}

hstu_status hstu_engine_stats(hstu_engine* engine, char** json, hstu_error** error) {
  return guarded(error, [&] { return stats(engine, json); });
}
void hstu_free(void* memory) { std::free(memory); }

hstu_status hstu_launch(hstu_kernel* kernel, const hstu_forward* call, void* stream,
                        hstu_error** error) {
  return guarded(error, [&] { return launch(kernel, call, stream); });
}

const char* hstu_error_message(const hstu_error* error) {
  return error ? error->error.message.c_str() : "";
}
const char* hstu_error_pointer(const hstu_error* error) {
  return error ? error->error.pointer.c_str() : "";
}
const char* hstu_error_detail(const hstu_error* error) {
  return error ? error->error.detail.c_str() : "";
}
void hstu_error_free(hstu_error* error) { delete error; }

}  // extern "C"
