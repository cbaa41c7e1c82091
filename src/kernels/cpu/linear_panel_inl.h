// Where the groups of a panel of a coded weight stand.
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
  inline int record_groups() const { return kAffineBits<form> > 0 ? own_groups : Codes<form>::kGroups; }
  inline int row_bytes() const { return kAffineBits<form> > 0 ? own_row_bytes : Codes<form>::kRowBytes; }
};

// A walk over the groups of a panel of `lanes` rows.
template <LinearForm form>
struct GroupPlace {
  const byte_t* record;
  int index = 0;  // in its record

  inline void step(const Panel<form>& panel, int lanes) {
    if (++index < panel.record_groups()) return;
    index = 0;
    record += panel.row_bytes() * lanes;
  }
};
