#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up a fresh Debian machine, builds hstu-jit, and runs all tests. Safe to repeat.
# Usage: tools/test.sh [--sanitize LIST] [--fuzz SECONDS] [--only REGEX] [--large]
#   --sanitize LIST   address,undefined or thread: builds into build-LIST and tests there
#   --fuzz SECONDS    builds the fuzzers with clang and runs each for that long
#   --only REGEX      only tests whose name matches
#   --large           a kernel cache of 200,000 entries instead of 20,000 in test cache
set -euo pipefail
sanitize="" fuzz="" only="."
while [ $# -gt 0 ]; do
  case "$1" in
    --sanitize) sanitize=$2; shift 2 ;;
    --fuzz) fuzz=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    --large) export HSTU_TEST_CACHE_ENTRIES=200000; shift ;;
    -h | --help) sed -n '3,8p' "$0" | cut -c3-; exit 0 ;;
    *) echo "unknown option $1; see --help" >&2; exit 2 ;;
  esac
done
# shellcheck source=tools/setup.sh
. "$(dirname "$0")/setup.sh"
hstu_install

if [ -n "$fuzz" ]; then
  directory=$hstu_root/build-fuzz
  hstu_targets=fuzzers hstu_build "$directory" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DHSTU_JIT_FUZZ=ON \
    -DHSTU_JIT_BUILD_TESTS=OFF -DHSTU_JIT_BUILD_BENCHMARKS=OFF \
    -DHSTU_JIT_SANITIZE=address,undefined,fuzzer-no-link
  for fuzzer in "$directory"/fuzz/fuzz_*; do
    [ -x "$fuzzer" ] || continue
    say "fuzzing $(basename "$fuzzer") for $fuzz s"
    corpus=$(mktemp -d)
    "$fuzzer" -max_total_time="$fuzz" -timeout=10 -print_final_stats=1 "$corpus" 2>&1 | tail -n 12
    rm -rf "$corpus"
  done
  exit 0
fi

directory=$hstu_root/build
if [ -n "$sanitize" ]; then
  directory=$hstu_root/build-$(echo "$sanitize" | tr , -)
  hstu_build "$directory" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DHSTU_JIT_SANITIZE="$sanitize" \
    -DHSTU_JIT_BUILD_TESTS=ON
  # Sanitized simulation is some ten times slower: fewer random problems do.
  export HSTU_TEST_SIM_CASES=${HSTU_TEST_SIM_CASES:-1}
  say "$sanitize: $HSTU_TEST_SIM_CASES random problem(s) a kernel in sim_random instead of 12"
else
  hstu_build "$directory" -DCMAKE_BUILD_TYPE=Release -DHSTU_JIT_BUILD_TESTS=ON
fi

say "testing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
(cd "$directory" && ctest --output-on-failure --verbose -R "$only" -j"$(nproc)") >"$log" 2>&1 ||
  status=$?
if [ "$status" != 0 ]; then cat "$log"; else grep -E 'Test +#|% tests passed' "$log" || true; fi
# Tests print a SKIPPED line with the reason where this machine lacks something; none goes uncounted.
skipped=$(grep -c 'SKIPPED: ' "$log" || true)
grep -o 'SKIPPED: .*' "$log" | sort -u || true
say "$skipped skipped for the reasons above; $(grep -E '% tests passed' "$log" || echo 'no test ran')"
exit "$status"
