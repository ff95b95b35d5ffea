#include "base/text.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <new>

#include "base/failure.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST(Printable, LeavesTextAsItIs) {
  for (const char* text :
       {"", "encoder.layer.0/attention", "Größe µs → 漢字 🙂", "a\\b 'c' \"d\""})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ShowsWhatWouldSteerATerminal) {
  EXPECT_EQ(printable("a\x1b[2J\x07"), "a\\x1b[2J\\x07");
  EXPECT_EQ(printable("two\r\nlines\t"), "two\\x0d\\x0alines\\x09");
  EXPECT_EQ(printable(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");  // C1's own CSI, in UTF-8
  EXPECT_EQ(printable("\u202etxt.exe\u2066\u2069\u200f\u2028"),
            "\\u202etxt.exe\\u2066\\u2069\\u200f\\u2028");
}

TEST(Printable, ShowsBrokenUtf8ByItsBytes) {
  EXPECT_EQ(printable("\x9b\xff"), "\\x9b\\xff");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");           // overlong ESC
  EXPECT_EQ(printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");  // longer still
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");  // cut off
}

TEST(Printable, CutsTheMiddleOfWhatIsLong) {
  const auto shown = printable("begin" + std::string(1'000'000, 'x') + "end", 100);
  EXPECT_LE(shown.size(), 100u);
  EXPECT_TRUE(shown.starts_with("beginx"));
  EXPECT_TRUE(shown.ends_with("xend"));
  EXPECT_THAT(printable(std::string(1'000'000, '\x1b')), SizeIs(::testing::Le(kLongestShown)));
  EXPECT_THAT(printable("ä" + std::string(300, 'x') + "ü", 9), Not(HasSubstr("\\x")));
}

TEST(Printable, ChangesNothingTwice) {
  for (const std::string text : {"\x1b\xc2\x9b\xff\u202e", "plain", "\\x1b"}) {
    EXPECT_EQ(printable(printable(text)), printable(text));
  }
  const auto cut = printable(std::string(5000, '\x1b'), 100);
  EXPECT_EQ(printable(cut, 100), cut);
}

TEST(PrintableJson, MeansWhatItMeant) {
  EXPECT_EQ(printable_json("{\"a\":\"ü\"}"), "{\"a\":\"ü\"}");
  EXPECT_EQ(printable_json("[\"\xc2\x9b\x7f\u202e\",\n 1]"), "[\"\\u009b\\u007f\\u202e\",\n 1]");
}

TEST(Error, SaysNothingThatSteersATerminal) {
  EXPECT_STREQ(Error("\"phase\" is \"\x1b]0;owned\x07\"").what(),
               "\"phase\" is \"\\x1b]0;owned\\x07\"");
  EXPECT_LE(std::string(Error(std::string(1 << 20, 'x'), 2).what()).size(), kLongestShown + 100);
}

TEST(Failure, IsInOurWords) {
  EXPECT_EQ(in_words(Error("as it was")), "as it was");
  EXPECT_THAT(in_words(std::bad_alloc()), HasSubstr("memory"));
  EXPECT_THAT(in_words(std::bad_alloc()), Not(HasSubstr("bad_alloc")));
  EXPECT_THAT(in_words(std::runtime_error("vector::_M_default_append")), Not(HasSubstr("_M_")));
  const std::filesystem::filesystem_error file("filesystem error: x", "/a\x1b",
                                               std::make_error_code(std::errc::permission_denied));
  EXPECT_THAT(in_words(file), HasSubstr("cannot use /a\\x1b: Permission denied"));
}

}  // namespace
}  // namespace sentinel
