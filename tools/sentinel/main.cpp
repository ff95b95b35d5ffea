// Passes the arguments to the verb that they name.
#include <string>
#include <vector>

#include "cli/verbs.h"

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  return sentinel::cli::dispatch(words);
}
