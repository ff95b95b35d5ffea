// corpus_writer FOLDER: writes the valid files of each reader into FOLDER/READER.
// corpus_writer --sources: prints the readers, and the sources that parse for each.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "fuzz/readers.h"

int main(int count, char** words) {
  if (count > 1 && std::string(words[1]) == "--sources") {
    for (const auto& reader : sentinel::fuzz::readers())
      std::printf("%s %s\n", std::string(reader.name).c_str(), std::string(reader.sources).c_str());
    return 0;
  }
  if (count != 2) return std::fprintf(stderr, "corpus_writer FOLDER | --sources\n"), 2;
  for (const auto& reader : sentinel::fuzz::readers()) {
    const auto folder = std::filesystem::path(words[1]) / reader.name;
    std::filesystem::create_directories(folder);
    int number = 0;
    for (const auto& seed : reader.seeds())
      std::ofstream(folder / ("written-" + std::to_string(++number)), std::ios::binary) << seed;
  }
}
