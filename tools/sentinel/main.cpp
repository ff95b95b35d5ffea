#include <string>
#include <vector>

#include "verbs.h"

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  return sentinel::cli::dispatch(words);
}
