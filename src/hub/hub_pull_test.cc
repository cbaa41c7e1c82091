// Pulls from a hub of the test's own, which serves well and badly.
#include "hub/hub_pull.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>

#include "support/fake_hub.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace butter {
namespace {

namespace fs = std::filesystem;
using httplib::Request;
using httplib::Response;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kRangeBytes = 65536;

std::string noise(size_t bytes, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

class HubPull : public testing::Test {
 protected:
  HubPull() { hub_.files["tiny.gguf"] = {content_}; }

  HubSettings settings() const {
    HubSettings settings;
    settings.cache = HubCache(cache_.file("hub"));
    settings.server.endpoint = *parse_url(hub_.endpoint());
    settings.server.first_wait_ms = 1;
    settings.sizes = {kRangeBytes, 3};
    return settings;
  }
  Result<HubModel> pull(const std::string& name = "org/tiny") const { return pull_with(settings(), name); }
  static Result<HubModel> pull_with(const HubSettings& settings, const std::string& name = "org/tiny") {
    return pull_from_hub(*parse_model_reference(name), settings,
                         [](const char*, int64_t, int64_t) { return true; });
  }

  std::vector<std::string> blobs() const {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(cache_.file("hub/models--org--tiny/blobs"), ignored))
      names.push_back(entry.path().filename().string());
    return names;
  }
  std::string partial() const {
    return cache_.file("hub/models--org--tiny/blobs/" + FakeHub::etag({content_}) + ".butter-partial");
  }
  // Neither under its name nor as a snapshot.
  void expect_nothing_complete() const {
    for (const std::string& name : blobs()) EXPECT_THAT(name, HasSubstr(".butter-partial"));
    EXPECT_EQ(settings().cache.find(*parse_model_reference("org/tiny")).error().code(),
              StatusCode::kNotFound);
  }
  void expect_refusal(const Result<HubModel>& result, StatusCode code, const std::string& named) const {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), code) << result.error().message();
    EXPECT_THAT(result.error().message(), HasSubstr(named));
    expect_nothing_complete();
  }

  // Answers with the first `bytes` of what is asked for, and breaks the connection.
  void drop_after(size_t bytes, const Request& request, Response& response) const {
    FakeHub::describe(hub_.files.at("tiny.gguf"), response);
    const int64_t from = request.ranges.empty() ? 0 : std::max<int64_t>(0, request.ranges[0].first);
    const size_t limit = static_cast<size_t>(from) + bytes;
    response.set_content_provider(content_.size(), "application/octet-stream",
                                  [this, limit](size_t offset, size_t length, httplib::DataSink& sink) {
                                    if (offset >= limit) return false;
                                    const size_t now = std::min({length, limit - offset, size_t{4096}});
                                    return sink.write(content_.data() + offset, now);
                                  });
  }
  static bool is_download(const Request& request) {
    return request.method == "GET" && FakeHub::is_file(request.path);
  }

  const std::string content_ = noise(5 * kRangeBytes + 1234);
  TempDir cache_;
  FakeHub hub_;
};

TEST_F(HubPull, AFileComesWholeAndIsFoundAgain) {
  const auto pulled = pull();
  ASSERT_TRUE(pulled) << pulled.error().message();
  EXPECT_EQ(read_test_file(pulled->path), content_);
  EXPECT_EQ(pulled->bytes, static_cast<int64_t>(content_.size()));
  EXPECT_FALSE(pulled->was_there);
  EXPECT_EQ(*settings().cache.find(*parse_model_reference("org/tiny")), pulled->path);
  EXPECT_EQ(*settings().cache.find(*parse_model_reference("org/tiny@" + FakeHub::kCommit)), pulled->path);
  EXPECT_EQ(fs::read_symlink(pulled->path), "../../blobs/" + FakeHub::etag({content_}));
  EXPECT_EQ(read_test_file(cache_.file("hub/models--org--tiny/refs/main")), FakeHub::kCommit);
  EXPECT_THAT(hub_.downloads(), SizeIs(6));  // a request a range
}

TEST_F(HubPull, ASecondPullFetchesNothing) {
  ASSERT_TRUE(pull());
  const size_t before = hub_.downloads().size();
  const auto again = pull();
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->was_there);
  EXPECT_EQ(hub_.downloads().size(), before);
}

TEST_F(HubPull, ADamagedBlobIsFetchedAgain) {
  const auto first = pull();
  ASSERT_TRUE(first);
  std::fstream(first->path, std::ios::in | std::ios::out | std::ios::binary).write("damage", 6);
  const auto again = pull();
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->was_there);
  EXPECT_EQ(read_test_file(again->path), content_);
}

TEST_F(HubPull, AFolderHasItsConfigurationTokenizerAndWeightsOnly) {
  hub_.files = {{"config.json", {"{}", false}},
                {"generation_config.json", {"{ }", false}},
                {"tokenizer.json", {noise(1000), false}},
                {"model.safetensors", {content_}},
                {"original/consolidated.pth", {noise(10)}},
                {"pytorch_model.bin", {noise(11)}},
                {"empty", {"", false}},
                {"README.md", {"text", false}}};
  const auto pulled = pull();
  ASSERT_TRUE(pulled) << pulled.error().message();
  EXPECT_EQ(*settings().cache.find(*parse_model_reference("org/tiny")), pulled->path);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(pulled->path)) {
    names.push_back(entry.path().filename().string());
    EXPECT_EQ(read_test_file(entry.path().string()), hub_.files[names.back()].content);
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("config.json", "generation_config.json", "tokenizer.json",
                                                   "model.safetensors"));
}

TEST_F(HubPull, FilesInFoldersAndOfOtherRevisions) {
  hub_.files = {{"q4/tiny-Q4_K_M-00001-of-00002.gguf", {content_}},
                {"q4/tiny-Q4_K_M-00002-of-00002.gguf", {noise(100)}},
                {"tiny-Q8_0.gguf", {noise(200)}}};
  hub_.revision = "refs/pr/1";
  const auto pulled = pull("org/tiny:q4_k_m@refs/pr/1");
  ASSERT_TRUE(pulled) << pulled.error().message();
  EXPECT_THAT(pulled->path, HasSubstr("/q4/tiny-Q4_K_M-00001-of-00002.gguf"));
  EXPECT_EQ(read_test_file(pulled->path), content_);
  EXPECT_EQ(*settings().cache.find(*parse_model_reference("org/tiny:q4_k_m@refs/pr/1")), pulled->path);
  const auto missing = settings().cache.find(*parse_model_reference("org/tiny:Q8_0@refs/pr/1"));
  EXPECT_THAT(missing.error().message(), HasSubstr("`butter pull org/tiny:Q8_0@refs/pr/1`"));
}

TEST_F(HubPull, SmallFilesAreHeldToGitsHash) {
  hub_.files["tiny.gguf"].is_large = false;
  ASSERT_TRUE(pull());
  fs::remove_all(cache_.file("hub"));
  hub_.on_request = [&](const Request& request, Response& response) {
    if (!is_download(request)) return false;
    response.set_content(std::string(content_.size(), 'x'), "text/plain");
    return true;
  };
  expect_refusal(pull(), StatusCode::kCorrupt, "another content");
}

TEST_F(HubPull, EmptyFiles) {
  hub_.files["tiny.gguf"] = {"", false};
  const auto pulled = pull();
  ASSERT_TRUE(pulled) << pulled.error().message();
  EXPECT_EQ(fs::file_size(pulled->path), 0u);
}

TEST_F(HubPull, DroppedConnectionsGoOnWhereTheyBroke) {
  hub_.on_request = [&](const Request& request, Response& response) {
    if (!is_download(request)) return false;
    drop_after(20000, request, response);
    return true;
  };
  const auto pulled = pull();
  ASSERT_TRUE(pulled) << pulled.error().message();
  EXPECT_EQ(read_test_file(pulled->path), content_);
}

TEST_F(HubPull, AServerThatOnlyDropsIsGivenUpAndTheRestIsTakenUpLater) {
  std::atomic<int> served{0};
  std::atomic<bool> is_well{false};
  hub_.on_request = [&](const Request& request, Response& response) {
    if (is_well || !is_download(request)) return false;
    drop_after(served++ < 3 ? 30000 : 0, request, response);
    return true;
  };
  expect_refusal(pull(), StatusCode::kIo, "broke off");
  is_well = true;
  const size_t before = hub_.downloads().size();
  const auto pulled = pull();
  ASSERT_TRUE(pulled) << pulled.error().message();
  EXPECT_EQ(read_test_file(pulled->path), content_);
  size_t asked_from_a_middle = 0;
  const auto downloads = hub_.downloads();
  for (size_t i = before; i < downloads.size(); ++i) {
    const int64_t from = std::stoll(downloads[i].range.substr(6));
    if (from % kRangeBytes != 0) ++asked_from_a_middle;
  }
  EXPECT_GT(asked_from_a_middle, 0u);
  EXPECT_THAT(blobs(), SizeIs(1));
}

TEST_F(HubPull, AStoppedPullGoesOnWhereItWas) {
  std::atomic<bool> may_go_on{false};
  hub_.on_request = [&](const Request& request, Response& response) {
    if (may_go_on || !is_download(request)) return false;
    FakeHub::describe(hub_.files.at("tiny.gguf"), response);
    response.set_content_provider(content_.size(), "application/octet-stream",
                                  [&, first = true](size_t at, size_t, httplib::DataSink& sink) mutable {
                                    if (std::exchange(first, false)) return sink.write(&content_[at], 10000);
                                    std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                    return !may_go_on.load();
                                  });
    return true;
  };
  const auto stopped = pull_from_hub(*parse_model_reference("org/tiny"), settings(),
                                     [](const char*, int64_t done, int64_t) { return done == 0; });
  may_go_on = true;
  expect_refusal(stopped, StatusCode::kCancelled, "stopped");
  EXPECT_TRUE(fs::exists(partial()));
  const auto pulled = pull();
  ASSERT_TRUE(pulled) << pulled.error().message();
  EXPECT_EQ(read_test_file(pulled->path), content_);
  EXPECT_THAT(hub_.downloads().back().range, HasSubstr("bytes="));
}

TEST_F(HubPull, APartialFileThatIsDamagedIsFetchedAnew) {
  std::atomic<int> served{0};
  hub_.on_request = [&](const Request& request, Response& response) {
    if (!is_download(request) || served++ < 2) return false;
    response.status = 404;
    return true;
  };
  expect_refusal(pull(), StatusCode::kNotFound, "has no tiny.gguf");
  std::fstream(partial(), std::ios::in | std::ios::out | std::ios::binary).write("damage", 6);
  served = -1000;
  const auto pulled = pull();
  ASSERT_TRUE(pulled) << pulled.error().message();
  EXPECT_EQ(read_test_file(pulled->path), content_);
}

TEST_F(HubPull, AServerThatIgnoresRanges) {
  std::atomic<int> drops{2};
  hub_.on_request = [&](const Request& request, Response& response) {
    if (!is_download(request)) return false;
    const_cast<Request&>(request).ranges.clear();
    if (request.get_header_value("Range").empty() && drops-- > 0) {
      drop_after(100000, request, response);
    } else {
      hub_.answer(request, response);
    }
    response.status = 200;
    return true;
  };
  const auto pulled = pull();
  ASSERT_TRUE(pulled) << pulled.error().message();
  EXPECT_EQ(read_test_file(pulled->path), content_);
}

TEST_F(HubPull, LengthsThatAreLies) {
  for (const int difference : {-1000, 1000}) {
    hub_.on_request = [&](const Request& request, Response& response) {
      if (request.method != "HEAD") return false;
      response.set_header("X-Linked-Etag", FakeHub::etag({content_}));
      response.set_header("X-Linked-Size", std::to_string(static_cast<int>(content_.size()) + difference));
      return true;
    };
    const auto pulled = pull();
    ASSERT_FALSE(pulled);
    expect_nothing_complete();
    EXPECT_THAT(pulled.error().message(), HasSubstr("tiny.gguf"));
  }
  for (const char* length : {"-5", "99999999999999999999", "many", ""}) {
    hub_.on_request = [&](const Request& request, Response& response) {
      if (request.method != "HEAD") return false;
      response.set_header("X-Linked-Etag", FakeHub::etag({content_}));
      response.set_header("X-Linked-Size", length);
      response.set_redirect("http://127.0.0.1:1/elsewhere");
      return true;
    };
    expect_refusal(pull(), StatusCode::kCorrupt, "without a length");
  }
}

TEST_F(HubPull, AContentThatIsNotTheHashsIsNotKept) {
  hub_.on_request = [&](const Request& request, Response& response) {
    if (!is_download(request)) return false;
    response.set_content(noise(content_.size(), 2), "application/octet-stream");
    return true;
  };
  expect_refusal(pull(), StatusCode::kCorrupt, FakeHub::etag({content_}));
  EXPECT_THAT(blobs(), IsEmpty());
}

TEST_F(HubPull, MoreThanTheDiskHolds) {
  hub_.on_request = [&](const Request& request, Response& response) {
    if (request.method != "HEAD") return false;
    response.set_header("X-Linked-Etag", FakeHub::etag({content_}));
    response.set_header("X-Linked-Size", std::to_string(int64_t{1} << 42));
    return true;
  };
  expect_refusal(pull(), StatusCode::kIo, "are free on the disk");
}

TEST_F(HubPull, AWriteThatTheSystemRefuses) {
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = content_.size() / 2;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto pulled = pull();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  expect_refusal(pulled, StatusCode::kIo, "cannot be written");
}

TEST_F(HubPull, ACacheThatCannotBeWritten) {
  HubSettings other = settings();
  other.cache = HubCache("/proc/butter");
  EXPECT_THAT(pull_with(other).error().message(),
              HasSubstr("the Hugging Face cache /proc/butter cannot be written"));
  std::ofstream(cache_.file("hub")) << "a file where a folder should be";
  EXPECT_THAT(pull().error().message(), HasSubstr("cannot be written"));
}

TEST_F(HubPull, TheTokenGoesToTheHubAndNotWhereItLeads) {
  FakeHub storage;
  storage.files = hub_.files;
  hub_.on_request = [&](const Request& request, Response& response) {
    if (!FakeHub::is_file(request.path)) return false;
    FakeHub::describe(hub_.files.at("tiny.gguf"), response);
    response.set_redirect(storage.endpoint() + request.path);
    return true;
  };
  HubSettings with_token = settings();
  with_token.server.token = "hf_secret";
  const auto pulled = pull_with(with_token);
  ASSERT_TRUE(pulled) << pulled.error().message();
  EXPECT_EQ(read_test_file(pulled->path), content_);
  for (const auto& asked : hub_.asked()) EXPECT_EQ(asked.authorization, "Bearer hf_secret");
  EXPECT_THAT(storage.downloads(), SizeIs(6));
  for (const auto& asked : storage.asked()) EXPECT_EQ(asked.authorization, "");
}

TEST_F(HubPull, RedirectsOnTheSameServer) {
  for (const bool is_large : {true, false}) {
    hub_.files["tiny.gguf"].is_large = is_large;
    hub_.on_request = [&](const Request& request, Response& response) {
      if (!FakeHub::is_file(request.path) || request.has_param("again")) return false;
      if (is_large) FakeHub::describe(hub_.files.at("tiny.gguf"), response);
      response.set_redirect(request.path + "?again=a%2Fb%20+%3D", 307);
      return true;
    };
    const auto pulled = pull();
    ASSERT_TRUE(pulled) << pulled.error().message();
    EXPECT_EQ(read_test_file(pulled->path), content_);
    EXPECT_THAT(hub_.downloads().back().target, testing::EndsWith("?again=a%2Fb%20+%3D"));  // signed as it is
    fs::remove_all(cache_.file("hub"));
  }
}

TEST_F(HubPull, RedirectsThatLeadNowhere) {
  for (const char* location :
       {"/org/tiny/resolve/again", "ftp://127.0.0.1/x", "", "http://", "file:///etc/passwd"}) {
    hub_.on_request = [&](const Request& request, Response& response) {
      if (!is_download(request)) return false;
      response.set_redirect(location);
      return true;
    };
    expect_refusal(pull(), StatusCode::kIo, "redirects");
  }
}

TEST_F(HubPull, RefusalsSayWhatWouldHelp) {
  const auto pull_refused = [&](int status, const std::string& token) {
    hub_.on_request = [status](const Request&, Response& response) {
      response.status = status;
      return true;
    };
    HubSettings other = settings();
    other.server.token = token;
    return pull_with(other);
  };
  expect_refusal(pull_refused(401, ""), StatusCode::kNotFound, "HF_TOKEN");
  expect_refusal(pull_refused(401, "hf_old"), StatusCode::kInvalidArgument, "does not accept the token");
  expect_refusal(pull_refused(403, "hf_mine"), StatusCode::kInvalidArgument, "granted access");
  expect_refusal(pull_refused(404, ""), StatusCode::kNotFound, "has no org/tiny, revision main");
  expect_refusal(pull_refused(418, ""), StatusCode::kIo, "answers 418");
}

TEST_F(HubPull, ABusyServerIsAskedAgainAndNotForEver) {
  std::atomic<int> busy{3};
  hub_.on_request = [&](const Request&, Response& response) {
    const int left = busy--;
    if (left <= 0) return false;
    response.status = left == 3 ? 429 : left == 2 ? 500 : 503;
    response.set_header("Retry-After", "0");
    return true;
  };
  EXPECT_TRUE(pull());
  fs::remove_all(cache_.file("hub"));
  busy = 1000;
  const size_t before = hub_.asked().size();
  expect_refusal(pull(), StatusCode::kIo, "answers 503");
  EXPECT_EQ(hub_.asked().size(), before + 5);
}

TEST_F(HubPull, NoServer) {
  HubSettings nowhere = settings();
  nowhere.server.endpoint = *parse_url("http://127.0.0.1:1");
  expect_refusal(pull_with(nowhere), StatusCode::kIo, "no connection can be made");
}

TEST_F(HubPull, NamesThatEscape) {
  for (const char* name : {"../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", "a//b.gguf", "a\\\\b.gguf",
                           "a\\u0000b.gguf", "a\\nb.gguf", "./evil.gguf", "", ".."}) {
    hub_.listing =
        fmt::format(R"({{"sha":"{}","siblings":[{{"rfilename":"{}"}},{{"rfilename":"tiny.gguf"}}]}})",
                    FakeHub::kCommit, name);
    expect_refusal(pull(), StatusCode::kCorrupt, "names a file");
  }
}

TEST_F(HubPull, ListsThatAreNone) {
  const std::string deep(100000, '[');
  for (const std::string& listing :
       {std::string("<html>"), std::string("[]"), std::string("{}"),
        std::string(R"({"sha":"../x","siblings":[]})"), std::string(R"({"sha":1,"siblings":[]})"),
        "{\"sha\":\"" + FakeHub::kCommit + "\",\"siblings\":[1]}", "{\"sha\":" + deep}) {
    hub_.listing = listing;
    const auto pulled = pull();
    ASSERT_FALSE(pulled);
    EXPECT_THAT(pulled.error().message(), HasSubstr("the list of files of org/tiny"));
    expect_nothing_complete();
  }
}

TEST_F(HubPull, HashesThatAreNoFileNames) {
  for (const char* etag : {"../../evil", "", "a/b", "\"\"", ".."}) {
    hub_.on_request = [&](const Request& request, Response& response) {
      if (request.method != "HEAD") return false;
      response.set_header("ETag", etag);
      response.set_header("X-Linked-Size", "10");
      return true;
    };
    expect_refusal(pull(), StatusCode::kCorrupt, "a hash is expected");
  }
}

TEST_F(HubPull, TwoAtOnceFetchOnce) {
  Result<HubModel> second = fail(StatusCode::kNotFound, "not yet");
  std::thread other([&] { second = pull(); });
  const auto first = pull();
  other.join();
  ASSERT_TRUE(first) << first.error().message();
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_EQ(read_test_file(first->path), content_);
  EXPECT_EQ(first->path, second->path);
  EXPECT_NE(first->was_there, second->was_there);
  EXPECT_THAT(hub_.downloads(), SizeIs(6));
  EXPECT_THAT(blobs(), SizeIs(1));
}

TEST_F(HubPull, ARepositoryWithoutModels) {
  hub_.files = {{"README.md", {"text", false}}};
  expect_refusal(pull(), StatusCode::kNotFound, "holds neither");
}

}  // namespace
}  // namespace butter
