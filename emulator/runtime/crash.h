// Something to do when the process dies by a signal.
#pragma once

namespace ladder::runtime {

/// Calls `last_words`, once, before the process ends by a signal that means a crash and that nobody else
/// handles. It runs in whatever state the process was; should it hang, the process ends nevertheless.
void before_a_crash(void (*last_words)());

} // namespace ladder::runtime
