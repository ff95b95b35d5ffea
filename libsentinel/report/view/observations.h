// The Sentinel paper's Observations 1 to 3 (HPCA 2021, section III-B) on one profile. Foreign
// tensors are left out: Sentinel never moves them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "report/view/sharing.h"
#include "report/view/step_view.h"

namespace sentinel {

struct BandTotal {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
};

struct Observations {
  std::size_t tensors = 0, foreign = 0;
  std::size_t short_lived = 0, short_lived_small = 0;  // small: below one page
  std::uint64_t short_lived_peak_bytes = 0;
  std::array<BandTotal, heat_bands> bands{};  // by HeatBand
  std::uint64_t bytes = 0;                    // of all bands
  Sharing sharing;
};
Observations observe(const StepView& step);

// One figure in words; `detail` explains the value, `reference` is what the paper found for
// ResNet-32 (empty: it gives none).
struct Figure {
  std::string label, value, detail, reference;
};
struct ObservationTable {
  std::string title, note;  // the note is empty, or says what the figures are worth
  std::vector<Figure> figures;
};
// Shared by the text and HTML reports, so that both say the same.
std::vector<ObservationTable> in_words(const StepView& step, const Observations& seen);

}  // namespace sentinel
