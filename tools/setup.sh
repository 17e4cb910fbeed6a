# SPDX-License-Identifier: Apache-2.0
# Sourced by quickstart.sh and test.sh: installs what is missing, configures and builds.
# shellcheck shell=bash

hstu_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '==> %s\n' "$*"; }

hstu_required="g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev catch2 libssl-dev libpng-dev"
# Compilers for targets other than this host, and oneDNN for the comparison program. Nice to have.
hstu_optional="clang-19 lld-19 llvm-19 libdnnl-dev"
# The remote cache: libraries, and for its test a certificate and servers. The servers only where
# installing them does not start them, as in containers.
hstu_optional="$hstu_optional libcurl4-openssl-dev libhiredis-dev openssl"
[ ! -x /usr/sbin/policy-rc.d ] || hstu_optional="$hstu_optional nginx-light redis-server"
# hipRTC: Debian's, unless ROCm is here already.
[ -e /opt/rocm ] || [ -n "${ROCM_PATH:-}" ] || hstu_optional="$hstu_optional libamdhip64-dev"

hstu_missing() {
  local package
  for package in $1; do
    dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
      printf '%s ' "$package"
  done
}

hstu_install() {
  local required optional apt=""
  if ! command -v apt-get >/dev/null 2>&1; then
    say "no apt-get here: install by hand a C++20 compiler, cmake 3.20, ninja, and the development"
    say "packages of fmt, nlohmann-json, CLI11, Catch2, OpenSSL and libpng; going on with what is there"
    return 0
  fi
  required=$(hstu_missing "$hstu_required")
  optional=$(hstu_missing "$hstu_optional")
  [ -z "$required$optional" ] && { say "all packages are installed"; return 0; }
  if [ "$(id -u)" = 0 ]; then
    apt="env DEBIAN_FRONTEND=noninteractive apt-get"
  elif sudo -n true 2>/dev/null; then
    apt="sudo -n env DEBIAN_FRONTEND=noninteractive apt-get"
  fi
  if [ -z "$apt" ]; then
    say "not root, and sudo asks for a password: run this by hand, then repeat"
    say "  sudo apt-get install --no-install-recommends $required$optional"
    [ -z "$required" ] || return 1
    say "going on without the optional ones"
    return 0
  fi
  say "installing with apt: $required$optional"
  $apt update -qq || say "apt-get update failed; trying with the lists there are"
  if [ -n "$required" ]; then
    # shellcheck disable=SC2086
    $apt install -y -qq --no-install-recommends $required >/dev/null || {
      say "could not install: $required"
      return 1
    }
  fi
  local package
  for package in $optional; do
    $apt install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 ||
      say "optional package $package could not be installed: what needs it is skipped"
  done
}

# hstu_build DIRECTORY [CMAKE-OPTIONS...]; hstu_targets: what to build, all by default
hstu_build() {
  local directory=$1
  shift
  say "configuring $directory"
  cmake -S "$hstu_root" -B "$directory" -G Ninja "$@" >"$directory.log" 2>&1 || {
    cat "$directory.log"
    say "configuring failed"
    return 1
  }
  rm -f "$directory.log"
  say "building (the first time takes a few minutes)"
  cmake --build "$directory" --target ${hstu_targets:-all} -- --quiet
}
