// ThreadPool: a team of threads made for decode steps, which are many short parallel phases in a row.
//
// run() starts one region on all threads; inside it, a worker owns a fixed slice of every loop (split())
// and meets the others at barrier(). Workers spin for a bounded time between regions and then park in the
// kernel, so an idle engine uses no CPU. Work is split by arithmetic on (items, workers), and reductions
// are laid out by the caller in an order that does not depend on the number of workers: results are the
// same, bit for bit, with one thread and with many.
//
// One region at a time: run() may be called from any thread, but not from two at once (the engine's step
// lock sees to it) and not from within a region.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace butter {

struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// The part of [0, count) that worker `index` of `workers` owns; parts are multiples of `grain` but for the
// last.
IndexRange split(int64_t count, int workers, int index, int64_t grain = 1);

class Team;

// One worker's place in a region.
class Worker {
 public:
  Worker(Team* team, int index, int count) : team_(team), index_(index), count_(count) {}
  int index() const { return index_; }
  int count() const { return count_; }
  IndexRange slice(int64_t items, int64_t grain = 1) const { return split(items, count_, index_, grain); }
  // Waits until every worker of the region is here; what they wrote before is then visible to all.
  void barrier() const;

 private:
  Team* team_;
  int index_;
  int count_;
};

// CPUs that this process may use: its affinity mask, capped by the cgroup's CPU quota; at least 1.
int usable_cpus();

class ThreadPool {
 public:
  // `threads` in all, the caller of run() among them; at least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  // Runs region(worker) on every thread and returns when all have finished. region must not throw.
  void run(const std::function<void(const Worker&)>& region);

 private:
  void worker_loop(int index);

  const int threads_;
  std::unique_ptr<Team> team_;
  std::vector<std::thread> others_;
};

}  // namespace butter
