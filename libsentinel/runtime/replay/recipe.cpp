// Lets recipes go from the last to the first.
#include "runtime/replay/recipe.h"

#include <utility>

namespace sentinel {
namespace {

void take_makers(Recipe& recipe, std::vector<std::shared_ptr<Recipe>>& makers) {
  for (auto& read : recipe.reads)
    if (read.maker) makers.push_back(std::move(read.maker));
}

}  // namespace

std::shared_ptr<Recipe> make_recipe(std::shared_ptr<std::vector<void*>> dropped) {
  const auto let_go = [dropped = std::move(dropped)](Recipe* recipe) {
    std::vector<std::shared_ptr<Recipe>> makers;
    take_makers(*recipe, makers);
    while (!makers.empty()) {
      const auto maker = std::move(makers.back());
      makers.pop_back();
      if (maker.use_count() == 1) take_makers(*maker, makers);
    }
    dropped->push_back(recipe->handle);
    delete recipe;
  };
  return {new Recipe, let_go};
}

}  // namespace sentinel
