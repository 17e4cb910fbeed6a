#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What can only be tested on a GPU: all shipped specs, problems beyond 65,535 sequences x heads and
# beyond 2^31 elements, random problems, what a launch costs, and the same under compute-sanitizer.
#
#   tools/test-gpu.sh [--device cuda:0] [--build build] [--cases 12] [--sanitize] [--skip-huge]
#
# --build names the folder with hstu-jit (test_sim_random is looked for there and in its tests/;
# what is missing is skipped and said). --sanitize repeats a selection under memcheck, racecheck
# and synccheck, which takes minutes. Ends with one line per step; exit code 1 when one
# failed. A single run under a checker by hand:
#
#   compute-sanitizer --tool racecheck --error-exitcode 99 --target-processes application-only \
#     build/hstu-jit run tests/data/specs/group-special.json --device cuda:0
set -uo pipefail

device=cuda:0 build=build cases=12 sanitize=no huge=yes
while [ $# -gt 0 ]; do
  case "$1" in
    --device) device=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --cases) cases=$2; shift 2 ;;
    --sanitize) sanitize=yes; shift ;;
    --skip-huge) huge=no; shift ;;
    -h | --help) sed -n '3,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test-gpu.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
  esac
done

here=$(cd "$(dirname "$0")" && pwd)
specs=$here/../tests/data/specs
[ -d "$specs" ] || specs=$here/specs
program=$build/hstu-jit
[ -x "$program" ] || { echo "test-gpu.sh: no $program: build it, or name its folder with --build" >&2; exit 2; }
random=$build/tests/test_sim_random
[ -x "$random" ] || random=$build/test_sim_random
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

summary=$scratch/summary failed=0
touch "$summary"
# step NAME COMMAND...: runs it, keeps its last lines where it fails.
step() {
  local name=$1 start=$SECONDS code
  shift
  "$@" >"$scratch/out" 2>&1 </dev/null
  code=$?
  if [ $code = 0 ]; then
    printf 'PASS  %-44s %4d s  %s\n' "$name" $((SECONDS - start)) "$(grep -E '^(time|[0-9]+ random)' "$scratch/out" | tail -1)"
  else
    printf 'FAIL  %-44s %4d s  exit %d\n' "$name" $((SECONDS - start)) $code
    tail -20 "$scratch/out" | sed 's/^/      /'
  fi | tee -a "$summary"
  return $code
}
skipped() { printf 'SKIPPED: %s: %s\n' "$1" "$2" | tee -a "$summary"; }
run() { "$program" run "$1" --device "$device" --cache-dir "$scratch/cache" "${@:2}"; }

"$program" devices
if ! step devices sh -c "'$program' devices | grep -q '^  $device '"; then
  echo "test-gpu.sh: no device $device here" >&2
  exit 7
fi

for spec in "$specs"/*.json; do step "$(basename "$spec")" run "$spec" || failed=1; done

# Jagged and batched, with more sequences x heads than a grid has in y or z.
cat >"$scratch/wide.json" <<'JSON'
{"op": "hstu_attention", "heads": 4096, "head_dim_qk": 64, "batch": 18, "uih_lengths": 3,
 "validate": {"rows": 2}}
JSON
step "73,728 sequences x heads" run "$scratch/wide.json" || failed=1

# Few long tiles: where there are clusters, two workgroups share each.
cat >"$scratch/few128.json" <<'JSON'
{"op": "hstu_attention", "heads": 3, "head_dim_qk": 128, "batch": 2, "uih_lengths": [1500, 2],
 "num_targets": [37, 5], "validate": {"rows": 64}}
JSON
cat >"$scratch/few64.json" <<'JSON'
{"op": "hstu_attention", "heads": 3, "head_dim_qk": 96, "head_dim_v": 64, "batch": 3,
 "uih_lengths": [1500, 0, 1100], "validate": {"rows": 64},
 "mask": {"causal": true, "local_len": 300, "context_len": 5, "minfull_len": 100}}
JSON
# More than 5/4 of the multiprocessors, of so many keys that pairs still pay.
cat >"$scratch/fewlong.json" <<'JSON'
{"op": "hstu_attention", "heads": 3, "head_dim_qk": 64, "batch": 2, "uih_lengths": [5000, 3300],
 "num_targets": [100, 33], "validate": {"rows": 64}}
JSON
# The same of softmax with LSE, whose two workgroups trade maxima and sums too.
for few in few128 few64 fewlong; do
  sed 's/"op": "hstu_attention"/&, "activation": "softmax", "training": true/' \
    "$scratch/$few.json" >"$scratch/${few}soft.json"
done
sed -i 's/"training"/"alpha": -0.15, &/' "$scratch/few64soft.json"
for few in few128 few64 fewlong; do
  step "few long tiles, $few" run "$scratch/$few.json" || failed=1
  step "few long tiles, softmax, $few" run "$scratch/${few}soft.json" || failed=1
done

# Target rows whose warpgroup passes over steps between two that it computes; tiles enough that none
# is shared.
for dim in 64 128 256; do
  cat >"$scratch/targets$dim.json" <<JSON
{"op": "hstu_attention", "heads": 8, "head_dim_qk": $dim, "batch": 2, "uih_lengths": [512, 1090],
 "num_targets": [256, 300], "validate": {"rows": 64}}
JSON
  step "target rows, head dim $dim" run "$scratch/targets$dim.json" || failed=1
done

# Many short tiles of all kinds, no tile shared: each workgroup comes to its sixth and beyond, so
# that memory of queries, staged outputs and descriptions are used again, and rows change hands.
lengths=$(for i in $(seq 24); do printf '0, 1, 63, 129, 200, 330, '; done)
targets=$(for i in $(seq 24); do printf '0, 1, 0, 20, 0, 7, '; done)
for dim in 64 128 256; do
  cat >"$scratch/many$dim.json" <<JSON
{"op": "hstu_attention", "heads": 8, "head_dim_qk": $dim, "batch": 144, "validate": {"rows": 16},
 "uih_lengths": [${lengths%, }], "num_targets": [${targets%, }]}
JSON
  step "many short tiles, head dim $dim" run "$scratch/many$dim.json" || failed=1
done
sed 's/"op": "hstu_attention"/&, "activation": "softmax", "training": true/' \
  "$scratch/many128.json" >"$scratch/many128soft.json"
step "many short tiles, softmax" run "$scratch/many128soft.json" || failed=1

# Narrow windows, under which each warpgroup loads its own keys: rows of targets alone beside others,
# tiles of all sizes, and enough of them that memory is used again.
for dim in 64 128 256; do
  sed 's/"op": "hstu_attention"/&, "mask": {"local_len": 5}/' "$scratch/many$dim.json" \
    >"$scratch/narrow$dim.json"
  step "many short tiles, narrow window, head dim $dim" run "$scratch/narrow$dim.json" || failed=1
  # Rows of targets alone, whose own keys stand in a step of their own.
  sed 's/"op": "hstu_attention"/&, "mask": {"local_len": 7}/' "$scratch/targets$dim.json" \
    >"$scratch/narrowtargets$dim.json"
  step "target rows, narrow window, head dim $dim" run "$scratch/narrowtargets$dim.json" || failed=1
done
sed 's/"op": "hstu_attention"/&, "activation": "softmax", "training": true/' \
  "$scratch/narrow128.json" >"$scratch/narrow128soft.json"
step "many short tiles, narrow window, softmax" run "$scratch/narrow128soft.json" || failed=1

# 2^31 elements of q and more; the window keeps the work small.
cat >"$scratch/huge.json" <<'JSON'
{"op": "hstu_attention", "heads": 64, "head_dim_qk": 128, "batch": 2, "uih_lengths": 140000,
 "layout": "batched", "mask": {"local_len": 100}, "validate": {"rows": 2}}
JSON
sed 's/batched/jagged/' "$scratch/huge.json" >"$scratch/huge_jagged.json"
if [ $huge = yes ]; then
  step "2.3e9 elements a tensor, batched" run "$scratch/huge.json" || failed=1
  step "2.3e9 elements a tensor, jagged" run "$scratch/huge_jagged.json" || failed=1
else
  skipped "2.3e9 elements a tensor" "--skip-huge"
fi

random_problems() {
  HSTU_JIT_WORKER=$build/hstu-jit-worker HSTU_JIT_TEST_DEVICE=$device HSTU_TEST_SIM_CASES=$1 \
    "${@:2}" "$random" "device*"
}
if [ -x "$random" ]; then
  step "random problems" random_problems "$cases" || failed=1
else
  skipped "random problems" "no test_sim_random in $build"
fi

overhead=$build/hstu-jit-launch-overhead
if [ -x "$overhead" ]; then
  step "launch overhead, and a graph" "$overhead" --device "$device" --cache-dir "$scratch/cache" || failed=1
  cat "$scratch/out"
else
  skipped "launch overhead" "no hstu-jit-launch-overhead in $build"
fi

if [ $sanitize = yes ]; then
  checker=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [ ! -x "$checker" ]; then
    skipped "compute-sanitizer" "not installed"
  else
    for tool in memcheck racecheck synccheck; do
      check=("$checker" --tool "$tool" --error-exitcode 99 --target-processes application-only)
      for spec in "$specs"/{quickstart,group-special,cross-mask-test,mask-test}.json \
        "$scratch"/{few128,few64,fewlong}{,soft}.json \
        "$scratch"/{targets64,targets128,targets256,many64,many128,many128soft}.json \
        "$scratch"/narrow{64,128,256,128soft,targets256}.json; do
        step "$tool $(basename "$spec")" "${check[@]}" "$program" run "$spec" --device "$device" \
          --cache-dir "$scratch/cache" || failed=1
      done
      if [ -x "$random" ]; then
        step "$tool random problems" random_problems 1 "${check[@]}" || failed=1
      fi
    done
  fi
fi

echo
echo "On $device:"
cat "$summary"
exit $failed
