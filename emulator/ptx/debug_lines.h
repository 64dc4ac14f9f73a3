// Line info: chains of `.loc` directives and the names in `.section .debug_str`.
#pragma once

#include "ptx/ast.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ladder::ptx {

/// One `.loc`, as written.
struct LocDirective {
  int file = 0, line = 0, column = 0;
  bool is_inlined = false;
  std::string_view function_label;             ///< label in .debug_str, may be empty
  std::uint64_t function_offset = 0;           ///< bytes past the label
  int at_file = 0, at_line = 0, at_column = 0; ///< inlined_at
};

/// Builds SourceLocations. `inlined_at` gives the call's file, line and column. If the call itself was
/// inlined, the latest earlier `.loc` at that position in the same function supplies the outer links.
class DebugLines {
public:
  /// Starts a function; it does not see the `.loc`s of earlier ones.
  void begin_function() {
    latest_.clear();
    current_ = -1;
    after_unknown_ = false;
  }
  /// Returns the location's index, or -1 if there is none. Line 0 means the compiler knows no line: the call
  /// site is used if given, else the previous location.
  int add(const LocDirective &loc);

  /// Contents of .section .debug_str: labels and bytes, in order.
  void add_label(std::string_view label) { labels_.emplace(label, strings_.size()); }
  void add_bytes(std::uint64_t value, unsigned count);

  /// Returns the locations with decoded function names. Call once, after the whole text has been read.
  std::vector<SourceLocation> finish();

private:
  struct Place {
    int file, line, column;
    bool operator==(const Place &) const = default;
  };
  struct PlaceHash {
    std::size_t operator()(const Place &place) const;
  };
  struct Link {
    Place place;
    std::string_view label;
    std::uint64_t offset;
    bool operator==(const Link &) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const std::pair<Link, int> &key) const;
  };
  int enter(const Link &link, int caller);
  int caller_of(const LocDirective &loc);
  std::string name(const Link &link) const;

  std::unordered_map<Place, int, PlaceHash> latest_; ///< in this function: place -> location
  /// (link, location of its caller or -1) -> location
  std::unordered_map<std::pair<Link, int>, int, KeyHash> known_;
  std::vector<std::pair<Link, int>> locations_; ///< innermost link, location of its caller or -1
  std::vector<int> depth_;
  int current_ = -1;           ///< latest location in this function
  bool after_unknown_ = false; ///< a `.loc` of line 0 came since `current_`
  std::unordered_map<std::string_view, std::size_t> labels_;
  std::string strings_;
};

} // namespace ladder::ptx
