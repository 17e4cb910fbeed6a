#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles every kernel with each ROCm version there is for Debian, inspects the objects (spills,
# scratch, matrix instructions), and executes them in simulation against the reference. Newer
# versions live in folders of their own that are made on the first run (root; 1 GB each).
# Usage: tools/test-rocm-matrix.sh [--parts LIST] [--only VERSION] [--target T] [--jobs N]
#   --compile-only   the same as --parts compile
#   --parts LIST     some of compile,table,specs: compile and inspect all kernels, the kernel table,
#                    the spec files in simulation; a whole run takes hours, its parts less
#   --only VERSION   5.2.3 (this system), 5.7.1 (Debian trixie) or 6.4.3 (Debian sid)
#   --target T       only this target, e.g. gfx950
#   --chroots DIR    where the other systems are or will be; default /opt/hstu-rocm
#   --jobs N         compiles at a time; default: all cores
#   --stride N       every n-th kernel and spec file only
#   --limit SECONDS  for each spec file in simulation; default 3600
set -euo pipefail

rows="5.2.3|here|gfx908 gfx90a
5.7.1|trixie|gfx90a gfx942 gfx1100
6.4.3|sid|gfx90a gfx942 gfx950 gfx1100 gfx1201"

parts=compile,table,specs only="" only_target="" chroots=/opt/hstu-rocm jobs=$(nproc) stride=1 limit=3600
while [ $# -gt 0 ]; do
  case "$1" in
    --compile-only) parts=compile; shift; continue ;;
    -h | --help) sed -n '3,15p' "$0" | cut -c3-; exit 0 ;;
    --parts | --only | --target | --chroots | --jobs | --stride | --limit) ;;
    *) echo "unknown option $1; see --help" >&2; exit 2 ;;
  esac
  [ $# -ge 2 ] || { echo "$1 needs a value; see --help" >&2; exit 2; }
  case "$1" in
    --parts) parts=$2 ;;
    --only) only=$2 ;;
    --target) only_target=$2 ;;
    --chroots) chroots=$2 ;;
    --jobs) jobs=$2 ;;
    --stride) stride=$2 ;;
    --limit) limit=$2 ;;
  esac
  shift 2
done
for number in "$jobs" "$stride" "$limit"; do
  [[ $number =~ ^[1-9][0-9]*$ ]] || { echo "\"$number\" is not a number above 0" >&2; exit 2; }
done
[[ $parts =~ ^(compile|table|specs)(,(compile|table|specs))*$ ]] || {
  echo "--parts $parts: want some of compile,table,specs" >&2
  exit 2
}
wanted() { [[ ,$parts, == *,$1,* ]]; }
case "$chroots" in
  /*) ;;
  *) chroots=$PWD/$chroots ;;
esac
chosen=$(awk -F'|' -v only="$only" -v target="$only_target" '
  (only == "" || only == $1) && (target == "" || index(" " $3 " ", " " target " "))' <<<"$rows")
[ -n "$chosen" ] || {
  echo "no ROCm version here serves that choice; known:" >&2
  tr '|' ' ' <<<"$rows" >&2
  exit 2
}

# shellcheck source=tools/setup.sh
. "$(dirname "$0")/setup.sh"

build=${HSTU_BUILD_DIR:-$hstu_root/build}
if [ -z "${HSTU_BUILD_DIR:-}" ]; then  # else: as somebody built it
  hstu_install
  hstu_targets="hstu-jit hstu-jit-worker hstu-jit-matrix hstu-jit-kernel-table" hstu_build "$build" \
    -DCMAKE_BUILD_TYPE=Release
fi
unset HSTU_JIT_HIPRTC HSTU_JIT_CLANG HSTU_JIT_WORKER HSTU_JIT_COMPILE HSTU_JIT_OBJDUMP \
  HSTU_JIT_EXTRA_FLAGS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0 skips=0
printf '%-10s %-8s %-26s %s\n' ROCm target kernels simulated >"$work/table"

skip() { printf 'SKIPPED: %s\n' "$*"; skips=$((skips + 1)); }

# Prints the hipRTC library of the system below a folder; fails when there is none.
hiprtc_below() {
  local name
  for name in libhiprtc.so.7 libhiprtc.so.6 libamdhip64.so.5; do
    [ -e "$1/usr/lib/x86_64-linux-gnu/$name" ] || continue
    echo "$1/usr/lib/x86_64-linux-gnu/$name"
    return 0
  done
  return 1
}

# make_system SUITE FOLDER: a small Debian with hipRTC and, where newer than ours, LLVM's tools.
# It stands under its name only when complete.
make_system() {
  local suite=$1 partial=$2.partial mirror llvm package
  rm -rf --one-file-system "$partial"
  mkdir -p "$partial"
  # shellcheck disable=SC2016
  mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 2>/dev/null |
    awk '$1 == "Debian" {print $2; exit}')
  debootstrap --variant=minbase --include=ca-certificates "$suite" "$partial" \
    "${mirror:?apt knows no Debian mirror}" || return 1
  # A mirror may be older than sid's lists are meant to last; their signature is still checked.
  printf '%s\n' 'Acquire::Check-Valid-Until "false";' 'APT::Install-Recommends "false";' \
    >"$partial/etc/apt/apt.conf.d/99hstu"
  inside "$partial" apt-get update -q || return 1
  local have=""
  # From version 6 on hipRTC is a package of its own, which does not bring the compiler with it.
  for package in "libhiprtc7 libamdhip64-7" "libhiprtc6 libamdhip64-6" libamdhip64-5; do
    # shellcheck disable=SC2086
    inside "$partial" apt-get install -y -q $package && { have=$package; break; }
  done
  [ -n "$have" ] || return 1
  llvm=$(basename -a "$partial"/usr/lib/x86_64-linux-gnu/libLLVM[.-]* |
    sed -n 's/^libLLVM\.so\.\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
  if [ -n "$llvm" ]; then
    inside "$partial" apt-get install -y -q "llvm-$llvm" ||
      echo "no llvm-$llvm: this system's disassembler must do"
  fi
  rm -rf "$partial"/var/cache/apt/archives/*.deb
  mv "$partial" "$2"
}

inside() {
  local folder=$1
  shift
  # /proc in a mount name space of its own, so that nothing stays mounted; without where not allowed.
  # shellcheck disable=SC2016
  unshare --mount sh -c 'mount -t proc proc "$0/proc" 2>/dev/null; exec chroot "$0" "$@"' \
    "$folder" env DEBIAN_FRONTEND=noninteractive "$@" </dev/null
}

# Says why there is no system of this suite, or nothing when there is one.
need_system() {
  local suite=$1 folder=$chroots/$1 log=$work/$1.log
  hiprtc_below "$folder" >/dev/null && return 0
  if [ -e "$folder" ]; then
    echo "$folder is there and holds no hipRTC: remove it to have it made anew"
  elif [ "$(id -u)" != 0 ]; then
    echo "making $folder needs root"
  elif ! command -v debootstrap >/dev/null &&
    ! { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq debootstrap; } \
      >"$log" 2>&1; then
    echo "debootstrap could not be installed"
  else
    say "making Debian $suite in $folder" >&2
    mkdir -p "$chroots"
    if ! make_system "$suite" "$folder" >"$log" 2>&1; then
      echo "Debian $suite could not be made: $(grep -E '^E:' "$log" | tail -n 1 | tr -d '\n')"
      tail -n 15 "$log" >&2
    fi
  fi
}

# A disassembler of that system, callable from this one.
use_disassembler() {
  local root=$1 program
  program=$(find "$root"/usr/lib/llvm-*/bin -name llvm-objdump 2>/dev/null | sort -V | tail -n 1) || true
  [ -n "$program" ] || return 0
  # shellcheck disable=SC2016
  printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' \
    "$root/lib64/ld-linux-x86-64.so.2" "$root/usr/lib/x86_64-linux-gnu" "$program" \
    >"$work/llvm-objdump-${root##*/}"
  chmod +x "$work/llvm-objdump-${root##*/}"
  export HSTU_JIT_OBJDUMP=$work/llvm-objdump-${root##*/}
}

# Head dims the shipped specs lack, small enough to simulate.
head_dim_suite() {
  local first=1 dim dtype activation
  printf '[\n'
  for dim in 8 32 64 80 96 128 192 256; do
    for dtype in fp16 bf16; do
      for activation in silu softmax; do
        [ "$first" = 1 ] || printf ',\n'
        first=0
        printf '{"op": "hstu_attention", "name": "d%s-%s-%s", "dtype": "%s", "heads": 1, ' \
          "$dim" "$dtype" "$activation" "$dtype"
        printf '"head_dim_qk": %s, "head_dim_v": %s, "layout": "jagged", "batch": 2, ' "$dim" "$dim"
        printf '"uih_lengths": [70, 131], "num_targets": [3, 2], "activation": "%s", ' "$activation"
        printf '"mask": {"causal": true, "local_len": 40, "context_len": 5, "minfull_len": 9}}'
      done
    done
  done
  printf '\n]\n'
}

# compile_kernels VERSION TARGET: sets `cell` for the table.
compile_kernels() {
  local log=$work/log line
  local status=0
  "$build/hstu-jit-matrix" "$hstu_root/tests/data/specs" "$work/head-dims.json" --targets "$2" \
    --jobs "$jobs" --stride "$stride" >"$log" 2>&1 || status=$?
  grep -v '^1 targets' "$log" || true
  line=$(grep -E "^$2 +[0-9]+ kernels" "$log" || true)
  cell=$(sed -E 's/^[^ ]+ +([0-9]+) kernels, ([0-9]+) failed.*/\1, \2 failed/' <<<"$line")
  if [ -z "$line" ]; then
    cell="FAILED, see above"  # the version is known to serve this target
    failures=$((failures + 1))
  elif [ "$status" != 0 ]; then
    failures=$((failures + 1))
  elif grep -q 'at least ? (' <<<"$line"; then
    # shellcheck disable=SC2001
    skip "matrix instructions of $2 by ROCm $1 are not counted: $(sed 's/.*? (\(.*\)), [0-9]* with.*/\1/' <<<"$line")"
  fi
}

# tabulate_kernels VERSION TARGET: registers, modelled schedule and simulated counters of each.
tabulate_kernels() {
  local status=0
  "$build/hstu-jit-kernel-table" --targets "$2" | tee "$work/log" || status=$?
  if grep -q '^SKIPPED: ' "$work/log"; then
    skips=$((skips + 1))
  elif [ "$status" != 0 ]; then
    echo "FAILED: ROCm $1, kernel table of $2: exit code $status"
    failures=$((failures + 1))
  fi
}

# simulate_specs VERSION TARGET: sets `cell`. Only what the product itself says of its devices is a
# reason to skip: a device it calls usable has to run every spec.
simulate_specs() {
  local spec status reason passed=0 failed=0 index=0 log=$work/log
  local run=("$build/hstu-jit" run --device "sim:$2" --cache-dir "$work/cache")
  "$build/hstu-jit" devices >"$work/devices" || true
  if ! grep -q "^ *sim:$2 " "$work/devices"; then
    reason="\"hstu-jit devices\" does not list sim:$2"
  else
    reason=$(sed -n "s/^ *sim:$2 .*cannot be used: //p" "$work/devices")
  fi
  if [ -n "$reason" ]; then
    skip "simulation of $2: $reason"
    cell=skipped
    return 0
  fi
  for spec in "$work/head-dims.json" "$hstu_root"/tests/data/specs/*.json; do
    index=$((index + 1))
    [ $(((index - 1) % stride)) = 0 ] || continue
    status=0
    timeout "$limit" "${run[@]}" "$spec" >"$log" 2>&1 || status=$?
    if [ "$status" = 0 ]; then
      passed=$((passed + 1))
      continue
    fi
    failed=$((failed + 1))
    echo "FAILED: ROCm $1, sim:$2, ${spec##*/}: exit code $status"
    [ "$status" != 124 ] || echo "  no end within $limit s"
    tail -n 12 "$log" | sed 's/^/  /'
  done
  cell="$((passed + failed)) spec files, $failed failed"
  failures=$((failures + failed))
}

head_dim_suite >"$work/head-dims.json"
while IFS='|' read -r version place targets; do
  unset HSTU_JIT_HIPRTC HSTU_JIT_OBJDUMP
  export HSTU_JIT_CLANG=/nowhere  # hipRTC or nothing
  if [ "$place" = here ]; then
    reason=""
  else
    reason=$(need_system "$place")
    if [ -z "$reason" ]; then
      HSTU_JIT_HIPRTC=$(hiprtc_below "$chroots/$place")
      export HSTU_JIT_HIPRTC
      use_disassembler "$chroots/$place"
    fi
  fi
  if [ -z "$reason" ]; then  # who answers, as the product sees it
    if found=$(HSTU_JIT_CACHE_MODE=off "$build/hstu-jit" compile \
      "$hstu_root/tests/data/specs/quickstart.json" --target gfx90a -o "$work/k.o" 2>&1); then
      found=$(sed -n 's/.* by \(hipRTC .*\))$/\1/p' <<<"$found")
    else
      reason=$(tail -n 1 <<<"$found")
    fi
  fi
  if [ -n "$reason" ]; then
    skip "ROCm $version: $reason"
    printf '%-10s %-8s %-26s %s\n' "$version" "${only_target:-all}" skipped skipped >>"$work/table"
    continue
  fi
  say "ROCm $version: ${found:-?}"
  case "$found" in
    "hipRTC ${version%.*}."*) ;;
    *) say "expected was $version: Debian has moved on, or another ROCm is installed; testing what is there" ;;
  esac
  for target in $targets; do
    [ -z "$only_target" ] || [ "$target" = "$only_target" ] || continue
    cell="not asked for"
    ! wanted compile || compile_kernels "$version" "$target"
    compiled=$cell cell="not asked for"
    ! wanted table || tabulate_kernels "$version" "$target"
    ! wanted specs || simulate_specs "$version" "$target"
    printf '%-10s %-8s %-26s %s\n' "$version" "$target" "$compiled" "$cell" >>"$work/table"
  done
done <<<"$chosen"

say "summary"
cat "$work/table"
say "$failures failures, $skips skipped for the reasons above"
[ "$failures" = 0 ]
