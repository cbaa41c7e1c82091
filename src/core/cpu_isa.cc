#include "core/cpu_isa.h"

#include <array>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace butter {
namespace {

constexpr std::array<const char*, 4> kNames = {"portable", "avx2", "avx512", "amx"};

#if defined(__x86_64__)

struct CpuidWords {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidWords cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidWords words;
  __get_cpuid_count(leaf, subleaf, &words.eax, &words.ebx, &words.ecx, &words.edx);
  return words;
}

uint64_t enabled_state() {  // XCR0: which register states the operating system saves
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux gives the tile data state only to a process that asks (arch_prctl ARCH_REQ_XCOMP_PERM).
bool request_tile_state() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::vector<Isa> detect() {
  std::vector<Isa> isas = {Isa::kPortable};
  const CpuidWords basic = cpuid(1, 0);
  const bool has_xsave = basic.ecx & (1u << 27);
  if (!has_xsave) return isas;
  const uint64_t state = enabled_state();
  const CpuidWords seven = cpuid(7, 0);
  const CpuidWords seven_one = cpuid(7, 1);
  const auto all = [](uint32_t word, std::initializer_list<int> bits) {
    for (int bit : bits) {
      if (!(word & (1u << bit))) return false;
    }
    return true;
  };
  const bool avx_state = (state & 0x6) == 0x6;
  const bool avx2 = avx_state && all(basic.ecx, {12, 28, 29}) && all(seven.ebx, {3, 5, 8});
  if (!avx2) return isas;
  isas.push_back(Isa::kAvx2);
  const bool avx512_state = (state & 0xe6) == 0xe6;
  const bool avx512 = avx512_state && all(seven.ebx, {16, 17, 30, 31}) && all(seven.ecx, {1, 6, 11}) &&
                      all(seven_one.eax, {5});
  if (!avx512) return isas;
  isas.push_back(Isa::kAvx512);
  const bool tile_state = (state & 0x60000) == 0x60000;
  if (tile_state && all(seven.edx, {22, 24, 25}) && request_tile_state()) isas.push_back(Isa::kAmx);
  return isas;
}

#else

std::vector<Isa> detect() {
  return {Isa::kPortable};
}

#endif

std::string names_of(const std::vector<Isa>& isas) {
  std::string names;
  for (Isa isa : isas) names += (names.empty() ? "" : ", ") + std::string(isa_name(isa));
  return names;
}

}  // namespace

const char* isa_name(Isa isa) {
  return kNames[static_cast<size_t>(isa)];
}

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> isas = detect();
  return isas;
}

Result<Isa> choose_isa() {
  const std::vector<Isa>& available = available_isas();
  const char* forced = std::getenv("BUTTER_ISA");
  if (forced == nullptr || *forced == '\0') return available.back();
  for (Isa isa : available) {
    if (std::strcmp(forced, isa_name(isa)) == 0) return isa;
  }
  for (const char* name : kNames) {
    if (std::strcmp(forced, name) == 0) {
      return fail(StatusCode::kUnsupported, "BUTTER_ISA is {}, which this CPU lacks; it has {}", forced,
                  names_of(available));
    }
  }
  return fail(StatusCode::kInvalidArgument, "BUTTER_ISA is \"{}\"; one of {} is expected", forced,
              names_of(available));
}

std::string cpu_description() {
#if defined(__x86_64__)
  const CpuidWords vendor = cpuid(0, 0);
  const CpuidWords basic = cpuid(1, 0);
  std::array<char, 13> name{};
  std::memcpy(name.data(), &vendor.ebx, 4);
  std::memcpy(name.data() + 4, &vendor.edx, 4);
  std::memcpy(name.data() + 8, &vendor.ecx, 4);
  const uint32_t family = ((basic.eax >> 8) & 0xf) + ((basic.eax >> 20) & 0xff);
  const uint32_t model = ((basic.eax >> 4) & 0xf) | ((basic.eax >> 12) & 0xf0);
  return fmt::format("{} family {} model {}: {}", name.data(), family, model, names_of(available_isas()));
#else
  return names_of(available_isas());
#endif
}

}  // namespace butter
