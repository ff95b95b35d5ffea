// A small step, from which valid files of each kind are made.
#pragma once

#include <string_view>

#include "sentinel/profile.h"

namespace sentinel::fuzz {

inline constexpr std::string_view kTrace =
    R"({"format":"tensor-trace","version":1,"source":"x","model":"m","batch":2}
{"t":0,"bytes":8192,"kind":"global"}
{"t":1,"bytes":65536,"kind":"intermediate"}
{"t":2,"bytes":65536,"kind":"intermediate"}
{"t":3,"bytes":4096,"kind":"workspace"}
{"k":0,"name":"a","us":10,"in":[0],"out":[1,3],"phase":"forward","layer":0,"acc":{"1":7}}
{"k":1,"name":"b","us":2.5,"in":[0,1],"out":[2],"phase":"forward","layer":1}
{"k":2,"name":"c","us":20,"in":[1,2],"out":[0],"phase":"backward","op":"p"}
)";

Profile profile_of_trace(std::string_view trace);  // throws Error

// Everything that is computed of any profile, whatever it holds.
void use(const Profile&);

}  // namespace sentinel::fuzz
