#include "cache/cache_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>

#include "cache/cache_file_testing.h"
#include "cache/cache_testing.h"
#include "kernels/row_format.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

using testing::AllOf;
using testing::HasSubstr;

CacheFileContext small_context() {
  CacheFileContext context;
  context.model = "small-5x16-0123";
  return context;
}

CacheOptions options_of(const KvScheme& scheme, Window window = {}, int64_t max_context = 100000) {
  CacheOptions options;
  options.scheme = scheme;
  options.window = window;
  options.max_context = max_context;
  options.prefill_rows = 128;
  return options;
}

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::vector<int32_t> ids_of(const TestSequence& sequence) {
  return {sequence.tokens.begin(), sequence.tokens.end()};
}

void save(const TestSequence& sequence, const std::string& path) {
  const Status saved = save_cache(sequence.caches, ids_of(sequence), small_context(), path);
  ASSERT_TRUE(saved) << saved.error().message();
}

// A second sequence, from a file.
TestSequence loaded(const TestSequence& like, const TestPool& pool, const std::string& path) {
  TestSequence sequence = make_sequence(small_model(), like.caches.layout().options, pool);
  std::vector<int32_t> ids;
  const Status status = load_cache(sequence.caches, &ids, small_context(), path);
  EXPECT_TRUE(status) << status.error().message();
  sequence.tokens.assign(ids.begin(), ids.end());
  return sequence;
}

// --- Round trips

struct Case {
  TestScheme scheme;
  bool plain;
  Window window;
  const char* name;

  KvScheme kv_scheme() const {
    KvScheme made = test_scheme(scheme);
    made.plain = plain;
    return made;
  }
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

const Case kCases[] = {
    {TestScheme::kRaw, false, {0, 0}, "Raw"},
    {TestScheme::kRaw, false, {65, 4}, "RawWindow65Keep4"},
    {TestScheme::kRaw, false, {200, 100}, "RawWindow200Keep100"},
    {TestScheme::kStamps, false, {0, 0}, "Sealed"},
    {TestScheme::kStamps, true, {0, 0}, "SealedPlain"},
    {TestScheme::kStamps, false, {65, 4}, "SealedWindow65Keep4"},
    {TestScheme::kStamps, true, {100, 4}, "SealedPlainWindow100Keep4"},
    {TestScheme::kStamps, false, {200, 100}, "SealedWindow200Keep100"},
    {TestScheme::kStampedKeys, false, {100, 0}, "SealedKeysWindow100Keep0"},
};

class CacheFileTest : public testing::TestWithParam<Case> {
 protected:
  TestSequence sequence() const {
    return make_sequence(small_model(), options_of(GetParam().kv_scheme(), GetParam().window), pool_);
  }
  // Saves, loads, and finds the same.
  void expect_round_trip(const TestSequence& sequence) {
    save(sequence, folder_.file("a"));
    TestSequence twin = loaded(sequence, pool_, folder_.file("a"));
    ASSERT_EQ(twin.caches.position(), sequence.caches.position());
    ASSERT_EQ(twin.tokens, sequence.tokens);
    for (size_t i = 0; i < twin.caches.layout().classes.size(); ++i)
      ASSERT_EQ(twin.caches.blocks(i).runs, sequence.caches.blocks(i).runs);
    if (sequence.caches.position() > 0) {
      ASSERT_EQ(twin.caches.held_bytes(), sequence.caches.held_bytes());
    }
    save(twin, folder_.file("b"));
    ASSERT_EQ(file_bytes(folder_.file("a")), file_bytes(folder_.file("b")));
    expect_intact(twin);
    feed_many(twin, 150, 64, 5);
    expect_intact(twin);
  }

  TempDir folder_;
  TestPool pool_;
};

INSTANTIATE_TEST_SUITE_P(Cases, CacheFileTest, testing::ValuesIn(kCases),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(CacheFileTest, SavedSequenceGoesOnFromEveryKindOfPosition) {
  TestSequence sequence = this->sequence();
  for (int64_t position : {0, 1, 3, 4, 63, 64, 65, 128, 208, 450}) {
    SCOPED_TRACE(position);
    feed_many(sequence, position - sequence.caches.position(), 128, static_cast<uint32_t>(position));
    expect_round_trip(sequence);
    if (HasFatalFailure()) return;
  }
}

TEST_P(CacheFileTest, ForkedAndTruncatedSequencesAreSavedAsOthersAre) {
  TestSequence parent = sequence();
  feed_many(parent, 450, 128);
  for (int64_t position : {449, 384, 130, 63, 0}) {
    SCOPED_TRACE(position);
    TestSequence twin = fork(parent);
    truncate(twin, position);
    feed_many(twin, position % 2 * 20, 7, 3);
    expect_round_trip(twin);
    if (HasFatalFailure()) return;
  }
  expect_intact(parent);
}

TEST_P(CacheFileTest, NothingStaysLeasedOnceAllAreGone) {
  {
    TestSequence sequence = this->sequence();
    feed_many(sequence, 208, 128);
    expect_round_trip(sequence);
  }
  EXPECT_EQ(pool_.pool->leased_bytes(), 0);
}

// --- Refusals

// A small file, and a sequence that would take it.
class CacheFileRefusalTest : public testing::Test {
 protected:
  CacheFileRefusalTest() : sequence_(make_sequence(tiny_model(), options(), pool_)) {
    feed_many(sequence_, 66, 64);
    save(sequence_, path());
  }
  static CacheModel tiny_model() {
    CacheModel model;
    model.layers = 1;
    model.kv_layers = {{0, 1, 8, 4, 0}};
    model.window_classes = {Window{}};
    return model;
  }
  static CacheOptions options() { return options_of(test_scheme(TestScheme::kStamps), {}, 1000); }
  std::string path() const { return folder_.file("cache"); }

  // The refusal; a sequence that has nothing yet, and the tokens, stay as they were.
  Status load(const CacheOptions& options, const CacheFileContext& context = small_context()) const {
    TestSequence target = make_sequence(tiny_model(), options, pool_);
    std::vector<int32_t> ids = {7};
    const int64_t leased = pool_.pool->leased_bytes();
    Status status = load_cache(target.caches, &ids, context, path());
    if (!status) {
      EXPECT_EQ(pool_.pool->leased_bytes(), leased);
      EXPECT_EQ(target.caches.position(), 0);
      EXPECT_EQ(ids, std::vector<int32_t>{7});
    }
    return status;
  }
  void expect_refused(const Status& status, StatusCode code, const testing::Matcher<std::string>& message) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code(), code) << status.error().message();
    EXPECT_THAT(status.error().message(), message);
  }
  // The file with another text in its header, or with one byte changed, and checksums that are right.
  void forge(const std::string& from, const std::string& to) {
    std::string bytes = file_bytes(path());
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, from.size(), to);
    uint32_t header = 0;
    std::memcpy(&header, bytes.data() + 12, sizeof header);
    header += static_cast<uint32_t>(to.size() - from.size());
    std::memcpy(bytes.data() + 12, &header, sizeof header);
    mend_cache_file(bytes);
    write_file(path(), bytes);
  }

  TempDir folder_;
  TestPool pool_;
  TestSequence sequence_;
};

TEST_F(CacheFileRefusalTest, TheFileItselfIsTaken) {
  EXPECT_TRUE(load(options()));
}

TEST_F(CacheFileRefusalTest, AnyByteThatIsChangedIsFound) {
  const std::string bytes = file_bytes(path());
  const int file = ::open(path().c_str(), O_WRONLY);
  ASSERT_GE(file, 0);
  const size_t stride = kSanitized ? 7 : 1;
  for (size_t at = 0; at < bytes.size(); at += stride) {
    const auto changed = static_cast<char>(bytes[at] ^ (1 << at % 8));
    ASSERT_EQ(::pwrite(file, &changed, 1, static_cast<off_t>(at)), 1);
    const Status status = load(options());
    ASSERT_FALSE(status) << "byte " << at;
    ASSERT_FALSE(status.error().message().empty());
    ASSERT_EQ(::pwrite(file, &bytes[at], 1, static_cast<off_t>(at)), 1);
  }
  ::close(file);
  EXPECT_TRUE(load(options()));
}

TEST_F(CacheFileRefusalTest, AnyOtherLengthIsFound) {
  const std::string bytes = file_bytes(path());
  write_file(path(), bytes + "x");
  expect_refused(load(options()), StatusCode::kCorrupt,
                 HasSubstr(fmt::format("has {} bytes; {} are expected", bytes.size() + 1, bytes.size())));
  for (size_t length = bytes.size(); length-- > 0;) {
    ASSERT_EQ(::truncate(path().c_str(), static_cast<off_t>(length)), 0);
    ASSERT_FALSE(load(options())) << length << " bytes";
  }
  expect_refused(load(options()), StatusCode::kCorrupt, HasSubstr("0 bytes"));
}

TEST_F(CacheFileRefusalTest, FilesOfAnotherKindNameBothSides) {
  CacheFileContext other = small_context();
  other.model = "large-80x8192-4567";
  expect_refused(load(options(), other), StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("\"small-5x16-0123\""), HasSubstr("\"large-80x8192-4567\"")));
  CacheOptions raw = options();
  raw.scheme = test_scheme(TestScheme::kRaw);
  expect_refused(load(raw), StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("\"stamps\""), HasSubstr("\"raw\""), HasSubstr("--kv-cache")));
  CacheOptions plain = options();
  plain.scheme.plain = true;
  expect_refused(load(plain), StatusCode::kInvalidArgument, HasSubstr("\"stamps:plain\""));
  CacheOptions wide = options();
  wide.scheme.raw = DType::kF32;
  expect_refused(load(wide), StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(dtype_name(DType::kF16)), HasSubstr(dtype_name(DType::kF32))));
  CacheOptions windowed = options();
  windowed.window = {100, 4};
  expect_refused(load(windowed), StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("[0,0]"), HasSubstr("[100,4]"), HasSubstr("--kv-window-size")));
  CacheOptions shorter = options();
  shorter.max_context = 65;
  expect_refused(load(shorter), StatusCode::kLimit, AllOf(HasSubstr("66"), HasSubstr("65")));
  shorter.max_context = 66;
  EXPECT_TRUE(load(shorter));
}

TEST_F(CacheFileRefusalTest, WhatIsNoCacheFileIsToldFromADamagedOne) {
  write_file(path(), "[\n {\"role\": \"user\", \"content\": \"hello, and a few words more\"}\n]\n");
  expect_refused(load(options()), StatusCode::kInvalidArgument, HasSubstr("no saved cache"));
  write_file(path(), "");
  expect_refused(load(options()), StatusCode::kCorrupt, HasSubstr("cut"));
  ASSERT_EQ(::unlink(path().c_str()), 0);
  expect_refused(load(options()), StatusCode::kNotFound, HasSubstr("cannot be opened"));
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  expect_refused(load(options()), StatusCode::kInvalidArgument, HasSubstr("no file"));
  ASSERT_EQ(::unlink(path().c_str()), 0);
  ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
  expect_refused(load(options()), StatusCode::kInvalidArgument, HasSubstr("no file"));
}

TEST_F(CacheFileRefusalTest, AnotherLayoutVersionIsNamed) {
  std::string bytes = file_bytes(path());
  bytes[8] = 3;
  mend_cache_file(bytes);
  write_file(path(), bytes);
  expect_refused(load(options()), StatusCode::kUnsupported, HasSubstr("version 3; 2 is expected"));
}

// The checksum is no secret.
TEST_F(CacheFileRefusalTest, ForgedHeadersAreRefusedByTheirSense) {
  struct Forgery {
    const char* from;
    const char* to;
    const char* message;
  };
  const Forgery forgeries[] = {{"\"position\":66", "\"position\":67", "bytes"},
                               {"\"position\":66", "\"position\":2", "bytes"},
                               {"\"position\":66", "\"position\":-66", "position"},
                               {"\"position\":66", "\"position\":66.0", "position"},
                               {"\"position\":66", "\"position\":18446744073709551615", "position"},
                               {"\"position\":66", "\"position\":9223372036854775808", "position"},
                               {"\"position\":66", "\"position\":1e300", "position"},
                               {"\"position\":66", "\"position\":\"66\"", "position"},
                               {"\"position\":66", "\"position\":900", "bytes"},
                               {"\"position\":66", "\"pos\":66", "position"},
                               {"\"tokens\":66", "\"tokens\":65", "tokens"},
                               {"\"tokens\":66", "\"tokens\":0", "bytes"},
                               {"\"tokens\":66", "\"tokens\":null", "tokens"},
                               {"[[0,0,1]]", "[[0,1,1]]", "pages"},
                               {"[[0,0,1]]", "[[0,0,-1]]", "pages"},
                               {"[[0,0,1]]", "[]", "pages"},
                               {"[[0,0,1]]", "{}", "pages"},
                               {"\"kv_cache\":\"stamps\"", "\"kv_cache\":[\"\\u0007\"]", "--kv-cache"},
                               {"{\"model\"", "[\"model\"", "JSON"},
                               {"{\"model\"", "{{{{{{{{", "JSON"}};
  const std::string original = file_bytes(path());
  for (const Forgery& forgery : forgeries) {
    write_file(path(), original);
    ASSERT_NO_FATAL_FAILURE(forge(forgery.from, forgery.to));
    const Status status = load(options());
    ASSERT_FALSE(status) << forgery.to;
    // Where position, tokens and pages disagree, any may be named.
    EXPECT_THAT(status.error().message(),
                testing::AnyOf(HasSubstr(forgery.message), HasSubstr("tokens"), HasSubstr("pages")))
        << forgery.to;
  }
}

TEST_F(CacheFileRefusalTest, ForgedRowsThatNoStepWritesAreRefused) {
  const std::string original = file_bytes(path());
  std::string bytes = original;
  // The last open row, of values: the four f16 before the checksum.
  bytes[bytes.size() - 16 - 1] = 0x7c;
  bytes[bytes.size() - 16 - 2] = 0;
  mend_cache_file(bytes);
  write_file(path(), bytes);
  expect_refused(load(options()), StatusCode::kCorrupt,
                 HasSubstr("layer 0 has a value that is NaN or infinite"));
  // The block of 64-byte multiples ends with the tail of its one head, then zeros; the open rows come after.
  const size_t open_bytes = 2 * (8 + 4) * 2;
  const int64_t block = sequence_.caches.layout().classes[0].sealed.bytes;
  const int64_t tail = sequence_.caches.layout().classes[0].sealed.layers[0].heads[0].tail;
  const size_t at = original.size() - 16 - open_bytes - static_cast<size_t>(block - tail);
  for (size_t byte : {size_t{2}, size_t{7}, size_t{8}, size_t{15}}) {
    bytes = original;
    bytes[at + byte] = 1;
    mend_cache_file(bytes);
    write_file(path(), bytes);
    expect_refused(
        load(options()), StatusCode::kCorrupt,
        HasSubstr(byte < 8 ? "layer 0 has keys that were coded with centre" : "layer 0 has a tail"));
  }
}

TEST_F(CacheFileRefusalTest, WhatTheBudgetCannotHoldIsRefused) {
  for (int64_t budget : {1, 1300, 2700}) {
    TestPool small(budget);
    TestSequence target = make_sequence(tiny_model(), options(), small);
    std::vector<int32_t> ids = {7};
    expect_refused(load_cache(target.caches, &ids, small_context(), path()), StatusCode::kOutOfMemory,
                   HasSubstr("bytes"));
    EXPECT_EQ(small.pool->leased_bytes(), 0);
    EXPECT_EQ(ids, std::vector<int32_t>{7});
  }
}

// --- Writing

TEST_F(CacheFileRefusalTest, SavingWithOtherTokensIsRefused) {
  expect_refused(save_cache(sequence_.caches, std::vector<int32_t>(65), small_context(), folder_.file("new")),
                 StatusCode::kInvalidArgument, AllOf(HasSubstr("65"), HasSubstr("66")));
  EXPECT_EQ(::access(folder_.file("new").c_str(), F_OK), -1);
}

TEST_F(CacheFileRefusalTest, SavedFilesHaveTheUsersMode) {
  const mode_t before = ::umask(0027);
  save(sequence_, folder_.file("new"));
  ::umask(before);
  struct stat info;
  ASSERT_EQ(::stat(folder_.file("new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, mode_t{0640});
}

TEST_F(CacheFileRefusalTest, WhereNoFileCanBeItSaysSo) {
  const auto refusal = [&](const std::string& where) {
    return save_cache(sequence_.caches, {}, small_context(), where);
  };
  expect_refused(refusal(folder_.file("missing/cache")), StatusCode::kIo, HasSubstr("No such file"));
  expect_refused(refusal(folder_.path()), StatusCode::kInvalidArgument, HasSubstr("no file"));
  expect_refused(refusal("/dev/null"), StatusCode::kInvalidArgument, HasSubstr("no file"));
  expect_refused(refusal(""), StatusCode::kInvalidArgument, HasSubstr("empty"));
}

// A disk that is full, played by a limit on the size of files.
TEST_F(CacheFileRefusalTest, SaveThatFailsLeavesTheFileBefore) {
  const std::string before = file_bytes(path());
  TestSequence longer = fork(sequence_);
  feed_many(longer, 100, 64);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {2048, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = save_cache(longer.caches, {}, small_context(), path());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  expect_refused(status, StatusCode::kIo, HasSubstr("cannot be written"));
  EXPECT_EQ(file_bytes(path()), before);
  const std::filesystem::directory_iterator entries(folder_.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

// --- The order of a device's bytes

TEST(CacheFile, EveryFormatComesBackFromTheExchangeForm) {
  std::mt19937 random(11);
  for (const RowFormat* format : row_formats()) {
    for (int dim : {8, 16, 24, 32, 40, 64, 80, 96, 112, 128, 192, 256}) {
      for (Side side : {Side::kKey, Side::kValue}) {
        if (!format->takes_dim(dim)) continue;
        RowShape shape{dim, DType::kF16, 3, side, format->bits, format->group};
        const auto bytes = static_cast<size_t>(format->record_bytes(shape));
        std::vector<std::byte> exchange(bytes);
        for (std::byte& b : exchange) b = static_cast<std::byte>(random());
        std::optional<std::vector<std::byte>> in_memory;
        for (Isa isa : available_isas()) {
          const RowCodec& codec = *format->cpu(isa);
          ASSERT_EQ(codec.export_record == nullptr, codec.import_record == nullptr);
          if (codec.export_record == nullptr) continue;
          std::vector<std::byte> record(bytes), back(bytes);
          codec.import_record(shape, exchange.data(), record.data());
          codec.export_record(shape, record.data(), back.data());
          EXPECT_EQ(back, exchange) << format->name << " d " << dim << " " << isa_name(isa);
          // One order for all, so that a cache may move between them.
          EXPECT_EQ(in_memory.value_or(record), record)
              << format->name << " d " << dim << " " << isa_name(isa);
          in_memory = record;
        }
      }
    }
  }
}

}  // namespace
}  // namespace butter
