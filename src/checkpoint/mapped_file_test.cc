#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/gguf_writer.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

using testing::HasSubstr;

std::string open_error(const std::string& path) {
  const auto file = MappedFile::open(path);
  return file ? "opened" : file.error().message();
}

long page_bytes() {
  return ::sysconf(_SC_PAGESIZE);
}

TEST(MappedFile, ShowsTheBytesOfAFile) {
  const TempDir dir;
  write_test_file(dir.file("x"), "butter");
  const auto file = MappedFile::open(dir.file("x"));
  ASSERT_TRUE(file);
  ASSERT_EQ((*file)->bytes().size(), 6u);
  EXPECT_EQ(std::memcmp((*file)->bytes().data(), "butter", 6), 0);
  EXPECT_FALSE((*file)->damaged());
}

TEST(MappedFile, RefusesWhatIsNoFileWithOneSentence) {
  const TempDir dir;
  EXPECT_EQ(open_error(dir.file("none")), dir.file("none") + " cannot be opened: No such file or directory");
  EXPECT_EQ(open_error(dir.path()), dir.path() + " is a directory; a file is expected");
  write_test_file(dir.file("empty"), "");
  EXPECT_EQ(open_error(dir.file("empty")), dir.file("empty") + " is empty");
  EXPECT_EQ(open_error(dir.file("empty") + "/x"), dir.file("empty") + "/x cannot be opened: Not a directory");
  EXPECT_EQ(open_error("/dev/null"), "/dev/null is a device; a file is expected");
  EXPECT_EQ(open_error(""), "a file name is empty");
  EXPECT_THAT(open_error(std::string("a\0b", 3)), HasSubstr("NUL"));
}

TEST(MappedFile, AFifoWithoutWriterDoesNotBlock) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  EXPECT_EQ(open_error(dir.file("fifo")), dir.file("fifo") + " is a FIFO; a file is expected");
}

TEST(MappedFile, RefusesAnUnreadableFile) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads every file";
  const TempDir dir;
  write_test_file(dir.file("x"), "butter");
  ASSERT_EQ(::chmod(dir.file("x").c_str(), 0), 0);
  EXPECT_THAT(open_error(dir.file("x")), HasSubstr("Permission denied"));
}

TEST(MappedFile, DroppedAndPrefetchedPagesKeepTheirBytes) {
  const TempDir dir;
  const auto size = static_cast<size_t>(3 * page_bytes() + 5);
  write_test_file(dir.file("x"), std::string(size, 'b'));
  const auto file = *MappedFile::open(dir.file("x"));
  const auto bytes = file->bytes();
  file->prefetch(bytes);
  file->prefetch(bytes.subspan(1, 1));
  file->drop_pages(bytes.subspan(1));
  file->drop_pages(bytes.subspan(7, 3));
  file->drop_pages({});
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{'b'}), static_cast<long>(size));
}

TEST(MappedFile, ATruncatedFileReadsAsZerosAndIsDamaged) {
  install_truncation_guard();
  install_truncation_guard();
  const TempDir dir;
  const auto page = static_cast<size_t>(page_bytes());
  write_test_file(dir.file("x"), std::string(4 * page + 9, 'b'));
  write_test_file(dir.file("other"), std::string(page, 'o'));
  {
    const auto file = *MappedFile::open(dir.file("x"));
    const auto other = *MappedFile::open(dir.file("other"));
    ASSERT_EQ(::truncate(dir.file("x").c_str(), static_cast<off_t>(2 * page)), 0);
    EXPECT_EQ(file->bytes()[page], std::byte{'b'});
    EXPECT_FALSE(file->damaged());
    EXPECT_FALSE(any_mapping_damaged());

    EXPECT_EQ(file->bytes()[3 * page], std::byte{0});
    EXPECT_EQ(file->bytes()[4 * page + 8], std::byte{0});
    EXPECT_TRUE(file->damaged());
    EXPECT_TRUE(any_mapping_damaged());
    // A second fault, below the first.
    EXPECT_EQ(file->bytes()[2 * page], std::byte{0});
    EXPECT_EQ(file->bytes()[0], std::byte{'b'});
    EXPECT_FALSE(other->damaged());
  }
  EXPECT_FALSE(any_mapping_damaged());
  EXPECT_FALSE((*MappedFile::open(dir.file("x")))->damaged());
}

TEST(MappedFile, ACutInsideTheLastPageIsSeenWhenAsked) {
  const TempDir dir;
  write_test_file(dir.file("x"), std::string(100, 'b'));
  const auto file = *MappedFile::open(dir.file("x"));
  EXPECT_TRUE(file->check_undamaged());
  ASSERT_EQ(::truncate(dir.file("x").c_str(), 99), 0);
  EXPECT_FALSE(file->damaged());
  EXPECT_EQ(file->check_undamaged().error().message(),
            dir.file("x") + " was truncated or could not be read while it was in use");
}

TEST(MappedFile, ThreadsOpenFaultAndCloseAtOnce) {
  install_truncation_guard();
  const TempDir dir;
  const auto page = static_cast<size_t>(page_bytes());
  const auto work = [&](const std::string& path) {
    for (int i = 0; i < 50; ++i) {
      write_test_file(path, std::string(2 * page, 'b'));
      const auto file = *MappedFile::open(path);
      ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(page)), 0);
      ASSERT_EQ(file->bytes()[page], std::byte{0});
      ASSERT_EQ(file->bytes()[0], std::byte{'b'});
      ASSERT_TRUE(file->damaged());
    }
  };
  std::vector<std::thread> threads;
  for (const char* name : {"a", "b", "c"}) threads.emplace_back(work, dir.file(name));
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(any_mapping_damaged());
}

TEST(MappedFileDeathTest, AFaultOutsideEveryMappingStillKills) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TempDir dir;
  write_test_file(dir.file("x"), std::string(static_cast<size_t>(page_bytes()), 'b'));
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);
        install_truncation_guard();
        const int fd = ::open(dir.file("x").c_str(), O_RDWR);
        void* map = ::mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd, 0);
        if (::ftruncate(fd, 0) == 0) ::_exit(*static_cast<const volatile char*>(map) + 1);
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(MappedFileDeathTest, SignalsThatAreNotOursGoToTheHandlerBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, [](int) { ::_exit(7); });
        install_truncation_guard();
        std::raise(SIGBUS);
      },
      testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);
        install_truncation_guard();
        std::raise(SIGBUS);
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(MappedFile, MoreMapsThanTheTableHoldsAreRefused) {
  const TempDir dir;
  write_test_file(dir.file("x"), "butter");
  std::vector<std::shared_ptr<MappedFile>> files;
  std::string message;
  for (int i = 0; i < 1025 && message.empty(); ++i) {
    auto file = MappedFile::open(dir.file("x"));
    if (file) files.push_back(*file);
    if (!file) message = file.error().message();
  }
  EXPECT_EQ(message, dir.file("x") + " cannot be mapped: 1024 files are mapped already");
  files.clear();
  EXPECT_TRUE(MappedFile::open(dir.file("x")));
}

}  // namespace
}  // namespace butter
