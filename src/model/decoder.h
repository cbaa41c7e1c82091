// build_program: walks a ModelSpec once and writes it down as a Program, loading weights as it goes.
#pragma once

#include "kernels/program.h"
#include "model/model_spec.h"
#include "model/weights.h"

namespace butter {

Result<Program> build_program(const ModelSpec& spec, WeightLoader& weights);

}  // namespace butter
