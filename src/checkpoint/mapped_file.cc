#include "checkpoint/mapped_file.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <system_error>

#include "checkpoint/printable.h"

namespace butter {
namespace {

// --- The table of mappings that the signal handler reads -------------------------------------------
// Fixed and lock-free, because a handler may neither allocate nor lock. A slot is free while `begin` is
// 0; it is claimed with kClaimed, which no fault address is inside of since `end` is 0 until then.
struct Slot {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> damaged{false};
};
static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

constexpr uintptr_t kClaimed = 1;
constexpr size_t kSlots = 1024;
std::array<Slot, kSlots> slots;
std::atomic<int> damaged_mappings{0};
std::atomic<uintptr_t> page_bytes{4096};
struct sigaction previous_action;

uintptr_t address_of(const std::byte* at) {
  return reinterpret_cast<uintptr_t>(at);
}
uintptr_t round_down(uintptr_t address) {
  return address & ~(page_bytes.load() - 1);
}
uintptr_t round_up(uintptr_t address) {
  return round_down(address + page_bytes.load() - 1);
}

// A slot for the mapping, or kSlots if all are taken.
size_t register_mapping(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < kSlots; ++i) {
    uintptr_t free = 0;
    if (!slots[i].begin.compare_exchange_strong(free, kClaimed)) continue;
    slots[i].damaged.store(false);
    slots[i].end.store(round_up(address_of(bytes.data()) + bytes.size()));
    slots[i].begin.store(address_of(bytes.data()));
    return i;
  }
  return kSlots;
}

void unregister_mapping(size_t i) {
  if (slots[i].damaged.load()) damaged_mappings.fetch_sub(1);
  slots[i].end.store(0);
  slots[i].begin.store(0);
}

// Puts zero pages over the rest of the mapping that holds `address`. False if none does.
bool cover_with_zeros(uintptr_t address) {
  for (Slot& slot : slots) {
    const uintptr_t begin = slot.begin.load();
    const uintptr_t end = slot.end.load();
    if (begin <= kClaimed || address < begin || address >= end) continue;
    if (slot.begin.load() != begin) continue;  // the slot changed hands between the two loads
    const uintptr_t page = round_down(address);
    void* mapped = ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (mapped == MAP_FAILED) return false;
    if (!slot.damaged.exchange(true)) damaged_mappings.fetch_add(1);
    return true;
  }
  return false;
}

// Async-signal-safe: atomics and system calls only.
void on_sigbus(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool fault = info->si_code > 0;  // raised by the kernel, not sent by kill()
  if (fault && cover_with_zeros(reinterpret_cast<uintptr_t>(info->si_addr))) {
    errno = saved_errno;
    return;
  }
  errno = saved_errno;
  if (previous_action.sa_flags & SA_SIGINFO) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler == SIG_IGN && !fault) {
    return;
  } else if (previous_action.sa_handler == SIG_DFL || previous_action.sa_handler == SIG_IGN) {
    // A fault comes again when the handler returns, and then dies of its true cause.
    ::signal(signal, SIG_DFL);
    if (!fault) ::raise(signal);
  } else {
    previous_action.sa_handler(signal);
  }
}

}  // namespace

MappedFile::MappedFile(std::string path, FileDescriptor descriptor, std::span<const std::byte> bytes,
                       size_t slot)
    : path_(std::move(path)), descriptor_(std::move(descriptor)), bytes_(bytes), slot_(slot) {}

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  page_bytes.store(static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)));
  BUTTER_ASSIGN(RegularFile file, open_regular_file(path));
  if (file.bytes == 0) return fail(StatusCode::kCorrupt, "{} is empty", printable(path, 500));
  void* address = ::mmap(nullptr, file.bytes, PROT_READ, MAP_SHARED, file.descriptor.get(), 0);
  if (address == MAP_FAILED) {
    return fail(StatusCode::kIo, "{} cannot be mapped: {}", printable(path, 500),
                std::generic_category().message(errno));
  }
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(address), file.bytes);
  const size_t slot = register_mapping(bytes);
  if (slot == kSlots) {
    ::munmap(address, file.bytes);
    return fail(StatusCode::kLimit, "{} cannot be mapped: {} files are mapped already", printable(path, 500),
                kSlots);
  }
  return std::shared_ptr<MappedFile>(new MappedFile(path, std::move(file.descriptor), bytes, slot));
}

MappedFile::~MappedFile() {
  unregister_mapping(slot_);
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::drop_pages(std::span<const std::byte> part) const {
  const uintptr_t begin = std::max(round_up(address_of(part.data())), address_of(bytes_.data()));
  const uintptr_t end = std::min(round_down(address_of(part.data()) + part.size()),
                                 round_up(address_of(bytes_.data()) + bytes_.size()));
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void MappedFile::prefetch(std::span<const std::byte> part) const {
  const uintptr_t begin = std::max(round_down(address_of(part.data())), address_of(bytes_.data()));
  const uintptr_t end = std::min(round_up(address_of(part.data()) + part.size()),
                                 round_up(address_of(bytes_.data()) + bytes_.size()));
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

bool MappedFile::damaged() const {
  return slots[slot_].damaged.load();
}

Status MappedFile::check_undamaged() const {
  struct stat info;
  const bool whole =
      ::fstat(descriptor_.get(), &info) == 0 && static_cast<uint64_t>(info.st_size) >= bytes_.size();
  if (whole && !damaged()) return {};
  return fail(StatusCode::kIo, "{} was truncated or could not be read while it was in use",
              printable(path_, 500));
}

void install_truncation_guard() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Stored before ours is in place: the handler must never see it unset.
    ::sigaction(SIGBUS, nullptr, &previous_action);
    struct sigaction action = {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, nullptr);
  });
}

bool any_mapping_damaged() {
  return damaged_mappings.load(std::memory_order_relaxed) > 0;
}

}  // namespace butter
