#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up a fresh Debian machine, builds hstu-jit, and runs the main job on a shipped spec.
# Safe to repeat. Usage: tools/quickstart.sh [SPEC]
set -euo pipefail
case "${1:-}" in
  -h | --help) sed -n '3,4p' "$0" | cut -c3-; exit 0 ;;
esac
# shellcheck source=tools/setup.sh
. "$(dirname "$0")/setup.sh"
spec=${1:-$hstu_root/tests/data/specs/quickstart.json}

hstu_install
hstu_build "$hstu_root/build" -DCMAKE_BUILD_TYPE=Release -DHSTU_JIT_BUILD_TESTS=OFF
say "running: build/hstu-jit run ${spec#"$hstu_root"/}"
"$hstu_root/build/hstu-jit" run "$spec"
say "try next: build/hstu-jit plan ${spec#"$hstu_root"/} --target gfx942; build/hstu-jit doctor"
