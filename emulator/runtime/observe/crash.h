// Last actions of a process that dies by a signal.
#pragma once

namespace ladder::runtime {

/// Calls `last_words`, once, before the process dies by a crash signal that has no other handler. The process
/// may be in any state then; if `last_words` hangs, the process still ends.
void before_a_crash(void (*last_words)());

} // namespace ladder::runtime
