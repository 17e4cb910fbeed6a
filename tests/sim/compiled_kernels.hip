// SPDX-License-Identifier: Apache-2.0
// Small kernels for the simulator's tests, compiled by several compilers. KERNEL, THREAD, BLOCK,
// BARRIER and DYNAMIC_LDS come from the test (assembler.cpp).

KERNEL(256) saxpy(float a, const float* x, float* y, int n) {
  const int i = BLOCK() * 256 + THREAD();
  if (i < n) y[i] = a * x[i] + y[i];
}

// One sum per workgroup.
KERNEL(256) reduce(const float* x, float* sums, int n) {
  __shared__ float part[256];
  const int t = THREAD(), i = BLOCK() * 256 + t;
  part[t] = i < n ? x[i] : 0.0f;
  BARRIER();
  for (int step = 128; step > 0; step /= 2) {
    if (t < step) part[t] += part[t + step];
    BARRIER();
  }
  if (t == 0) sums[BLOCK()] = part[0];
}

// Sums of everything up to each element, per workgroup.
KERNEL(128) scan(const int* x, int* out) {
  __shared__ int part[128];
  const int t = THREAD();
  part[t] = x[BLOCK() * 128 + t];
  for (int step = 1; step < 128; step *= 2) {
    BARRIER();
    const int before = t >= step ? part[t - step] : 0;
    BARRIER();
    part[t] += before;
  }
  out[BLOCK() * 128 + t] = part[t];
}

KERNEL(256) transpose(const float* in, float* out, int width, int height) {
  __shared__ float tile[16][17];
  const int tiles = (width + 15) / 16, x0 = BLOCK() % tiles * 16, y0 = BLOCK() / tiles * 16;
  const int x = THREAD() % 16, y = THREAD() / 16;
  if (x0 + x < width && y0 + y < height) tile[y][x] = in[(y0 + y) * width + x0 + x];
  BARRIER();
  if (y0 + x < height && x0 + y < width) out[(x0 + y) * height + y0 + x] = tile[x][y];
}

KERNEL(256) histogram(const unsigned* x, unsigned* bins, int n) {
  __shared__ unsigned local[64];
  if (THREAD() < 64) local[THREAD()] = 0;
  BARRIER();
  const int i = BLOCK() * 256 + THREAD();
  if (i < n) __atomic_fetch_add(&local[x[i] % 64], 1u, __ATOMIC_RELAXED);
  BARRIER();
  if (THREAD() < 64) __atomic_fetch_add(&bins[THREAD()], local[THREAD()], __ATOMIC_RELAXED);
}

// A row per workgroup.
KERNEL(128) softmax(const float* x, float* y, int columns) {
  __shared__ float part[128];
  const int t = THREAD();
  const float* row = x + BLOCK() * columns;
  float top = -1e30f;
  for (int c = t; c < columns; c += 128) top = row[c] > top ? row[c] : top;
  part[t] = top;
  BARRIER();
  for (int step = 64; step > 0; step /= 2) {
    if (t < step) part[t] = part[t] > part[t + step] ? part[t] : part[t + step];
    BARRIER();
  }
  top = part[0];
  BARRIER();
  float sum = 0;
  for (int c = t; c < columns; c += 128) sum += __builtin_exp2f((row[c] - top) * 1.44269504f);
  part[t] = sum;
  BARRIER();
  for (int step = 64; step > 0; step /= 2) {
    if (t < step) part[t] += part[t + step];
    BARRIER();
  }
  sum = part[0];
  for (int c = t; c < columns; c += 128)
    y[BLOCK() * columns + c] = __builtin_exp2f((row[c] - top) * 1.44269504f) / sum;
}

struct Quotients {
  int quotient, remainder;
  unsigned uquotient, uremainder;
  long long wide_quotient, wide_remainder;
  float ratio;
  int filler;
};
KERNEL(64) divide(const int* a, const int* b, Quotients* out) {
  const int i = BLOCK() * 64 + THREAD();
  Quotients q;
  q.quotient = a[i] / b[i];
  q.remainder = a[i] % b[i];
  q.uquotient = (unsigned)a[i] / (unsigned)b[i];
  q.uremainder = (unsigned)a[i] % (unsigned)b[i];
  const long long wide = (long long)a[i] * 123456789 + b[i], by = (long long)b[i] * 10007 + 1;
  q.wide_quotient = wide / by;
  q.wide_remainder = wide % by;
  q.ratio = (float)a[i] / (float)b[i];
  q.filler = 0;
  out[i] = q;
}

KERNEL(64) doubles(const double* a, const double* b, double* out) {
  const int i = BLOCK() * 64 + THREAD();
  out[4 * i] = a[i] + b[i];
  out[4 * i + 1] = a[i] * b[i];
  out[4 * i + 2] = a[i] / b[i];
  out[4 * i + 3] = __builtin_fma(a[i], b[i], a[i]);
}

// Lanes go apart in loops and switches and meet again.
KERNEL(64) diverge(const int* x, int* out) {
  const int i = BLOCK() * 64 + THREAD();
  unsigned v = (unsigned)x[i];
  int steps = 0;
  while (v != 1 && steps < 60) {
    v = v % 2 ? 3 * v + 1 : v / 2;
    ++steps;
  }
  int r;
  switch (x[i] % 7) {
    case 0:
      r = steps;
      break;
    case 1:
      r = -steps;
      break;
    case 2:
    case 3:
      r = steps * 3;
      for (int k = 0; k < x[i] % 5; ++k) {
        if (k == 3) continue;
        r += k;
      }
      break;
    case 4:
      r = x[i];
      if (r > 50) return;  // leaves what is there
      break;
    default:
      r = 1000;
  }
  out[i] = r;
}

// An array with indices only known at run time: private memory.
KERNEL(64) local_array(const int* x, int* out) {
  const int i = BLOCK() * 64 + THREAD();
  int buffer[40];
  for (int k = 0; k < 40; ++k) buffer[k] = k * x[i];
  for (int k = 0; k < 100; ++k) {
    const int from = (k * 7 + x[i]) & 31, to = (k * 13 + 5) % 40;
    buffer[to] += buffer[from] + k;
  }
  int sum = 0;
  for (int k = 0; k < 40; ++k) sum = sum * 31 + buffer[k];
  out[i] = sum;
}

__attribute__((noinline)) __device__ int twice_plus(int x, int y) {
  return 2 * x + y;
}
__attribute__((noinline)) __device__ int chain(int x, const int* table) {
  int sum = 0;
  for (int k = 0; k < 4; ++k) sum += twice_plus(x + k, table[(x + k) & 15]);
  return sum;
}
KERNEL(64) calls(const int* x, int* out, const int* table) {
  const int i = BLOCK() * 64 + THREAD();
  out[i] = x[i] % 3 == 0 ? -1 : chain(x[i], table);
}

KERNEL(64) dynamic_lds(const int* x, int* out, int n) {
  DYNAMIC_LDS(int, all);
  const int t = THREAD();
  for (int k = t; k < n; k += 64) all[k] = x[k];
  BARRIER();
  for (int k = t; k < n; k += 64) out[k] = all[n - 1 - k];
}

// Everything a work-item can know of its place.
KERNEL(60) places(int* out, int across, int down) {
  const int x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y();
  const int z = __builtin_amdgcn_workitem_id_z(), bx = __builtin_amdgcn_workgroup_id_x();
  const int by = __builtin_amdgcn_workgroup_id_y(), bz = __builtin_amdgcn_workgroup_id_z();
  const int nx = __builtin_amdgcn_workgroup_size_x(), ny = __builtin_amdgcn_workgroup_size_y();
  const int nz = __builtin_amdgcn_workgroup_size_z(), gx = __builtin_amdgcn_grid_size_x();
  const int block = (bz * down + by) * across + bx, thread = (z * ny + y) * nx + x;
  out[block * 60 + thread] = gx * 1000 + nz * 100 + block * 60 + thread;
}

typedef _Float16 float16;
KERNEL(64) halves(const float16* a, const float16* b, float16* out) {
  const int i = BLOCK() * 64 + THREAD();
  out[2 * i] = a[i] * b[i];
  out[2 * i + 1] = a[i] + b[i];
}
