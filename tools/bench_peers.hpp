// SPDX-License-Identifier: Apache-2.0
// hstu-jit-bench-peers: the product's forward kernels beside published measurements of others, row
// by row, from one run on one device.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "bench/bench.hpp"
#include "cli/tensors.hpp"
#include "device/device.hpp"
#include "engine/engine.hpp"
#include "spec/problem.hpp"

namespace hstu::jit::bench {

enum class RowSet { silu, softmax, windowed };

struct Options {
  RowSet set = RowSet::silu;
  int iterations = 0;  // 0: as many as take about kTimedMs, at least kLeastRuns
  int pause_ms = 500;  // before each row: a GPU under load lowers its clock
  int scale = 1;       // lengths are divided by it (to try the program out)
  std::string cublas;  // the library of matrix products; empty: where it usually is
};
constexpr double kTimedMs = 60;
constexpr int kLeastRuns = 7, kMostRuns = 60;

// One problem and what it is compared with.
struct Row {
  int number = 0;
  std::string name;
  Problem problem;
  int max_len = 0;
  std::string peer;          // the best one's name; empty: none
  double peer_ms = 0;        // its median
  double peer_tflop = 0;     // useful TFLOP of one call as its measurement counted; 0: not said
  bool windowed = false;     // judged by the causal row
  bool memory_goal = false;  // judged by the memory floor
  double matrix_goal = 0;    // share of the matrix product's rate that is wanted; 0: none is
  int causal_row = -1;       // place in the set of the row of the same lengths without a window
};

// Best SiLU or softmax peer per row, or the windowed sets, each after its causal twin. `json` is
// one of tools/data/*.json. Peers are left out when lengths are scaled. Errors: kSpec.
struct Rows {
  std::string source, device;
  std::vector<Row> rows;
};
Result<Rows> read_rows(const std::string& json, RowSet set, int scale);
double wanted_matrix_share(const Row& row);
extern const char* const kForwardPeers;  // the data files, built in
extern const char* const kWindowedSets;

// "0,3,9-11": which rows of `count`. Errors: kUsage.
Result<std::vector<bool>> select_rows(const std::string& list, size_t count);

// Random normal values in bf16 (N(0,1)), the same for a seed on any number of processors.
std::vector<uint16_t> random_block(size_t values, uint32_t seed);
// `values` of them from `block`, repeated end to end, from position `offset` on.
void tile(const std::vector<uint16_t>& block, size_t offset, size_t values, uint16_t* out);

// Pauses, warms up, then times single pieces of `work` with device events. `before` is called
// before each, and the last-level cache flushed, outside the timed interval.
struct Work {
  std::function<Status()> before, work;
};
Result<Summary> time_work(Device& device, const Options& options, const Work& work);
// Several in turn, a piece of each: a device under load that lowers its clock does so for all.
Result<std::vector<Summary>> time_in_turn(Device& device, const Options& options,
                                          const std::vector<Work>& works);

struct Validation {
  bool pass = false;
  double error = 0;  // relative Frobenius, of the rows looked at
  int64_t checked = 0;
  std::string why;
};
// Every element must be written and finite; sampled rows (and first, last, and those beside every
// change of the mask) of up to 34 sequences, all heads, agree with double precision.
Validation validate(const Problem& problem, const Geometry& geometry, const HostTensors& inputs,
                    const cli::HostOutput& output, int tile_m);

// The product of two random square matrices by the vendor's library, on the default stream.
class MatrixProduct {
 public:
  virtual ~MatrixProduct() = default;
  virtual double flop() const = 0;
  virtual Status poison() = 0;
  virtual Status run() = 0;
  virtual Status check() = 0;  // of the last run
};
using MakeProduct = std::function<Result<std::unique_ptr<MatrixProduct>>()>;

// A row's launches and matrix products in turn, for about as long each. Alone the products, which
// are short, would run before a card under load has lowered its clock, and a long row after it.
struct InTurn {
  Summary row_ms, product_ms;
  int products = 0;         // one after the other in one piece
  double product_flop = 0;  // of a piece
  std::string why_not;      // not measured: why
};
// A copy of as many bytes as the row's floor counts, half of them read and half written.
struct SameCopy {
  Summary ms;
  std::string why_not;
};

// What came of one row. Only with `valid` do the times mean anything.
struct Measured {
  std::optional<Error> error;
  bool valid = false;
  Summary ms;
  Validation check;  // of the output of the last timed launch
  double useful_flop = 0, dense_flop = 0, bytes = 0;
  double pairs = 0;  // visible, all heads
  std::string kernel, origin;
  std::optional<InTurn> in_turn;      // of rows with a goal at the matrix product
  std::optional<SameCopy> same_copy;  // of rows with a goal at the memory floor
};

class Bench {
 public:
  // product: make_matrix_product's unless given.
  Bench(Device& device, Engine& engine, const Options& options, MakeProduct product = {});
  Measured measure(const Row& row);
  const std::vector<uint16_t>& block() const { return block_; }

 private:
  Status measure_into(const Row& row, Measured& out);
  Result<InTurn> measure_in_turn(const Work& launches, double launch_ms) const;
  HostTensors make_inputs(const Geometry& geometry) const;

  Device& device_;
  Engine& engine_;
  Options options_;
  std::vector<uint16_t> block_;
  MakeProduct product_;
};

// What the device reaches at its best, timed like the rows.
struct Ceiling {
  double rate = 0;  // TFLOP/s, or TB/s read and written; 0: not measured
  Summary ms;
  std::string why_not;
};
struct Ceilings {
  std::vector<Ceiling> matrix, copy;  // at the beginning, at the end
};
inline int64_t matrix_size(const Options& options) { return std::max(128, 8192 / options.scale); }
// bf16, through cuBLAS: options.cublas, else where the loader and CUDA's usual folder have it.
// Errors: kUnsupported elsewhere and without the library; kDevice.
Result<std::unique_ptr<MatrixProduct>> make_matrix_product(Device& device, const Options& options,
                                                           const std::vector<uint16_t>& block);
Ceiling matrix_ceiling(Device& device, const Options& options, const std::vector<uint16_t>& block);
Ceiling copy_ceiling(Device& device, const Options& options, const std::vector<uint16_t>& block);
// Copies `bytes` of random values inside the device, and looks at the last of them.
Result<Summary> time_copy(Device& device, const Options& options,
                          const std::vector<uint16_t>& block, size_t bytes);

// The best rate of several measurements; nullopt when there is none.
std::optional<double> best_rate(const std::vector<Ceiling>& ceilings);

// The figures of a row: nullopt where something they need is missing or the output was not valid.
struct Figures {
  std::optional<double> useful_tflops, dense_tflops, ms, p10, p90, error;
  std::optional<double> ratio;                      // the best peer's time over ours
  std::optional<double> matrix_share;               // useful TFLOP/s over the matrix product's
  std::optional<double> turn_tflops, turn_product;  // of the row and of the product, in turn
  std::optional<double> turn_share;
  std::optional<double> floor_ms, floor_share;  // q, k, v read and o written once, at copy speed
  std::optional<double> per_pair;               // picoseconds
  std::optional<double> cost;                   // per visible pair, over that of the causal row
};
std::vector<Figures> figures_of(const std::vector<Row>& rows, const std::vector<Measured>& measured,
                                const Ceilings& ceilings);

struct Goal {
  std::string text;
  bool judged = false, met = false;
  std::string detail;  // what is missing, row by row
};
std::vector<Goal> judge(RowSet set, const std::vector<Row>& rows, const std::vector<Figures>& all);
// Of the ratios there are; nullopt without any.
std::optional<double> geometric_mean(const std::vector<Figures>& all);

struct Report {
  std::string device, target, description;  // of the run
  Rows rows;
  std::vector<Measured> measured;
  Ceilings ceilings;
  Options options;
};
std::string to_text(const Report& report);
std::string to_json(const Report& report);  // schema hstu-jit/bench-peers/1

}  // namespace hstu::jit::bench
