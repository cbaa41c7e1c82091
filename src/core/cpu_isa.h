// Isa: the instruction sets that the CPU kernels are written for, and which one to use on this machine.
//
// Sets are ordered: a CPU that has one has all before it, for our purposes. BUTTER_ISA=portable|avx2|
// avx512|amx forces one (it must be one that the CPU has).
#pragma once

#include <string>
#include <vector>

#include "core/status.h"

namespace butter {

enum class Isa {
  kPortable,  // whatever the compiler's baseline is, through Highway and plain C++
  kAvx2,      // AVX2, FMA, F16C
  kAvx512,    // AVX-512 F BW DQ VL, VNNI, VBMI, BF16
  kAmx,       // kAvx512 and AMX tiles for bf16 and int8
};

const char* isa_name(Isa isa);

// The sets that this CPU and operating system have, in order; kPortable always. Asks the kernel for the
// AMX tile state once. Thread-safe.
const std::vector<Isa>& available_isas();

// The best available, or the one that BUTTER_ISA names. An unknown name, or one that the CPU lacks, is an
// error that lists what there is.
Result<Isa> choose_isa();

// "GenuineIntel family 6 model 167: avx2 avx512f ... amx_tile", for reports.
std::string cpu_description();

}  // namespace butter
