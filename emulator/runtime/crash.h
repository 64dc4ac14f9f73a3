// Last actions of a process that dies by a signal.
#pragma once

namespace ladder::runtime {

/// Calls `last_words`, once, before the process dies by a crash signal that has no other handler. It runs in
/// whatever state the process is in; if it hangs, the process still ends.
void before_a_crash(void (*last_words)());

} // namespace ladder::runtime
