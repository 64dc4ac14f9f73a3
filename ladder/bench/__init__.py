"""Measurements of speed: of the rungs on a GPU, of the emulator on this machine's processor."""
