// From a weight's form to the template that multiplies it: what LinearKernels calls.
//
// Included inside the anonymous namespace of a file that defines multiply_codes and multiply_floats.

void codes(const LinearMatrix& weight, const Int8Rows& rows, int64_t begin, int64_t end,
           const LinearTarget& target) {
  switch (weight.form) {
    case LinearForm::kCodes4:
      return multiply_codes<LinearForm::kCodes4>(weight, rows, begin, end, target);
    case LinearForm::kCodes4Bias:
      return multiply_codes<LinearForm::kCodes4Bias>(weight, rows, begin, end, target);
    case LinearForm::kCodes8:
      return multiply_codes<LinearForm::kCodes8>(weight, rows, begin, end, target);
    case LinearForm::kCodes4Super:
      return multiply_codes<LinearForm::kCodes4Super>(weight, rows, begin, end, target);
    case LinearForm::kCodes6Super:
      return multiply_codes<LinearForm::kCodes6Super>(weight, rows, begin, end, target);
    case LinearForm::kCodes5:
      return multiply_codes<LinearForm::kCodes5>(weight, rows, begin, end, target);
    case LinearForm::kCodes5Bias:
      return multiply_codes<LinearForm::kCodes5Bias>(weight, rows, begin, end, target);
    case LinearForm::kCodes5Super:
      return multiply_codes<LinearForm::kCodes5Super>(weight, rows, begin, end, target);
    case LinearForm::kCodes2Super:
      return multiply_codes<LinearForm::kCodes2Super>(weight, rows, begin, end, target);
    case LinearForm::kCodes3Super:
      return multiply_codes<LinearForm::kCodes3Super>(weight, rows, begin, end, target);
    case LinearForm::kLevels:
      return multiply_codes<LinearForm::kLevels>(weight, rows, begin, end, target);
    case LinearForm::kLevelsSuper:
      return multiply_codes<LinearForm::kLevelsSuper>(weight, rows, begin, end, target);
    case LinearForm::kLevelsFp4:
      return multiply_codes<LinearForm::kLevelsFp4>(weight, rows, begin, end, target);
    case LinearForm::kAffine2:
      return multiply_codes<LinearForm::kAffine2>(weight, rows, begin, end, target);
    case LinearForm::kAffine3:
      return multiply_codes<LinearForm::kAffine3>(weight, rows, begin, end, target);
    case LinearForm::kAffine4:
      return multiply_codes<LinearForm::kAffine4>(weight, rows, begin, end, target);
    case LinearForm::kAffine5:
      return multiply_codes<LinearForm::kAffine5>(weight, rows, begin, end, target);
    case LinearForm::kAffine6:
      return multiply_codes<LinearForm::kAffine6>(weight, rows, begin, end, target);
    case LinearForm::kAffine8:
      return multiply_codes<LinearForm::kAffine8>(weight, rows, begin, end, target);
    default:
      return;
  }
}

void floats(const LinearMatrix& weight, const FloatRows& rows, int64_t begin, int64_t end,
            const LinearTarget& target) {
  switch (weight.form) {
    case LinearForm::kF32:
      return multiply_floats<LinearForm::kF32>(weight, rows, begin, end, target);
    case LinearForm::kF16:
      return multiply_floats<LinearForm::kF16>(weight, rows, begin, end, target);
    case LinearForm::kBF16:
      return multiply_floats<LinearForm::kBF16>(weight, rows, begin, end, target);
    default:
      return;
  }
}
