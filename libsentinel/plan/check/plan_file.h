// Plans as JSON files, readable by their owner only (a plan tells the shape of a model).
#pragma once

#include <string>

#include "sentinel/plan.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// Written beside `path` and renamed, mode 0600. Throws Error.
void write_plan(const std::string& path, const Plan&);

// Throws Error on anything that is not a plan of a version this code reads.
Plan read_plan(const std::string& path);

std::string plan_to_json(const Plan&);
Plan plan_from_json(const std::string& text, const std::string& where);

// Throws Error where the plan was made for another model or step than the profile's.
void check_matches(const Plan&, const Profile&);

// Throws Error, of the plan's file, also where verify() objects: before a program begins that is to
// follow it.
void check_sound(const Plan&, const Profile&, const std::string& file);

}  // namespace sentinel::plan
