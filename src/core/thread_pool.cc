#include "core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "core/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace butter {
namespace {

// About 80 us of spinning: longer than the gaps inside a step. Parking in those halves the speed of decoding
// on a quiet machine (154 tokens a second with 500 pauses, 340 with 2,000 on the default model); on a busy
// one, where the thread that is waited for has lost its CPU, spinning longer than that spends the waiter's
// share for nothing.
constexpr int kSpins = 2000;
constexpr int kSpinsOversubscribed = 50;

inline void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Waits until `word` differs from `old`: spins, then parks.
uint32_t wait_for_change(std::atomic<uint32_t>& word, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    const uint32_t now = word.load(std::memory_order_acquire);
    if (now != old) return now;
    pause_cpu();
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

// CPUs that the cgroup's quota allows, or 0 where there is none (cgroup v2: "max 100000" or "200000 100000").
int cgroup_cpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  const double cpus = std::strtod(quota.c_str(), nullptr) / period;
  return std::max(1, static_cast<int>(cpus));
}

}  // namespace

// What the threads of a pool share: the region's number, and a barrier that counts phases.
class Team {
 public:
  explicit Team(int count) : count_(count), spins_(count <= usable_cpus() ? kSpins : kSpinsOversubscribed) {}

  void barrier() {
    if (count_ == 1) return;
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      phase_.notify_all();
    } else {
      wait_for_change(phase_, phase, spins_);
    }
  }

  void start(const std::function<void(const Worker&)>* region) {
    region_ = region;
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }

  // Waits for the region after `seen`; null means that the pool is closing.
  const std::function<void(const Worker&)>* next_region(uint32_t& seen) {
    seen = wait_for_change(generation_, seen, spins_);
    return region_;
  }

 private:
  const int count_;
  const int spins_;
  const std::function<void(const Worker&)>* region_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<int> arrived_{0};
};

IndexRange split(int64_t count, int workers, int index, int64_t grain) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t begin = grains * index / workers * grain;
  const int64_t end = grains * (index + 1) / workers * grain;
  return {std::min(begin, count), std::min(end, count)};
}

void Worker::barrier() const {
  team_->barrier();
}

int usable_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cpus = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) cpus = CPU_COUNT(&mask);
  const int quota = cgroup_cpus();
  if (quota > 0) cpus = std::min(cpus, quota);
  return std::max(1, cpus);
}

ThreadPool::ThreadPool(int threads)
    : threads_(std::max(1, threads)), team_(std::make_unique<Team>(threads_)) {
  for (int index = 1; index < threads_; ++index) others_.emplace_back([this, index] { worker_loop(index); });
}

ThreadPool::~ThreadPool() {
  team_->start(nullptr);
  for (std::thread& thread : others_) thread.join();
}

void ThreadPool::worker_loop(int index) {
  uint32_t seen = 0;
  while (const auto* region = team_->next_region(seen)) {
    (*region)(Worker(team_.get(), index, threads_));
    team_->barrier();
  }
}

void ThreadPool::run(const std::function<void(const Worker&)>& region) {
  if (threads_ > 1) team_->start(&region);
  region(Worker(team_.get(), 0, threads_));
  team_->barrier();
}

}  // namespace butter
