// Where the groups of a panel of a coded weight stand, and the scales that the records of the super forms
// pack.
//
// Included inside the anonymous namespace of a file that defines byte_t and Codes<form>, whose kGroups and
// kRowBytes are 0 in the affine forms: there they are the weight's.

// Bits of a code of an affine form; 0 for the others.
template <LinearForm form>
constexpr int kAffineBits = form == LinearForm::kAffine2   ? 2
                            : form == LinearForm::kAffine3 ? 3
                            : form == LinearForm::kAffine4 ? 4
                            : form == LinearForm::kAffine5 ? 5
                            : form == LinearForm::kAffine6 ? 6
                            : form == LinearForm::kAffine8 ? 8
                                                           : 0;

template <LinearForm form>
constexpr bool kIsAffine = kAffineBits<form> != 0;

inline int scale_bytes(ScaleType type) {
  return type == ScaleType::kF32 ? 4 : 2;
}

// The rows of a weight from `first` on, up to 16.
template <LinearForm form>
struct Panel {
  const byte_t* data;
  int64_t groups;  // of 32 columns
  ScaleType scales;
  int own_groups;     // of the affine forms: in a record
  int own_row_bytes;  // and of one row in it

  Panel(const LinearMatrix& weight, int64_t first) : groups(weight.columns / kGroup), scales(weight.scales) {
    own_groups = weight.group / static_cast<int>(kGroup);
    own_row_bytes = 2 * scale_bytes(scales) + own_groups * 4 * kAffineBits<form>;
    data = reinterpret_cast<const byte_t*>(weight.data) + first * (groups / record_groups()) * row_bytes();
  }

  // Constants to the compiler where every weight of the form has the same.
  inline int record_groups() const { return kIsAffine<form> ? own_groups : Codes<form>::kGroups; }
  inline int row_bytes() const { return kIsAffine<form> ? own_row_bytes : Codes<form>::kRowBytes; }
};

// What a record of a super form packs, a byte each: [sub-block][row].
struct SubScales {
  alignas(64) signed char scale[256];
  alignas(64) signed char minimum[256];
};

// Forms whose scales of sub-blocks are worth unpacking together.
template <LinearForm form>
constexpr bool kPacksScales =
    form == LinearForm::kCodes2Super || form == LinearForm::kCodes3Super ||
    form == LinearForm::kCodes4Super || form == LinearForm::kCodes5Super || form == LinearForm::kLevelsSuper;

// Of a record with n rows; core/dequantise.cc has the bits. All rows and several sub-blocks at once, in loops
// that compilers turn into vector instructions: once a record it is cheaper than picking the bits of each
// group.
template <LinearForm form>
inline void unpack_sub_scales(const byte_t* record, int n, SubScales& sub) {
  const auto code = [](int value) { return static_cast<signed char>(value); };
  if constexpr (form == LinearForm::kCodes2Super) {
    const byte_t* pairs = record + 4 * n;
    for (int i = 0; i < 16 * n; ++i) {
      sub.scale[i] = code(pairs[i] & 15);
      sub.minimum[i] = code(pairs[i] >> 4);
    }
  } else if constexpr (form == LinearForm::kCodes3Super) {
    const byte_t *first = record + 2 * n, *second = first + 4 * n, *top = second + 4 * n;
    for (int i = 0; i < 4 * n; ++i) {
      sub.scale[i] = code(((first[i] & 15) | (top[i] << 4 & 48)) - 32);
      sub.scale[4 * n + i] = code(((second[i] & 15) | (top[i] << 2 & 48)) - 32);
      sub.scale[8 * n + i] = code(((first[i] >> 4) | (top[i] & 48)) - 32);
      sub.scale[12 * n + i] = code(((second[i] >> 4) | (top[i] >> 2 & 48)) - 32);
    }
  } else {
    const byte_t *scales = record + 4 * n, *minima = scales + 4 * n, *both = minima + 4 * n;
    for (int i = 0; i < 4 * n; ++i) {
      sub.scale[i] = code(scales[i] & 63);
      sub.minimum[i] = code(minima[i] & 63);
      sub.scale[4 * n + i] = code((both[i] & 15) | (scales[i] >> 2 & 48));
      sub.minimum[4 * n + i] = code((both[i] >> 4) | (minima[i] >> 2 & 48));
    }
  }
}
