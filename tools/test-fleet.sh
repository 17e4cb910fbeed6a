#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A fleet on one machine: a build host without a GPU fills nginx and Redis, empty nodes run from
# them without a single compile. Starts and stops its own servers, on loopback, as any user.
# Usage: tools/test-fleet.sh BUILD-DIRECTORY
set -euo pipefail
build=$(cd "${1:?usage: tools/test-fleet.sh BUILD-DIRECTORY}" && pwd)
source_dir=$(cd "$(dirname "$0")/.." && pwd)
program=$build/hstu-jit
PATH=$PATH:/usr/sbin:/usr/local/sbin
export LC_ALL=C

say() { printf '== %s\n' "$*"; }
skip() { printf 'SKIPPED: fleet: %s\n' "$*"; }
fail() {
  printf 'FAILED: %s\n' "$*" >&2
  for file in "$dir"/log/*; do
    [ -s "$file" ] && { printf -- '--- %s\n' "${file##*/}"; tail -n 15 "$file"; } >&2
  done
  exit 1
}

dir=$(mktemp -d "${TMPDIR:-/tmp}/hstu fleet.XXXXXX") # the space is part of the test
servers=()
stop_servers() {
  local pid
  for pid in "${servers[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${servers[@]}"; do wait "$pid" 2>/dev/null || true; done
  servers=()
}
trap 'stop_servers; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$dir/log" "$dir/web"

# Nothing of who runs this: its caches, remotes and bundles stay out.
while IFS='=' read -r name _; do
  case $name in HSTU_JIT_CACHE* | HSTU_JIT_REMOTE* | HSTU_JIT_BUNDLES | HSTU_JIT_RECORD | HSTU_JIT_WORKER) unset "$name" ;; esac
done < <(env)

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
random_port() { echo $((20000 + (RANDOM * 32768 + RANDOM) % 30000)); }
# start NAME PORT COMMAND...: true once it listens; false when it ends, as for a port that is taken
start() {
  local name=$1 port=$2 pid i
  shift 2
  ! listening "$port" || return 1
  "$@" </dev/null >"$dir/log/$name" 2>&1 &
  pid=$!
  for ((i = 0; i < 200; ++i)); do
    kill -0 "$pid" 2>/dev/null || { wait "$pid" 2>/dev/null || true; return 1; }
    if listening "$port"; then servers+=("$pid"); return 0; fi
    sleep 0.02
  done
  kill "$pid" 2>/dev/null || true
  return 1
}

# Secrets that must turn up nowhere but in their files.
token=fleet-secret-$RANDOM$RANDOM$RANDOM
umask 077
printf '%s\n' "$token" >"$dir/token"
printf 'X-Fleet: %s\n' "$token" >"$dir/headers"

start_nginx() {
  local port tls="" try
  mkdir -p "$dir/web" "$dir/nginx"
  for ((try = 0; try < 10; ++try)); do
    port=$(random_port)
    if [ -e "$dir/tls.pem" ]; then
      tls="listen 127.0.0.1:$((port + 1)) ssl; ssl_certificate \"$dir/tls.pem\"; ssl_certificate_key \"$dir/tls.key\";"
    fi
    # One process as this user. Uploads appear whole: the server renames them into place.
    cat >"$dir/nginx.conf" <<CONF
daemon off; master_process off; pid "$dir/nginx/pid"; error_log "$dir/log/nginx-errors" warn;
events { worker_connections 64; }
http {
  access_log "$dir/log/nginx-access";
  client_body_temp_path "$dir/nginx/body"; proxy_temp_path "$dir/nginx/proxy";
  fastcgi_temp_path "$dir/nginx/fastcgi"; uwsgi_temp_path "$dir/nginx/uwsgi"; scgi_temp_path "$dir/nginx/scgi";
  server {
    listen 127.0.0.1:$port; $tls
    root "$dir/web"; client_max_body_size 64m;
    location /kernels/ { dav_methods PUT; create_full_put_path on; }
    location /private/ {
      if (\$http_authorization != "Bearer $token") { return 401; }
      if (\$http_x_fleet != "$token") { return 403; }
      dav_methods PUT; create_full_put_path on;
    }
  }
}
CONF
    if start nginx "$port" nginx -e "$dir/log/nginx-errors" -p "$dir/nginx" -c "$dir/nginx.conf"; then
      http=http://127.0.0.1:$port https=https://localhost:$((port + 1))
      return 0
    fi
  done
  return 1
}

start_redis() {
  local port try
  for ((try = 0; try < 10; ++try)); do
    port=$(random_port)
    rediss=""
    printf 'bind 127.0.0.1\nport %s\nsave ""\nappendonly no\ndir "%s"\nrequirepass %s\n' \
      "$port" "$dir" "$token" >"$dir/redis.conf"
    # Not every redis-server has TLS: half of the tries do without.
    if [ -e "$dir/tls.pem" ] && ((try < 5)); then
      rediss=rediss://localhost:$((port + 1))/3
      printf 'tls-port %s\ntls-cert-file "%s"\ntls-key-file "%s"\ntls-ca-cert-file "%s"\ntls-auth-clients no\n' \
        $((port + 1)) "$dir/tls.pem" "$dir/tls.key" "$dir/tls.pem" >>"$dir/redis.conf"
    fi
    if start redis "$port" redis-server "$dir/redis.conf"; then
      redis=redis://127.0.0.1:$port/3
      return 0
    fi
  done
  return 1
}

# A host of the fleet: NAME and its own empty cache folder. Variables and commands follow.
on() {
  local host=$1
  shift
  env HSTU_JIT_CACHE_DIR="$dir/host/$host" "$@" >"$dir/log/$host.out" 2>"$dir/log/$host.err"
}
entries() { find "$dir/web/$1" -name '*.hko' 2>/dev/null | wc -l; }
number() { sed -n "s/.*\"$1\": \([0-9]*\),*/\1/p" "$dir/log/$2.out" | head -n 1; } # KEY HOST

spec=$dir/quickstart.json
cp "$source_dir/tests/data/specs/quickstart.json" "$spec"
cat >"$dir/manifest.json" <<'JSON'
{"schema": "hstu-jit/manifest/1", "specs": [{"file": "quickstart.json"}]}
JSON

# Which of the targets compile here; the other tests do without the rest.
targets=()
for target in gfx90a gfx942; do
  if on first "$program" prewarm "$dir/manifest.json" --targets $target; then
    targets+=("$target")
  else
    skip "$target does not compile here: $(tail -n 1 "$dir/log/first.out")"
  fi
done
[ ${#targets[@]} -gt 0 ] || exit 0
list=$(IFS=,; echo "${targets[*]}")
expected=${#targets[@]}
can_simulate=no
if [ "${targets[0]}" = gfx90a ]; then
  if on first "$program" run "$spec" --device sim:gfx90a; then
    can_simulate=yes
  else
    skip "the simulator does not run here: $(tail -n 1 "$dir/log/first.err")"
  fi
fi

# kernel HOST TARGET [VARIABLE=VALUE...]: a node that cannot compile asks for one kernel.
kernel() {
  local host=$1 target=$2
  shift 2
  on "$host" HSTU_JIT_WORKER=/bin/false "$@" "$program" compile "$spec" --target "$target" \
    -o "$dir/host/$host.co" --json
}

# The proof can fail: alone such a node has none.
mkdir -p "$dir/host"
if kernel alone "${targets[0]}"; then fail "a node without compiler and without remote had a kernel"; fi

# lacks URL: prints what the program was built without, when that keeps it from this address
lacks() {
  on lacks HSTU_JIT_REMOTE="$1" "$program" prewarm "$dir/manifest.json" --targets "${targets[0]}" --check || true
  grep -oE 'built with(out)? [^;]*' "$dir/log/lacks.err" | head -n 1 || true
}

# serve NAME URL [VARIABLE=VALUE...]: what nodes do with a remote that is full
serve() {
  local name=$1 url=$2 target
  shift 2
  for target in "${targets[@]}"; do
    say "$name: an empty node without a compiler gets and inspects its kernel of $target"
    kernel "$name-$target" "$target" HSTU_JIT_REMOTE="$url" "$@" || fail "$name: node of $target"
    on "$name-$target-inspect" "$program" inspect "$dir/host/$name-$target.co" --json ||
      fail "$name: inspect"
    grep -q "\"$target\"" "$dir/log/$name-$target-inspect.out" || fail "$name: not of $target"
    # From now on it has the kernel itself.
    kernel "$name-$target" "$target" || fail "$name: the node of $target kept nothing"
  done
  if [ "$can_simulate" = yes ]; then
    say "$name: an empty sealed node runs the simulator"
    on "$name-sealed" HSTU_JIT_REMOTE="$url" HSTU_JIT_CACHE_MODE=sealed HSTU_JIT_WORKER=/bin/false \
      "$@" "$program" run "$spec" --device sim:gfx90a --json || fail "$name: sealed run"
    grep -q remote "$dir/log/$name-sealed.out" || fail "$name: the kernel is not the remote's"
  fi
  say "$name: an empty node with a compiler fetches instead of compiling, and is ready"
  on "$name-node" HSTU_JIT_REMOTE="$url" "$@" \
    "$program" prewarm "$dir/manifest.json" --targets "$list" --json || fail "$name: node"
  [ "$(number compiled "$name-node")" = 0 ] || fail "$name: the node compiled"
  on "$name-node" "$program" prewarm "$dir/manifest.json" --targets "$list" --check ||
    fail "$name: --check"
}

if command -v openssl >/dev/null; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -keyout "$dir/tls.key" -out "$dir/tls.pem" \
    >"$dir/log/openssl" 2>&1 || fail "openssl makes no certificate"
else
  skip "https and rediss: no openssl program to make a certificate with"
fi
without=$(lacks http://127.0.0.1:1)
if [ -n "$without" ]; then
  skip "http: $without"
elif command -v nginx >/dev/null; then
  start_nginx || fail "nginx does not start"
  say "http: the build host compiles for $list and fills nginx"
  on build HSTU_JIT_REMOTE="$http/kernels" HSTU_JIT_REMOTE_MODE=rw \
    "$program" prewarm "$dir/manifest.json" --targets "$list" --json || fail "http: prewarm"
  [ "$(number compiled build)" = "$expected" ] || fail "http: want $expected compiles"
  [ "$(entries kernels)" = "$expected" ] || fail "nginx holds $(entries kernels) entries"
  serve http "$http/kernels/"

  say "http: what the build host has already it sends to another remote, with token and header"
  on build HSTU_JIT_REMOTE="$http/private/" HSTU_JIT_REMOTE_MODE=rw \
    HSTU_JIT_REMOTE_TOKEN_FILE="$dir/token" HSTU_JIT_REMOTE_HEADERS_FILE="$dir/headers" \
    "$program" prewarm "$dir/manifest.json" --targets "$list" --json || fail "second remote"
  [ "$(number compiled build)" = 0 ] || fail "compiled what it had"
  [ "$(entries private)" = "$expected" ] || fail "the second remote holds $(entries private) entries"

  say "http: without the token there is one warning and a miss"
  if kernel refused "${targets[0]}" HSTU_JIT_REMOTE="$http/private"; then fail "served without a token"; fi
  [ "$(grep -c 'answered 401' "$dir/log/refused.err")" -ge 1 ] || fail "no word about the 401"

  if [ -e "$dir/tls.pem" ]; then
    say "https: a certificate that is trusted by name, and one that is not trusted"
    kernel https "${targets[0]}" HSTU_JIT_REMOTE="$https/kernels" \
      HSTU_JIT_REMOTE_CA_FILE="$dir/tls.pem" || fail "https"
    if kernel untrusted "${targets[0]}" HSTU_JIT_REMOTE="$https/kernels"; then
      fail "an untrusted server was believed"
    fi
    grep -q 'certificate is not trusted' "$dir/log/untrusted.err" || fail "no word about the certificate"
  fi

  say "http: damaged entries are misses"
  find "$dir/web/kernels" -name '*.hko' -exec sh -c 'printf x | dd of="$1" bs=1 seek=200 conv=notrunc status=none' _ {} \;
  if kernel damaged "${targets[0]}" HSTU_JIT_REMOTE="$http/kernels"; then fail "a damaged entry was served"; fi
  grep -q damaged "$dir/log/damaged.err" || fail "no word about the damage"

  say "http: when the server has died a node with a compiler goes on, with one warning"
  stop_servers
  on dead HSTU_JIT_REMOTE="$http/kernels" HSTU_JIT_REMOTE_MODE=rw "$program" compile "$spec" \
    --target "${targets[0]}" -o "$dir/host/dead.co" || fail "a dead server"
  [ "$(grep -c 'remote cache' "$dir/log/dead.err")" = 1 ] || fail "not one warning about a dead server"
  status=0
  on dead HSTU_JIT_REMOTE="$http/kernels" HSTU_JIT_REMOTE_MODE=rw \
    "$program" prewarm "$dir/manifest.json" --targets "${targets[0]}" || status=$?
  [ "$status" = 8 ] || fail "a build host that filled nothing ended with $status, not with 8"
else
  skip "nginx is not installed (Debian: nginx-light)"
fi

without=$(lacks redis://127.0.0.1:1)
if [ -n "$without" ]; then
  skip "redis: $without"
elif command -v redis-server >/dev/null; then
  start_redis || fail "redis-server does not start"
  say "redis: a build host fills Redis"
  on redis-build HSTU_JIT_CACHE_DIR="$dir/host/first" HSTU_JIT_REMOTE="$redis" \
    HSTU_JIT_REMOTE_MODE=rw HSTU_JIT_REMOTE_TOKEN_FILE="$dir/token" \
    "$program" prewarm "$dir/manifest.json" --targets "$list" --json || fail "redis: prewarm"
  serve redis "$redis" HSTU_JIT_REMOTE_TOKEN_FILE="$dir/token"
  if kernel redis-refused "${targets[0]}" HSTU_JIT_REMOTE="$redis"; then
    fail "Redis served without a password"
  fi
  grep -q NOAUTH "$dir/log/redis-refused.err" || fail "no word about the password"

  without=$(lacks rediss://127.0.0.1:1)
  if [ -n "$without" ]; then
    skip "rediss: $without"
  elif [ -n "$rediss" ]; then
    say "rediss: a certificate that is trusted, and one of another host"
    kernel rediss "${targets[0]}" HSTU_JIT_REMOTE="$rediss" HSTU_JIT_REMOTE_TOKEN_FILE="$dir/token" \
      HSTU_JIT_REMOTE_CA_FILE="$dir/tls.pem" || fail "rediss"
    if kernel rediss-other "${targets[0]}" HSTU_JIT_REMOTE="${rediss/localhost/127.0.0.1}" \
      HSTU_JIT_REMOTE_TOKEN_FILE="$dir/token" HSTU_JIT_REMOTE_CA_FILE="$dir/tls.pem"; then
      fail "a certificate of another host was believed"
    fi
  else
    skip "rediss: this redis-server has no TLS, or no certificate"
  fi
  stop_servers
else
  skip "redis-server is not installed (Debian: redis-server)"
fi

# What prints variables or looks at everything.
for command in environment doctor "cache info" "cache stats"; do
  for json in "" --json; do
    # shellcheck disable=SC2086
    on "secrets-${command/ /-}$json" HSTU_JIT_REMOTE="http://user:$token@127.0.0.1:1/x?$token" \
      HSTU_JIT_REMOTE_TOKEN="$token" "$program" $command $json || true
  done
done
grep -q HSTU_JIT_REMOTE_TOKEN "$dir/log/secrets-environment.out" || fail "no list of variables"

say "no secret in any output, nothing left behind"
if grep -rl "$token" "$dir/log" "$dir/host"; then fail "the token is in the files above"; fi
leaks=$(find "$dir/host" "$dir/web" -name '.tmp-*' 2>/dev/null | head -n 3)
[ -z "$leaks" ] || fail "temporary files are left: $leaks"
say "all is well"
