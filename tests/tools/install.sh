#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh CMAKE BUILD SOURCE COMPILER: installs, moves what was installed, runs the program from
# there, and builds and runs a server against it by find_package and by pkg-config.
set -eu
cmake=$1 build=$2 source=$3 compiler=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset HSTU_JIT_WORKER HSTU_JIT_REMOTE_MODULE
export HSTU_JIT_CACHE_DIR=$scratch/cache

"$cmake" --install "$build" --prefix "$scratch/first" >"$scratch/log" || { cat "$scratch/log"; exit 1; }
mv "$scratch/first" "$scratch/moved"
root=$scratch/moved
libdir=$(dirname "$(find "$root" -name libhstu_jit.so)")
"$root/bin/hstu-jit" run "$source/tests/data/specs/quickstart.json" --device cpu | grep -q '^PASS'
# The module of the remote cache is found where it was installed, and missed where it was not.
ask_remote() {
  HSTU_JIT_REMOTE=http://127.0.0.1:9/x "$root/bin/hstu-jit" run \
    "$source/tests/data/specs/quickstart.json" --device cpu --cache-dir "$scratch/cache-$1" 2>&1
}
if ask_remote with | grep 'hstu-jit-remote.so'; then exit 1; fi
mv "$root/libexec/hstu-jit/hstu-jit-remote.so" "$scratch"
ask_remote without | grep -q 'hstu-jit-remote.so is not beside'

mkdir "$scratch/server"
cat >"$scratch/server/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(server LANGUAGES CXX)
find_package(hstu_jit 0.1 REQUIRED)
add_executable(server server.cpp)
target_link_libraries(server PRIVATE hstu_jit::hstu_jit)
target_compile_features(server PRIVATE cxx_std_17)
CMAKE
cat >"$scratch/server/server.cpp" <<'CPP'
#include <hstu_jit/hstu_jit.hpp>

#include <cstdio>
#include <vector>

int main() {
  hstu_options options{};
  options.size = sizeof options;
  options.device = "cpu";
  hstu::jit::api::Engine engine(options);
  auto kernel = engine.prepare(
      R"({"op": "hstu_attention", "heads": 1, "head_dim_qk": 32, "batch": 1, "uih_lengths": 3})");
  // Three tokens that see themselves and those before; all ones: o = silu(sqrt(32)) * row.
  const std::vector<uint16_t> ones(3 * 32, 0x3f80);
  std::vector<uint16_t> o(3 * 32, 0xffff);
  const int32_t offsets[] = {0, 3};
  hstu_forward call{};
  call.size = sizeof call;
  call.q = call.k = call.v = ones.data();
  call.o = o.data();
  call.seq_offsets_q = call.seq_offsets_kv = offsets;
  call.mask.attn_scale = 1;
  call.batch = call.heads = 1;
  call.seqlen_q = call.seqlen_kv = 3;
  kernel.launch(call);
  std::printf("%04x %04x %04x\n", o[0], o[32], o[64]);
}
CPP
cd "$scratch/server"
{ "$cmake" -S . -B build -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$root" &&
  "$cmake" --build build; } >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
expected="40b4 4134 4187"  # bf16 of 5.637, 11.27, 16.91
result=$(./build/server)
[ "$result" = "$expected" ] || { echo "find_package: $result, not $expected"; exit 1; }

if command -v pkg-config >/dev/null; then
  # shellcheck disable=SC2046
  "$compiler" -std=c++17 server.cpp -o by_pkg_config \
    $(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --cflags --libs hstu_jit) -Wl,-rpath,"$libdir"
  result=$(./by_pkg_config)
  [ "$result" = "$expected" ] || { echo "pkg-config: $result, not $expected"; exit 1; }
else
  echo "SKIPPED: pkg-config: not installed"
fi
