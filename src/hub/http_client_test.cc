// Certificates: an https server with one that the test signs itself.
#include "hub/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdlib>
#include <thread>

#include "support/temp_dir.h"

namespace butter {
namespace {

// A key, and a certificate of it for 127.0.0.1, signed by itself.
class Certificate {
 public:
  Certificate() : key_(EVP_EC_gen("P-256")), certificate_(X509_new()) {
    X509_set_version(certificate_, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate_), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate_), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate_), 3600);
    X509_set_pubkey(certificate_, key_);
    X509_NAME* name = X509_get_subject_name(certificate_);
    const auto* text = reinterpret_cast<const unsigned char*>("127.0.0.1");
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0);
    X509_set_issuer_name(certificate_, name);
    X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
    X509_add_ext(certificate_, names, -1);
    X509_EXTENSION_free(names);
    X509_sign(certificate_, key_, EVP_sha256());
  }
  ~Certificate() {
    X509_free(certificate_);
    EVP_PKEY_free(key_);
  }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;

  X509* get() const { return certificate_; }
  EVP_PKEY* key() const { return key_; }
  void write(const std::string& path) const {
    std::FILE* file = std::fopen(path.c_str(), "we");
    PEM_write_X509(file, certificate_);
    std::fclose(file);
  }

 private:
  EVP_PKEY* key_;
  X509* certificate_;
};

class HttpsServer {
 public:
  explicit HttpsServer(const Certificate& certificate) : server_(certificate.get(), certificate.key()) {
    server_.Get("/hello", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("hello", "text/plain");
    });
    ::setenv("no_proxy", "127.0.0.1", 1);
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~HttpsServer() {
    server_.stop();
    thread_.join();
  }
  Url url() const { return *parse_url(fmt::format("https://127.0.0.1:{}/hello", port_)); }

 private:
  httplib::SSLServer server_;
  int port_ = 0;
  std::thread thread_;
};

class HttpClientTest : public testing::Test {
 protected:
  // OpenSSL's variable for the certificates that it trusts.
  ~HttpClientTest() override { ::unsetenv("SSL_CERT_FILE"); }

  HttpReply get() {
    PullState state;
    const Url url = server_.url();
    HttpClient client(url, "", state);
    return client.get(url, "", [&](const HttpReply&, std::string_view bytes) {
      body_ += bytes;
      return true;
    });
  }

  TempDir folder_;
  Certificate certificate_;
  HttpsServer server_{certificate_};
  std::string body_;
};

TEST_F(HttpClientTest, ACertificateThatNobodyTrustsIsRefused) {
  const HttpReply reply = get();
  EXPECT_EQ(reply.status, 0);
  EXPECT_EQ(reply.problem, "its certificate is not trusted");
  EXPECT_FALSE(reply.may_pass);
  EXPECT_EQ(body_, "");
}

TEST_F(HttpClientTest, ATrustedOneIsTaken) {
  certificate_.write(folder_.file("trusted.pem"));
  ::setenv("SSL_CERT_FILE", folder_.file("trusted.pem").c_str(), 1);
  const HttpReply reply = get();
  EXPECT_EQ(reply.problem, "");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(body_, "hello");
}

}  // namespace
}  // namespace butter
